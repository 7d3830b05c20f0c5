//! The metrics exporter as the process that runs in a pod, and the page about it.

use std::{collections::BTreeMap, fs, process::Command};

use bk_api::{
    config::{Config, MetricsExporterConfig, unknown_field},
    exporters::{
        DOCUMENT_VARIABLE, ExporterReport, MetricsDelivery, MetricsExporter, MetricsExporterDocument,
        MetricsMode,
    },
};
use serde_json::json;

use crate::documents::{blocks, check_defaults, yaml};

const PAGE: &str = include_str!("../../../../docs/job-metrics.md");

/// What the exporter reports of a job that has written these files and ended; nobody scrapes it.
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
fn report(files: &[(&str, &str)]) -> ExporterReport {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(at("metrics")).unwrap();
    for (name, text) in files {
        fs::write(at("metrics/") + name, text).unwrap();
    }
    fs::write(at("job-ended"), "0").unwrap();
    let port = std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
    let document = MetricsExporterDocument {
        directory: at("metrics"),
        labels: BTreeMap::new(),
        job_ended: vec![at("other-mark"), at("job-ended")],
        delivery: MetricsDelivery::Scrape { port },
        interval_seconds: 1,
        drain_seconds: 1,
        grace_seconds: 5,
    };
    let status = Command::new(env!("CARGO_BIN_EXE_buildkite-operator"))
        .args(["metrics-exporter", "--termination-log", &at("termination-log")])
        .env_clear()
        .env(DOCUMENT_VARIABLE, serde_json::to_string(&document).unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    serde_json::from_str(&fs::read_to_string(at("termination-log")).unwrap()).unwrap()
}

#[test]
fn it_ends_with_the_job_and_succeeds_whatever_happens() {
    let report = report(&[("a.prom", "a 1\n"), ("b.prom", "b\n")]);
    let sink = &report.sinks[0];
    assert_eq!((sink.name.as_str(), sink.sent, sink.waiting, sink.lost), ("scrape", 0, 1, 1));
    assert_eq!(sink.reason.as_deref(), Some("nobody has scraped the last values"));
}

#[test]
fn what_the_page_writes_is_a_good_file() {
    let scripts = blocks(PAGE, "sh");
    let text = scripts.iter().find_map(|script| script.split_once("<<'END'\n")).unwrap().1;
    let text = text.split_once("END\n").unwrap().0;
    let sink = report(&[("tests.prom", text)]).sinks.remove(0);
    assert_eq!((sink.waiting, sink.lost), (1, 0), "{sink:?}");
}

#[test]
fn the_page_shows_what_is_understood() {
    let [job, configuration, scraper] = &blocks(PAGE, "yaml")[..] else {
        panic!("a job, two configurations")
    };
    let data = serde_json::from_value(yaml(configuration)).unwrap();
    let config = Config::from_data(&data).unwrap_or_else(|error| panic!("{error}")).metrics;
    assert!(config.push.is_some() && config.otlp.is_some(), "{config:?}");
    let job = &yaml(job)["metricsExporter"];
    let understood: MetricsExporter = serde_json::from_value(job.clone()).unwrap();
    assert_eq!((unknown_field(job, &understood), understood.mode), (None, Some(MetricsMode::Push)));
    assert!(yaml(scraper)["scrape_configs"][0]["job_name"].is_string());
    let report: ExporterReport = serde_json::from_str(&blocks(PAGE, "json")[0]).unwrap();
    assert_eq!(report.sinks[0].lost, 1);
}

#[test]
fn the_page_has_every_field_and_its_default() {
    let mut defaults = serde_json::to_value(MetricsExporterConfig::default()).unwrap();
    defaults["push"] = json!("none");
    defaults["otlp"] = json!("none");
    check_defaults(PAGE, &defaults);
}
