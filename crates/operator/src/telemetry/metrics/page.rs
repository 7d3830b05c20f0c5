//! The forms in which metrics are read.

use prometheus_client::{
    encoding::{prometheus_protobuf, text},
    registry::Registry,
};

/// A form of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' own text, which everybody reads.
    Text,
    /// `OpenMetrics`, which Prometheus prefers.
    OpenMetrics,
    /// Prometheus' protobuf, which it asks for if it keeps native histograms: no other form has them.
    Protobuf,
}

impl Form {
    /// What a reader asks for by its `Accept`.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/vnd.google.protobuf") {
            Self::Protobuf
        } else if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Its type, as a header says it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    pub(super) fn write(self, registry: &Registry) -> Vec<u8> {
        if self == Self::Protobuf {
            // Memory is all that it is written to.
            return prometheus_protobuf::encode_to_vec(registry).unwrap_or_default();
        }
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _infallible = text::encode(&mut page, registry);
        if self == Self::Text { plain(&page).into_bytes() } else { page.into_bytes() }
    }
}

/// `OpenMetrics` in the text format that was before it: there, what describes a metric has the same name as its samples.
fn plain(page: &str) -> String {
    let kinds = |name: &str| {
        let mut types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        types.find(|(of, _)| *of == name).map_or("", |(_, kind)| kind)
    };
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        let described = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        match described.and_then(|(what, rest)| Some((what, rest.split_once(' ')?))) {
            Some((what @ ("HELP" | "TYPE"), (name, text))) => {
                let (suffix, kind) = match kinds(name) {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                let text = if what == "TYPE" { kind } else { text };
                out.extend(["# ", what, " ", name, suffix, " ", text, "\n"]);
            }
            _ if line.starts_with('#') => {}
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, info::Info};

    use super::*;

    #[test]
    fn readers_get_what_they_ask_for() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8";
        let asked = ["", "*/*", prometheus, native].map(Form::accepted);
        assert_eq!(asked, [Form::Text, Form::Text, Form::OpenMetrics, Form::Protobuf]);
    }

    #[test]
    fn the_text_format_describes_metrics_by_the_names_of_their_samples() {
        let mut registry = Registry::default();
        registry.register("jobs", "All jobs", Counter::<u64>::default());
        registry.register("build", "The version", Info::new([("version", "1")]));
        let page = String::from_utf8(Form::Text.write(&registry)).unwrap();
        assert_eq!(
            page,
            "# HELP jobs_total All jobs.\n# TYPE jobs_total counter\njobs_total 0\n\
             # HELP build_info The version.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n"
        );
    }
}
