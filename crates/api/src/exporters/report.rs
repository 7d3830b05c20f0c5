//! What came of an exporter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bytes of a container's termination message that Kubernetes keeps.
pub const LONGEST_MESSAGE: usize = 4096;

/// What came of one of a job's exporters, in the job's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExporterStatus {
    /// The exporter: its container's name.
    pub name: String,
    /// What it says itself.
    #[serde(flatten)]
    pub report: ExporterReport,
}

/// What came of an exporter: its termination message, one line of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExporterReport {
    /// What each sink took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<SinkReport>,
    /// Bytes that were lost before any sink could be offered them.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
    /// Why, or what else went wrong first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Paths that it was to take files from, and of which there was none until the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
}

/// What a sink took. Each item is in one of the three numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SinkReport {
    /// The sink's name.
    pub name: String,
    /// Items that it has.
    pub sent: u64,
    /// Items that still waited when the exporter had to end.
    pub waiting: u64,
    /// Items that it refused, or that had to make room.
    pub lost: u64,
    /// The first reason why an item waited or was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ExporterReport {
    /// The termination message: one line, with reasons and paths cut so that it is never too long.
    pub fn message(&self) -> String {
        let text = |report: &Self| serde_json::to_string(report).expect("numbers and strings serialise");
        let mut report = self.clone();
        for longest in [400, 100, 20, 0] {
            let whole = text(&report);
            if whole.len() <= LONGEST_MESSAGE {
                return whole;
            }
            let reasons = report.sinks.iter_mut().map(|sink| &mut sink.reason).chain([&mut report.reason]);
            for reason in reasons.flatten() {
                reason.truncate(reason.floor_char_boundary(longest));
            }
            report.unmatched.truncate(longest / 20);
            for path in &mut report.unmatched {
                path.truncate(path.floor_char_boundary(longest));
            }
        }
        // Sixteen sinks with names of 63 characters need less than half of it.
        report.sinks.truncate(16);
        text(&report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_give_way_and_numbers_stay() {
        let sink = SinkReport {
            name: "s".repeat(63),
            sent: 1,
            waiting: 2,
            lost: 3,
            reason: Some("ü\"\u{1}".repeat(300)),
        };
        let (reason, unmatched) = (Some("x".repeat(9000)), vec!["/logs/*".repeat(99); 64]);
        let report = ExporterReport { sinks: vec![sink; 16], lost_bytes: 7, reason, unmatched };
        let message = report.message();
        assert!(message.len() <= LONGEST_MESSAGE, "{}", message.len());
        let read: ExporterReport = serde_json::from_str(&message).unwrap();
        assert_eq!((read.sinks.len(), read.sinks[15].lost, read.lost_bytes), (16, 3, 7));
    }

    #[test]
    fn what_is_nothing_is_left_out() {
        let sinks = vec![SinkReport { name: "search".to_owned(), sent: 5, ..SinkReport::default() }];
        let report = ExporterReport { sinks, ..ExporterReport::default() };
        assert_eq!(report.message(), r#"{"sinks":[{"name":"search","sent":5,"waiting":0,"lost":0}]}"#);
    }
}
