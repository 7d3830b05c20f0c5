//! What exporters change in a pod, and what they are told.

use bk_api::{
    BuildJob,
    config::{LogExporterConfig, PodConfig},
    exporters::{DOCUMENT_VARIABLE, LogExporterDocument},
};
use bk_plan::{
    exporters::missing,
    facts::PodFacts,
    pod::{PodSettings, managed_containers, render, try_out},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, Pod};
use rstest::rstest;

use crate::{
    environment::difference,
    fixtures::{job, kept, pod_settings},
};

const SINKS: &str = "
sinks:
  search: { elasticsearch: { url: 'https://search:9200', dataStream: logs-buildkite-default, secret: search-login } }
  loki: { loki: { url: 'http://loki' } }
  archive: { file: { volume: { persistentVolumeClaim: { claimName: logs } } } }
defaultSinks: [search]
";

const JOB: &str = "buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001, pipeline: rocket, build: 7, step: test }, image: rust:1, command: make";

fn settings(more: &str) -> PodSettings {
    let logs: LogExporterConfig =
        serde_saphyr::from_str(&format!("{SINKS}{more}")).expect("the fixture is a configuration");
    let config = PodConfig { operator_image: Some("operator:1".to_owned()), ..pod_settings().config };
    PodSettings { logs, config, ..pod_settings() }
}

fn job_with(exporter: &str) -> BuildJob {
    job(&format!("spec: {{ {JOB}, logExporter: {{ {exporter} }} }}"))
}

fn pod(job: &BuildJob, settings: &PodSettings) -> Pod {
    render(job, 0, &Surroundings::default(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn exporter(pod: &Pod) -> Option<&Container> {
    let containers = &pod.spec.as_ref().expect("a spec").containers;
    containers.iter().find(|container| container.name == "log-exporter")
}

fn document(pod: &Pod) -> LogExporterDocument {
    let vars = exporter(pod).expect("an exporter").env.as_ref().expect("variables");
    let text = vars.iter().find(|var| var.name == DOCUMENT_VARIABLE).and_then(|var| var.value.clone());
    serde_json::from_str(&text.expect("a document").replace("$$(", "$(")).expect("the document can be read")
}

/// What each wish changes, for a job in an image of its own.
#[rstest]
#[case("output", "enabled: true")]
#[case("errors-to-two-sinks", "enabled: true, stderr: true, sinks: [loki, archive]")]
#[case("standard-output", "enabled: true, stdout: true")]
#[case("files", "enabled: true, paths: ['out/*.log', /workspace/a.log], volume: /var/log/job")]
fn what_a_wish_changes(#[case] name: &str, #[case] wish: &str) {
    let without = pod(&job_with("enabled: false"), &settings(""));
    let with = pod(&job_with(wish), &settings(""));
    let written = format!("logExporter: {{ {wish} }}");
    insta::with_settings!({ description => written, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(format!("log-exporter-{name}"), difference::between(&without, &with));
    });
    assert_eq!(with.spec.as_ref().unwrap().containers.last().unwrap().name, "log-exporter");
}

#[rstest]
#[case::the_job_wants_it("enabled: true", "", true)]
#[case::the_job_does_not_want_it("enabled: false", "enabled: true", false)]
#[case::the_sink_is_not_known("enabled: true, sinks: [nowhere]", "", false)]
fn who_has_an_exporter(#[case] wish: &str, #[case] config: &str, #[case] expected: bool) {
    assert_eq!(exporter(&pod(&job_with(wish), &settings(config))).is_some(), expected);
}

#[rstest]
#[case::the_configuration_wants_it("enabled: true", true)]
#[case::nobody_does("", false)]
fn jobs_that_say_nothing(#[case] config: &str, #[case] expected: bool) {
    let pod = pod(&job(&format!("spec: {{ {JOB} }}")), &settings(config));
    assert_eq!(exporter(&pod).is_some(), expected);
}

#[rstest]
#[case::all_is_there("enabled: true", settings(""), &[])]
#[case::nothing_is_asked_for("enabled: false", settings(""), &[])]
#[case::no_sinks("enabled: true", pod_settings(), &["NoLogExporter"])]
#[case::an_unknown_sink("enabled: true, sinks: [search, nowhere]", settings(""), &["UnknownSink"])]
#[case::no_image(
    "enabled: true",
    PodSettings { config: pod_settings().config, ..settings("") },
    &["NoOperatorImage"]
)]
fn what_is_missing(#[case] wish: &str, #[case] settings: PodSettings, #[case] expected: &[&str]) {
    let spec = job_with(wish).spec;
    let reasons: Vec<&str> = missing(&spec, &settings).map(|missing| missing.reason).collect();
    assert_eq!(reasons, expected);
}

#[test]
fn what_the_exporter_is_told() {
    let document = document(&pod(
        &job_with("enabled: true, stdout: true, paths: ['$(date)/*.log'], sinks: [search]"),
        &settings(""),
    ));
    assert_eq!(document.origin.pod, "nightly");
    assert_eq!((document.origin.pipeline.as_str(), document.origin.build.as_str()), ("rocket", "7"));
    assert_eq!(document.paths, ["/workspace/build/buildkite/$(date)/*.log"]);
    let outputs: Vec<_> = document.outputs.iter().map(|output| output.directory.as_str()).collect();
    assert_eq!(
        outputs,
        [
            "/workspace/.buildkite-operator/8f2c-0/output/checkout",
            "/workspace/.buildkite-operator/8f2c-0/output/container-0"
        ]
    );
    assert_eq!(document.sinks[0].directory.as_deref(), Some("/etc/buildkite-operator/sinks/search"));
    assert_eq!((document.drain_seconds, document.grace_seconds), (30, 60));
}

#[test]
fn a_sink_that_is_named_twice_is_one_sink() {
    let wish = "enabled: true, sinks: [search, loki, search, loki, loki]";
    let document = document(&pod(&job_with(wish), &settings("")));
    let names: Vec<_> = document.sinks.iter().map(|sink| sink.name.as_str()).collect();
    assert_eq!(names, ["search", "loki"], "in the order in which they are named first");
}

#[test]
fn an_exporter_is_none_of_the_jobs_containers() {
    let pod = pod(&job_with("enabled: true"), &settings(""));
    let spec = pod.spec.as_ref().unwrap();
    let managed: Vec<_> = managed_containers(spec).map(|container| container.name.as_str()).collect();
    assert_eq!(managed, ["checkout", "container-0"]);
    let facts = PodFacts::of(&pod);
    assert_eq!(facts.exporters.len(), 1);
    assert!(facts.containers().all(|container| container.name != "log-exporter"));
    assert_eq!(kept(&pod), facts, "the cache keeps what matters");
}

#[test]
fn files_on_a_volume_of_the_job_are_seen() {
    let job = job("
spec:
  command: make
  logExporter: { enabled: true, paths: [/data/logs/**/*.log] }
  kubernetes:
    podSpec:
      volumes: [{ name: data, emptyDir: {} }]
      containers: [{ image: rust:1, command: [make], volumeMounts: [{ name: data, mountPath: /data }] }]
");
    let pod = pod(&job, &settings(""));
    let mounts = exporter(&pod).unwrap().volume_mounts.clone().unwrap();
    let data = mounts.iter().find(|mount| mount.mount_path == "/data").expect("it sees the volume");
    assert_eq!((data.name.as_str(), data.read_only), ("data", Some(true)));
}

#[rstest]
#[case::by_the_job("securityContext: { runAsUser: 1234 }", 1234)]
#[case::not_as_root("securityContext: { runAsUser: 0 }", 65532)]
#[case::by_nobody("", 65532)]
fn exporters_run_as_the_jobs_user_but_never_as_root(#[case] context: &str, #[case] expected: i64) {
    let fields = if context.is_empty() { String::new() } else { format!("{context}, ") };
    let job = job(&format!(
        "spec: {{ command: make, logExporter: {{ enabled: true }}, kubernetes: {{ podSpec: {{ {fields}containers: [{{ image: rust:1, command: [make] }}] }} }} }}"
    ));
    let pod = pod(&job, &settings(""));
    let user = exporter(&pod).unwrap().security_context.as_ref().and_then(|context| context.run_as_user);
    assert_eq!(user, Some(expected));
}

#[test]
fn a_service_account_is_not_the_exporters() {
    let job = job("
spec:
  command: make
  logExporter: { enabled: true }
  kubernetes: { podSpec: { serviceAccountName: deployer, containers: [{ image: rust:1, command: [make] }] } }
");
    let pod = pod(&job, &settings(""));
    let mounts = exporter(&pod).unwrap().volume_mounts.clone().unwrap();
    assert!(mounts.iter().any(|mount| mount.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount"));
}

#[test]
fn a_patch_may_change_an_exporter() {
    let mut settings = settings("");
    let patch = serde_json::json!({ "containers": [{ "name": "log-exporter", "resources": { "limits": { "memory": "1Gi" } } }] });
    settings.config.pod_spec_patch = patch.as_object().cloned();
    let with = pod(&job_with("enabled: true"), &settings);
    let limits = exporter(&with).unwrap().resources.clone().unwrap().limits.unwrap();
    assert_eq!(limits["memory"].0, "1Gi");
    assert!(exporter(&pod(&job_with("enabled: false"), &settings)).is_none(), "a patch adds none");
}

#[test]
fn a_volume_that_is_none_is_refused_at_the_start() {
    let mut settings = settings("");
    let nonsense = "sinks: { archive: { file: { volume: { hostPaht: { path: /logs } } } } }";
    settings.logs = serde_saphyr::from_str(nonsense).expect("the fixture is a configuration");
    let refusal = try_out(&settings).unwrap_err().to_string();
    assert!(refusal.starts_with("log_exporter_config.sinks.archive.file.volume.hostPaht: "), "{refusal}");
}

#[test]
fn metrics_take_no_port_of_the_node() {
    let wish = |network: &str| {
        job(&format!(
            "spec: {{ {JOB}, metricsExporter: {{ enabled: true }}, kubernetes: {{ podSpecPatch: {{ hostNetwork: {network} }} }} }}"
        ))
    };
    let ports = |job: &BuildJob| {
        let containers = pod(job, &settings("")).spec.expect("a spec").containers;
        containers
            .into_iter()
            .find(|container| container.name == "metrics-exporter")
            .expect("an exporter")
            .ports
    };
    assert!(ports(&wish("false")).is_some());
    assert_eq!(ports(&wish("true")), None);
}
