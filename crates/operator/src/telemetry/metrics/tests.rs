use std::collections::BTreeSet;

use axum::http::{Method, Uri};
use bk_api::{BuildJob, BuildJobSpec, BuildJobStatus, Verdict, VerdictCode};
use bk_plan::{
    intake::Skip,
    timeline::{Timeline, Witnessed},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

/// Numbers of every kind.
fn metrics() -> Metrics {
    let metrics = Metrics::default();
    metrics.queues.serve("linux");
    metrics.queues.listed("linux", 12, 3, Places { taken: 25, limit: 30, free: 5 });
    metrics.queues.skipped("linux", Skip::QueueLimit);
    metrics.queues.failed("gpu", Duration::from_millis(1500));
    metrics.leads(true);
    let begin = Timestamp::from_second(1_800_000_000).unwrap();
    let mut job = BuildJob::new("a", BuildJobSpec::default());
    bk_plan::timeline::stamp(&mut job, begin, begin + Duration::from_millis(300));
    let status = BuildJobStatus {
        attempt: 1,
        started_at: Some(Time(begin + Duration::from_secs(2))),
        finished_at: Some(Time(begin + Duration::from_secs(6))),
        verdict: Some(Verdict::new(VerdictCode::CommandFailed, "no")),
        ..BuildJobStatus::default()
    };
    let timeline = Timeline::of(&job, &status, None, &Witnessed::default());
    metrics.jobs.ended("linux", &status, &timeline);
    metrics.config_applied(true, std::time::SystemTime::now());
    metrics.jobs.round(Duration::from_millis(3), false);
    let (get, uri) = (Method::GET, Uri::from_static("/api/v1/namespaces/ci/pods"));
    metrics.calls.kubernetes(&calls::Request::of(&get, &uri), Some(200), Duration::from_millis(7));
    metrics.calls.buildkite("list", "ok".to_owned(), Duration::from_millis(80));
    metrics
}

fn page(form: Form) -> String {
    String::from_utf8(metrics().page(form)).unwrap()
}

#[test]
fn numbers_are_told_by_queue_and_reason() {
    let page = page(Form::OpenMetrics);
    for line in [
        "buildkite_operator_build_info{version=\"0.1.0\"} 1",
        "buildkite_operator_leader 1",
        "buildkite_operator_jobs_taken_total{queue=\"linux\"} 3",
        "buildkite_operator_jobs_skipped_total{queue=\"linux\",reason=\"queue_limit\"} 1",
        "buildkite_operator_jobs_waiting{queue=\"linux\"} 12",
        "buildkite_operator_jobs_in_flight{queue=\"linux\"} 25",
        "buildkite_operator_slots_limit{queue=\"linux\"} 30",
        "buildkite_operator_slots_free{queue=\"linux\"} 5",
        "buildkite_operator_queue_connected{queue=\"linux\"} 1",
        "buildkite_operator_queue_connected{queue=\"gpu\"} 0",
        "buildkite_operator_intake_failures_total{queue=\"linux\"} 0",
        "buildkite_operator_intake_failures_total{queue=\"gpu\"} 1",
        "buildkite_operator_intake_pause_seconds{queue=\"gpu\"} 1.5",
        "buildkite_operator_jobs_ended_total{queue=\"linux\",verdict=\"CommandFailed\",fault=\"user\"} 1",
        "buildkite_operator_pods_replaced_total{queue=\"linux\"} 1",
        "buildkite_operator_job_step_seconds_sum{queue=\"linux\",step=\"queue\"} 0.3",
        "buildkite_operator_job_step_seconds_sum{queue=\"linux\",step=\"run\"} 4.0",
        "buildkite_operator_job_wait_seconds_sum{queue=\"linux\"} 2.0",
        "buildkite_operator_reconcile_failures_total 1",
        "buildkite_operator_kubernetes_requests_total{verb=\"list\",resource=\"pods\",code=\"200\"} 1",
        "buildkite_operator_buildkite_calls_total{call=\"list\",code=\"ok\"} 1",
        "buildkite_operator_exporter_items_total{exporter=\"log-exporter\",outcome=\"lost\"} 0",
        "buildkite_operator_trace_spans_total{outcome=\"lost\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
}

#[test]
fn a_queue_that_is_served_no_longer_keeps_its_counters_only() {
    let metrics = Metrics::default();
    metrics.queues.serve("linux");
    metrics.queues.listed("linux", 12, 3, Places { taken: 25, limit: 30, free: 5 });
    metrics.queues.forget("linux");
    let page = String::from_utf8(metrics.page(Form::Text)).unwrap();
    let left: Vec<&str> = page.lines().filter(|line| line.contains("linux")).collect();
    let expected = [
        "buildkite_operator_jobs_taken_total{queue=\"linux\"} 3",
        "buildkite_operator_listings_total{queue=\"linux\"} 1",
        "buildkite_operator_intake_failures_total{queue=\"linux\"} 0",
    ];
    assert_eq!(left, expected);
}

/// Native histograms are there for those who ask.
#[test]
fn the_binary_form_has_histograms_of_both_kinds() {
    let page = metrics().page(Form::Protobuf);
    let has = |part: &[u8]| page.windows(part.len()).any(|window| window == part);
    assert!(has(b"buildkite_operator_job_wait_seconds"));
    assert!(page.len() > 1000);
}

/// The metrics that a page or a document names, without the suffixes of histograms.
fn names(text: &str, prefix: &str, begin: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let name = |line: &str| line.split([' ', '{', '`']).next().unwrap_or_default().to_owned();
    lines.map(name).filter(|name| name.starts_with(begin)).collect()
}

#[test]
fn every_metric_is_in_the_document_and_no_other() {
    let document = include_str!("../../../../../docs/metrics.md");
    let page = page(Form::Text);
    let told = names(document, "| `", "buildkite_operator_");
    assert_eq!(told, names(&page, "# TYPE ", "buildkite_operator_"));
    // Those of the mirrors come from another process.
    assert!(!names(document, "| `", "buildkite_repo_mirror_").is_empty());
}
