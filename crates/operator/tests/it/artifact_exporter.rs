//! The artifact exporter as the process that runs in a pod, and the page about it.

use std::{fs, process::Command};

use bk_api::{
    config::{ArtifactExporterConfig, Config, unknown_field},
    exporters::{ArtifactExporter, ArtifactExporterDocument, DOCUMENT_VARIABLE, ExporterReport},
};

use crate::documents::{blocks, check_defaults, yaml};

const PAGE: &str = include_str!("../../../../docs/artifacts.md");

#[test]
fn it_ends_with_the_job_and_succeeds_whatever_happens() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(at("artifacts")).unwrap();
    fs::write(at("artifacts/a"), "1").unwrap();
    fs::write(at("job-ended"), "1").unwrap();
    let document = ArtifactExporterDocument {
        directory: at("artifacts"),
        job_ended: vec![at("other-mark"), at("job-ended")],
        environments: at("environments"),
        drain: at("drain"),
        drained: at("drained"),
        agent: at("agent"),
        drain_seconds: 1,
        grace_seconds: 5,
    };
    let status = Command::new(env!("CARGO_BIN_EXE_buildkite-operator"))
        .args(["artifact-exporter", "--termination-log", &at("termination-log")])
        .env_clear()
        .env(DOCUMENT_VARIABLE, serde_json::to_string(&document).unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let report: ExporterReport =
        serde_json::from_str(&fs::read_to_string(at("termination-log")).unwrap()).unwrap();
    let sink = &report.sinks[0];
    assert_eq!((sink.sent, sink.waiting), (0, 1));
    let reason = format!("there is no session of the job in {} yet", at("environments"));
    assert_eq!(sink.reason, Some(reason));
}

#[test]
fn the_page_shows_what_is_understood() {
    let [job, configuration] = &blocks(PAGE, "yaml")[..] else { panic!("a job and a configuration") };
    let data = serde_json::from_value(yaml(configuration)).unwrap();
    let config = Config::from_data(&data).unwrap_or_else(|error| panic!("{error}")).artifacts;
    assert_eq!(config, ArtifactExporterConfig { enabled: true, ..ArtifactExporterConfig::default() });
    let job = &yaml(job)["artifactExporter"];
    let understood: ArtifactExporter = serde_json::from_value(job.clone()).unwrap();
    assert_eq!((unknown_field(job, &understood), understood.enabled), (None, true));
    let report: ExporterReport = serde_json::from_str(&blocks(PAGE, "json")[0]).unwrap();
    assert_eq!(report.sinks[0].lost, 1);
}

#[test]
fn the_page_has_every_field_and_its_default() {
    check_defaults(PAGE, &serde_json::to_value(ArtifactExporterConfig::default()).unwrap());
}
