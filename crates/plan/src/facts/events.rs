//! What the cluster says about a pod beyond its status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// Reasons of events that are no warnings, and matter all the same: whether an image is on its way.
const TELLING: [&str; 2] = ["Pulling", "Pulled"];

/// Something that happened to a pod, as an Event has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEvent {
    /// The word for it, e.g. `FailedMount`.
    pub reason: String,
    /// The sentence.
    pub message: String,
    /// Whether something was wrong.
    pub warning: bool,
    /// When it happened last.
    pub at: Option<Timestamp>,
}

impl PodEvent {
    /// Reads an Event, if it can matter to a job.
    pub fn of(event: &Event) -> Option<Self> {
        let reason = event.reason.clone().unwrap_or_default();
        let warning = event.type_.as_deref() == Some("Warning");
        if !warning && !TELLING.contains(&reason.as_str()) {
            return None;
        }
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let at = series.or(event.event_time.as_ref()).map(|time| time.0);
        Some(Self {
            reason,
            message: event.message.as_deref().unwrap_or_default().trim().to_owned(),
            warning,
            at: event.last_timestamp.as_ref().map(|time| time.0).or(at),
        })
    }
}
