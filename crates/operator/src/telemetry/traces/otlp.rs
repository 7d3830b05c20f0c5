//! Spans as an OTLP request, in its JSON encoding.

use bk_metrics::{family::Labels, otlp::attributes};
use serde_json::{Value, json};

use super::span::Span;
use crate::VERSION;

/// A span that nothing outside is waited for in.
const INTERNAL: u8 = 1;

/// The status of a span in which something went wrong.
const ERROR: u8 = 2;

/// Where requests go.
pub(super) fn url(endpoint: &str) -> String {
    let base = endpoint.trim().trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// The body of a request to `/v1/traces`.
pub(super) fn request(spans: &[Span]) -> Value {
    let resource = Labels::from(
        [("service.name", "buildkite-operator"), ("service.version", VERSION)]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let spans: Vec<Value> = spans.iter().map(written).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(&resource) },
        "scopeSpans": [{ "scope": { "name": "buildkite-operator" }, "spans": spans }],
    }] })
}

fn written(span: &Span) -> Value {
    let mut written = json!({
        "traceId": span.trace.id(),
        "spanId": span.trace.span(span.number),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": span.from.as_nanosecond().to_string(),
        "endTimeUnixNano": span.to.as_nanosecond().to_string(),
        "attributes": attributes(&span.attributes),
    });
    if span.is_within() {
        written["parentSpanId"] = span.trace.span(0).into();
    }
    if let Some(error) = &span.error {
        written["status"] = json!({ "code": ERROR, "message": error });
    }
    written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bk_api::{BuildJob, BuildJobStatus, Verdict, VerdictCode};
    use bk_plan::timeline::{Timeline, Witnessed, stamp};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::telemetry::traces::span;

    #[test]
    fn a_job_is_one_trace_from_its_queue_to_its_end() {
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        let mut job: BuildJob = serde_json::from_value(json!({
            "apiVersion": "buildkite-operator.dev/v1alpha1", "kind": "BuildJob",
            "metadata": { "name": "a", "namespace": "ci", "creationTimestamp": "2027-01-15T08:00:01Z" },
            "spec": { "buildkite": {
                "jobUUID": "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a", "queue": "linux", "pipeline": "app", "build": 7,
            } },
        }))
        .unwrap();
        stamp(&mut job, begin, begin + Duration::from_millis(500));
        let status = BuildJobStatus {
            started_at: Some(Time(begin + Duration::from_secs(2))),
            finished_at: Some(Time(begin + Duration::from_secs(6))),
            exit_status: Some(3),
            verdict: Some(Verdict::new(VerdictCode::CommandFailed, "the command ended with status 3")),
            ..BuildJobStatus::default()
        };
        let timeline = Timeline::of(&job, &status, None, &Witnessed::default());
        insta::assert_json_snapshot!(request(&span::of_job(&job, &status, &timeline)));
    }
}
