//! Where a job's logs go.

use std::collections::BTreeSet;

use bk_api::{BuildJobSpec, exporters::LogExporter};

use super::{Missing, Offer};
use crate::pod::PodSettings;

/// What the log exporter of a job's pod does: all of it is in the job's spec, or follows from the configuration.
pub(crate) type Logs = LogExporter;

/// What a job gets of the log exporter.
///
/// A job that says nothing about it gets what the configuration has for all. One that names neither output nor files, but wants it,
/// means its output.
pub(crate) fn offer(spec: &BuildJobSpec, settings: &PodSettings) -> Offer<Logs> {
    let config = &settings.logs;
    let mut logs = match &spec.log_exporter {
        Some(own) if own.enabled => LogExporter::clone(own),
        None if config.enabled => LogExporter { enabled: true, ..LogExporter::default() },
        Some(_) | None => return Offer::NOTHING,
    };
    if config.sinks.is_empty() {
        return Offer::refused(missing(
            "NoLogExporter",
            "its logs are not exported, as this operator has no log exporter and no sink to send them to; they are in Buildkite only"
                .to_owned(),
        ));
    }
    if settings.config.operator_image.is_none() {
        return Offer::refused(missing(
            "NoOperatorImage",
            "its logs are not exported, as the operator does not know its own image; set `operatorImage` in `pod_config`"
                .to_owned(),
        ));
    }
    if !(logs.stdout || logs.stderr || logs.volume.is_some()) && logs.paths.is_empty() {
        (logs.stdout, logs.stderr) = (true, true);
    }
    if logs.sinks.is_empty() {
        logs.sinks = config.default_sinks();
    }
    let (known, unknown): (Vec<_>, Vec<_>) =
        logs.sinks.into_iter().partition(|name| config.sinks.contains_key(name));
    let missing = unknown.first().map(|name| {
        let all: Vec<&str> = config.sinks.keys().map(String::as_str).collect();
        let message =
            format!("its logs do not go to `{name}`: there is no such sink; known: {}", all.join(", "));
        missing("UnknownSink", message)
    });
    // Two that write to one place would send everything twice, or to the same file.
    let mut seen = BTreeSet::new();
    logs.sinks = known.into_iter().filter(|name| seen.insert(name.clone())).collect();
    Offer { granted: Some(logs).filter(|logs| !logs.sinks.is_empty()), missing }
}

fn missing(reason: &'static str, message: String) -> Missing {
    Missing { condition: "LogsExported", reason, message }
}
