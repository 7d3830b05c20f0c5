//! What the exporters of artifacts and metrics change in a pod, and what they are told.

use bk_api::{
    BuildJob,
    config::{Config, PodConfig},
    exporters::{ArtifactExporterDocument, DOCUMENT_VARIABLE, MetricsDelivery, MetricsExporterDocument},
};
use bk_plan::{
    exporters::missing,
    pod::{PodSettings, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, Pod};
use rstest::rstest;
use serde::de::DeserializeOwned;

use crate::{
    environment::difference,
    fixtures::{job, pod_settings},
};

const JOB: &str = "buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001, pipeline: rocket, build: 7, step: test }, image: rust:1, command: make";

const RECEIVERS: &str =
    "{push: {url: 'http://gateway', grouping: [pipeline], secret: gateway}, extraLabels: {cluster: a}, MORE}";

/// Settings with these in the artifact exporter's and the metrics exporter's configurations.
fn settings(artifacts: &str, metrics: &str) -> PodSettings {
    let data = [
        ("artifact_exporter_config", format!("{{{artifacts}}}")),
        ("metrics_exporter_config", RECEIVERS.replace("MORE", metrics)),
    ];
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let config = Config::from_data(&data).unwrap_or_else(|error| panic!("{error}"));
    let pods = PodConfig { operator_image: Some("operator:1".to_owned()), ..pod_settings().config };
    PodSettings { artifacts: config.artifacts, metrics: config.metrics, config: pods, ..pod_settings() }
}

fn with(wish: &str) -> BuildJob {
    job(&format!("spec: {{ {JOB}, {wish} }}"))
}

fn pod(job: &BuildJob, settings: &PodSettings) -> Pod {
    render(job, 0, &Surroundings::default(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let containers = &pod.spec.as_ref().expect("a spec").containers;
    containers.iter().find(|container| container.name == name)
}

fn variable(container: &Container, name: &str) -> Option<String> {
    container.env.iter().flatten().find(|var| var.name == name)?.value.clone()
}

fn document<T: DeserializeOwned>(pod: &Pod, name: &str) -> T {
    let text = variable(container(pod, name).expect("an exporter"), DOCUMENT_VARIABLE).expect("a document");
    serde_json::from_str(&text).expect("the document can be read")
}

/// What each wish changes, for a job in an image of its own.
#[rstest]
#[case("artifacts", "artifactExporter: { enabled: true }")]
#[case("artifacts-of-a-directory", "artifactExporter: { enabled: true, path: /out }")]
#[case("metrics-scraped", "metricsExporter: { enabled: true }")]
#[case("metrics-pushed", "metricsExporter: { enabled: true, mode: push, path: /var/prom }")]
#[case("metrics-by-otlp", "metricsExporter: { enabled: true, mode: otlp }")]
fn what_a_wish_changes(#[case] name: &str, #[case] wish: &str) {
    let settings = settings("", "otlp: {url: 'http://collector:4318', secret: collector}");
    let (without, with) =
        (pod(&with("artifactExporter: { enabled: false }"), &settings), pod(&with(wish), &settings));
    insta::with_settings!({ description => wish, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(format!("exporter-of-{name}"), difference::between(&without, &with));
    });
}

#[rstest]
#[case::nobody_wants_it("env: []", "", false)]
#[case::all_have_it("env: []", "enabled: true", true)]
#[case::this_one_does_not_want_it("artifactExporter: { enabled: false }", "enabled: true", false)]
#[case::this_one_wants_it("artifactExporter: { enabled: true }", "", true)]
fn who_has_an_artifact_exporter(#[case] wish: &str, #[case] config: &str, #[case] expected: bool) {
    let pod = pod(&with(wish), &settings(config, ""));
    assert_eq!(container(&pod, "artifact-exporter").is_some(), expected);
    assert_eq!(variable(container(&pod, "container-0").unwrap(), "BUILDKITE_SHIM_RUN").is_some(), expected);
}

#[test]
fn the_hook_and_the_artifact_exporter_mean_the_same_files() {
    let pod = pod(&with("artifactExporter: { enabled: true }"), &settings("drainSeconds: 7", ""));
    let document: ArtifactExporterDocument = document(&pod, "artifact-exporter");
    let of_hook = |name: &str| variable(container(&pod, "container-0").unwrap(), name).unwrap();
    let run = format!(
        "{}/.buildkite-operator/{}",
        of_hook("BUILDKITE_SHIM_WORKSPACE"),
        of_hook("BUILDKITE_SHIM_RUN")
    );
    assert_eq!((document.drain, document.drained), (format!("{run}/drain"), format!("{run}/drained")));
    assert_eq!(document.environments, of_hook("BUILDKITE_SHIM_ENVIRONMENTS"));
    assert_eq!((document.drain_seconds, document.directory.as_str()), (7, "/artifacts"));
}

#[test]
fn labels_are_those_of_the_job() {
    let metrics = pod(&with("metricsExporter: { enabled: true, mode: push }"), &settings("", ""));
    let document: MetricsExporterDocument = document(&metrics, "metrics-exporter");
    let labels: Vec<_> = document.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels[0], "build=7");
    assert_eq!(labels[2..], ["cluster=a", "pipeline=rocket", "step=test"]);
    let MetricsDelivery::Push { grouping, credentials, .. } = document.delivery else { panic!("pushed") };
    assert_eq!(grouping.into_iter().collect::<Vec<_>>(), [("pipeline".to_owned(), "rocket".to_owned())]);
    assert_eq!(credentials.as_deref(), Some("/etc/buildkite-operator/metrics"));
}

#[rstest]
#[case(
    "artifactExporter: { enabled: true, path: out }",
    "spec.artifactExporter.path: `out` must be an absolute path without `.`, `..`, `:` and empty parts"
)]
#[case(
    "metricsExporter: { enabled: true, path: /workspace/metrics }",
    "spec.metricsExporter.path: `/workspace/metrics` must not be in /workspace, which is used for something else"
)]
#[case(
    "artifactExporter: { enabled: true, path: /x }, metricsExporter: { enabled: true, path: /x }",
    "spec: metrics-exporter and artifact-exporter cannot share /x"
)]
fn directories_that_cannot_be_are_refused(#[case] wish: &str, #[case] expected: &str) {
    let error = render(&with(wish), 0, &Surroundings::default(), &settings("", "")).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[rstest]
#[case("artifactExporter: { enabled: true }", None, "NoBuildkite")]
#[case("metricsExporter: { enabled: true, mode: otlp }", Some("job"), "NoReceiver")]
fn what_a_job_does_not_get(#[case] wish: &str, #[case] buildkite: Option<&str>, #[case] reason: &str) {
    let job = match buildkite {
        Some(_) => with(wish),
        None => job(&format!("spec: {{ command: make, {wish} }}")),
    };
    let reasons: Vec<_> = missing(&job.spec, &settings("", "")).map(|missing| missing.reason).collect();
    assert_eq!(reasons, [reason]);
    pod(&job, &settings("", ""));
}

#[test]
fn a_volume_of_the_jobs_own_is_used() {
    let wish = "artifactExporter: { enabled: true }, kubernetes: { podSpec: { volumes: [{ name: mine, emptyDir: {} }], \
                containers: [{ image: a, command: [make], volumeMounts: [{ name: mine, mountPath: /artifacts/ }] }] } }";
    let pod = pod(&with(wish).clone(), &settings("", ""));
    let mounts = container(&pod, "artifact-exporter").unwrap().volume_mounts.clone().unwrap();
    let mount = mounts.iter().find(|mount| mount.mount_path == "/artifacts/").unwrap();
    assert_eq!((mount.name.as_str(), mount.read_only), ("mine", Some(true)));
    let volumes = pod.spec.unwrap().volumes.unwrap();
    assert!(volumes.iter().all(|volume| volume.name != "artifacts-exporter-files"), "{volumes:?}");
}

#[test]
fn containers_beside_the_job_learn_of_its_end() {
    let sidecar = "{ name: report, startup: with, container: { image: a } }, { name: database, container: { image: b } }";
    let pod = pod(&with(&format!("extraContainers: [{sidecar}]")), &settings("", ""));
    let command = container(&pod, "container-0").unwrap().command.clone().unwrap();
    let at = |flag: &str| command.iter().position(|word| word == flag);
    assert!(at("--last").is_some(), "{command:?}");
    let file =
        Some(format!("/workspace/.buildkite-operator/{}/job-ended", command[at("--run").unwrap() + 1]));
    assert_eq!(variable(container(&pod, "report").unwrap(), "BUILDKITE_OPERATOR_JOB_ENDED"), file);
    let first = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
    assert_eq!((first.name.as_str(), variable(first, "BUILDKITE_OPERATOR_JOB_ENDED")), ("database", file));
}
