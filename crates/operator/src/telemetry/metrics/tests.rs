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
    metrics.broker.registered("used", Duration::from_millis(7));
    metrics.broker.ended("NodeLost", false);
    metrics.broker.turned_away();
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
        "buildkite_operator_registrations_total{outcome=\"used\"} 1",
        "buildkite_operator_jobs_ended_for_agents_total{verdict=\"NodeLost\",outcome=\"ended\"} 1",
        "buildkite_operator_broker_connections_refused_total 1",
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

/// The next number of a protobuf message.
fn number(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().expect("it is complete");
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// The fields of a protobuf message: their numbers, and their bytes where they are messages or texts.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = number(&mut message);
        let length = match key & 7 {
            0 => {
                number(&mut message);
                0
            }
            1 => 8,
            2 => usize::try_from(number(&mut message)).unwrap(),
            5 => 4,
            other => panic!("there is no type {other}"),
        };
        let (bytes, rest) = message.split_at(length);
        message = rest;
        found.push((key >> 3, bytes));
    }
    found
}

/// Native histograms are there for those who ask, and classic ones beside them. The numbers are those of Prometheus' `metrics.proto`.
#[test]
fn the_binary_form_has_histograms_of_both_kinds() {
    const NAME: u64 = 1;
    const METRIC: u64 = 4;
    const HISTOGRAM: u64 = 7;
    const PARTS: [(u64, &str); 3] = [(3, "classic buckets"), (12, "native spans"), (13, "native buckets")];
    let page = metrics().page(Form::Protobuf);
    let mut families = Vec::new();
    let mut rest = page.as_slice();
    while !rest.is_empty() {
        let length = usize::try_from(number(&mut rest)).unwrap();
        let (family, others) = rest.split_at(length);
        families.push(fields(family));
        rest = others;
    }
    let named = |family: &&Vec<(u64, &[u8])>| {
        family.iter().any(|(field, text)| *field == NAME && *text == b"buildkite_operator_job_wait_seconds")
    };
    let family = families.iter().find(named).expect("there is such a metric");
    let metric = family.iter().find(|(field, _)| *field == METRIC).expect("it was measured");
    let inside = fields(metric.1);
    let histogram = inside.iter().find(|(field, _)| *field == HISTOGRAM).expect("it is a histogram");
    let parts: BTreeSet<u64> = fields(histogram.1).into_iter().map(|(field, _)| field).collect();
    for (part, what) in PARTS {
        assert!(parts.contains(&part), "it has no {what}: {parts:?}");
    }
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
