//! The forms in which metrics are read.

use bk_ops::exposition::{self, plain};
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
        } else if exposition::wants_open_metrics(accept) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Its type, as a header says it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => exposition::TEXT,
            Self::OpenMetrics => exposition::OPEN_METRICS,
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

#[cfg(test)]
mod tests {
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
}
