//! Pages of metrics in the form that a reader asks for.

/// Prometheus' own text, which everybody reads.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `OpenMetrics`, which Prometheus prefers.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a reader asks for `OpenMetrics` by its `Accept`.
pub fn wants_open_metrics(accept: &str) -> bool {
    accept.contains("application/openmetrics-text")
}

/// A page of `OpenMetrics` in the text format that was before it: there, what describes a metric has the same name as its samples.
pub fn plain(page: &str) -> String {
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
    use super::*;

    #[test]
    fn the_text_format_describes_metrics_by_the_names_of_their_samples() {
        let page = "# HELP jobs All jobs.\n# TYPE jobs counter\njobs_total 0\n\
                    # HELP build The version.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n# EOF\n";
        assert_eq!(
            plain(page),
            "# HELP jobs_total All jobs.\n# TYPE jobs_total counter\njobs_total 0\n\
             # HELP build_info The version.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n"
        );
    }
}
