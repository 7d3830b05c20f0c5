//! How metrics of a job leave its pod.

use bk_api::{BuildJobSpec, exporters::MetricsMode};

use super::{Missing, Offer};
use crate::pod::PodSettings;

/// What the metrics exporter of a job's pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// The directory whose files hold metrics.
    pub(crate) directory: String,
    /// How they leave the pod.
    pub(crate) mode: MetricsMode,
}

/// What a job gets of the metrics exporter. A job that says nothing about it gets what the configuration has for all.
pub(crate) fn offer(spec: &BuildJobSpec, settings: &PodSettings) -> Offer<Metrics> {
    let config = &settings.metrics;
    let own = spec.metrics_exporter.as_ref();
    if !own.map_or(config.enabled, |own| own.enabled) {
        return Offer::NOTHING;
    }
    let mode = own.and_then(|own| own.mode).unwrap_or(config.mode);
    if let Some(section) = config.missing(mode) {
        return Offer::refused(missing(
            "NoReceiver",
            format!(
                "its metrics are not exported, as there is no `{section}` in the operator's `metrics_exporter_config`"
            ),
        ));
    }
    if settings.config.operator_image.is_none() {
        let message = "its metrics are not exported, as the operator does not know its own image; set `operatorImage` in `pod_config`";
        return Offer::refused(missing("NoOperatorImage", message.to_owned()));
    }
    let directory = own.and_then(|own| own.path.clone()).unwrap_or_else(|| config.path.clone());
    Offer { granted: Some(Metrics { directory, mode }), missing: None }
}

fn missing(reason: &'static str, message: String) -> Missing {
    Missing { condition: "MetricsExported", reason, message }
}
