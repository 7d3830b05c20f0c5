//! `buildkite-operator plan`: the pod that a job becomes, without a cluster.

use std::path::PathBuf;

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{operator, output};

const UUID: &str = "0198f0a0-0000-7000-8000-000000000001";

/// Files for a command to read.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory of our own"))
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        path
    }

    /// The plan of a job, in JSON.
    fn plan(&self, job: &str, more: &[(&str, &str)]) -> Value {
        let mut command = operator();
        command.args(["plan", "--output=json", "--job"]).arg(self.write("job", job));
        for (flag, content) in more {
            command.arg(flag).arg(self.write(flag.trim_start_matches('-'), content));
        }
        serde_json::from_str(&output(&mut command)).expect("it prints JSON")
    }

    /// What a job is refused with.
    fn refusal(&self, job: &str, more: &[(&str, &str)]) -> String {
        let mut command = operator();
        command.args(["plan", "--job"]).arg(self.write("job", job));
        for (flag, content) in more {
            command.arg(flag).arg(self.write(flag.trim_start_matches('-'), content));
        }
        let failure = command.assert().code(1).stdout("");
        let text = String::from_utf8(failure.get_output().stderr.clone()).expect("text");
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn job(env: &Value) -> String {
    let job = json!({ "id": UUID, "command": "make test", "env": env, "agent_query_rules": ["queue=linux"], "priority": 3 });
    job.to_string()
}

/// The container of a pod that has this name.
fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let containers = pod["spec"]["containers"].as_array().expect("it has containers");
    containers.iter().find(|container| container["name"] == name).expect("it is among them")
}

#[test]
fn a_job_as_buildkite_gives_it_becomes_its_pod() {
    let plugins = json!([{ "kubernetes": { "podSpec": { "containers": [{ "image": "golang:1.25" }] } } }]);
    let env = json!({ "BUILDKITE_PIPELINE_SLUG": "shop", "BUILDKITE_PLUGINS": plugins.to_string() });
    let pod = Files::new().plan(&job(&env), &[]);
    assert_eq!(pod["metadata"]["name"], format!("buildkite-{UUID}"));
    assert_eq!(pod["metadata"]["annotations"]["buildkite.com/pipeline-slug"], "shop");
    assert_eq!(pod["metadata"]["annotations"]["buildkite.com/job-priority"], "3");
    assert_eq!(pod["metadata"]["labels"]["tag.buildkite.com/queue"], "linux");
    assert_eq!(container(&pod, "container-0")["image"], "golang:1.25");
}

#[test]
fn options_of_the_step_count() {
    let plugins =
        json!([{ "buildkite-operator#v0.0.1": { "image": "golang:1.25", "tolerations": ["spot"] } }]);
    let env = json!({ "BK_OPERATOR_IMAGE": "node:24", "BUILDKITE_PLUGINS": plugins.to_string() });
    let pod = Files::new().plan(&job(&env), &[]);
    assert_eq!(container(&pod, "container-0")["image"], "golang:1.25");
    let tolerations = pod["spec"]["tolerations"].as_array().expect("it has tolerations");
    assert!(tolerations.contains(&json!({ "key": "spot", "operator": "Exists" })), "{tolerations:?}");
}

#[test]
fn the_same_pod_is_printed_as_yaml() {
    let files = Files::new();
    let expected = files.plan(&job(&json!({})), &[]);
    let yaml = output(operator().args(["plan", "--job=-"]).write_stdin(job(&json!({}))));
    let printed: Value = serde_saphyr::from_str(&yaml).expect("it prints YAML");
    assert_eq!(printed, expected);
}

#[rstest]
#[case::a_config_map(
    "{apiVersion: v1, kind: ConfigMap, data: {job_namespace: ci, pod_config: 'agentImage: agent:7'}}"
)]
#[case::its_data("job_namespace: ci\npod_config: |\n  agentImage: agent:7\n")]
fn the_configuration_counts(#[case] config: &str) {
    let pod = Files::new().plan(&job(&json!({})), &[("--config", config)]);
    assert_eq!(pod["metadata"]["namespace"], "ci");
    assert_eq!(container(&pod, "agent")["image"], "agent:7");
}

/// An operator in a cluster knows its own image; a plan without one has to show what that one makes.
#[rstest]
#[case::of_this_release("", &[], concat!("buildkite-operator:", env!("CARGO_PKG_VERSION")))]
#[case::of_the_configuration("pod_config: 'operatorImage: mirror/operator:7'\n", &[], "mirror/operator:7")]
#[case::as_told(
    "pod_config: 'operatorImage: mirror/operator:7'\n",
    &["--operator-image=operator:8"],
    "operator:8"
)]
fn exporters_and_mirrors_are_shown(#[case] pods: &str, #[case] flags: &[&str], #[case] expected: &str) {
    let files = Files::new();
    let config = format!(
        "{pods}log_exporter_config: |\n  enabled: true\n  sinks: {{ stdout: {{ stdout: {{}} }} }}\n\
         artifact_exporter_config: 'enabled: true'\n\
         metrics_exporter_config: '{{ enabled: true, mode: scrape }}'\n\
         repo_syncer_config: '{{ layout: nodeLocal, hostPath: /var/lib/mirrors }}'\n"
    );
    let env = json!({ "BUILDKITE_REPO": "https://example.com/a.git" });
    let mut command = operator();
    command.args(["plan", "--output=json", "--job"]).arg(files.write("job", &job(&env)));
    command.arg("--config").arg(files.write("config", &config)).args(flags);
    let pod: Value = serde_json::from_str(&output(&mut command)).expect("it prints JSON");
    for name in ["log-exporter", "artifact-exporter", "metrics-exporter"] {
        assert_eq!(container(&pod, name)["image"], expected);
    }
    let before = pod["spec"]["initContainers"].as_array().expect("it has an init container");
    assert!(before.iter().any(|container| container["image"] == expected), "{before:?}");
}

#[test]
fn a_build_job_becomes_its_pod() {
    let manifest = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\n\
                    metadata: {name: nightly}\nspec: {command: make, image: golang:1.25}\n";
    let pod = Files::new().plan(manifest, &[]);
    assert_eq!(pod["metadata"]["name"], "nightly");
    assert_eq!(container(&pod, "container-0")["image"], "golang:1.25");
}

#[rstest]
#[case::plugins(json!({"BUILDKITE_PLUGINS": "["}), "BUILDKITE_PLUGINS is not a list of plugins")]
#[case::option(json!({"BK_OPERATOR_IMGE": "x"}), "BK_OPERATOR_IMGE: there is no such option; did you mean `BK_OPERATOR_IMAGE`?")]
#[case::field(
    json!({"BUILDKITE_PLUGINS": r#"[{"kubernetes": {"podSpec": {"containers": [{"image": 1}]}}}]"#}),
    "spec.kubernetes.podSpec.containers[0].image: invalid type: integer `1`, expected a string"
)]
fn what_the_job_would_be_failed_with_is_said(#[case] env: Value, #[case] expected: &str) {
    let refusal = Files::new().refusal(&job(&env), &[]);
    assert!(refusal.starts_with(&format!("error: {expected}")), "{refusal}");
    assert!(refusal.contains("InvalidSpec"), "{refusal}");
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
}

#[rstest]
#[case::no_json("{", &[], "error: job is neither JSON nor YAML: ")]
#[case::no_job("{}", &[], "error: job is neither a job of Buildkite's nor a BuildJob: missing field `id`")]
#[case::empty("", &[], "error: job is empty")]
#[case::pipeline("steps: [{command: make}]", &[], "error: job is a pipeline, and this is about one job: `lint` looks at pipelines")]
#[case::unknown_field("kind: BuildJob\napiVersion: buildkite-operator.dev/v1alpha1\nmetadata: {name: a}\nspec: {command: x, imge: y}", &[], "error: job: spec.imge: there is no such field")]
#[case::another_kind("kind: Pod", &[], "error: job holds a Pod, not a BuildJob")]
#[case::no_config(&job(&json!({})), &[("--config", "kind: Secret")], "error: config holds a Secret, not a ConfigMap")]
#[case::unknown_setting(&job(&json!({})), &[("--config", "pod_confg: ''")], "error: cannot use config: ConfigMap buildkite-operator-config: unknown key `pod_confg`")]
#[case::nothing_to_refer_to(&job(&json!({})), &[("--with", "kind: Service")], "error: with holds a Service; jobs refer to BuildEnvironments and PodTemplates only")]
fn files_that_are_not_what_they_should_be_are_named(
    #[case] job: &str,
    #[case] more: &[(&str, &str)],
    #[case] expected: &str,
) {
    let refusal = Files::new().refusal(job, more);
    assert!(refusal.starts_with(expected), "{refusal}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let failure = operator().args(["plan", "--job=/nowhere/job.json"]).assert().code(1).stdout("");
    let text = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    assert_eq!(text, "error: cannot read /nowhere/job.json: No such file or directory (os error 2)\n");
}

#[test]
fn a_job_is_held_to_the_rules_and_to_the_terms_of_its_queue() {
    let files = Files::new();
    let config = |key: &str, document: &str| json!({ key: document }).to_string();
    let rules = config(
        "validation_config",
        "rules: [{expression: 'self.spec.command != \"make test\"', message: no tests here}]",
    );
    let refusal = files.refusal(&job(&json!({})), &[("--config", &rules)]);
    assert!(refusal.contains("no tests here"), "{refusal}");

    let queues = config(
        "job_spawner_config",
        "queues: [{key: bk-operator, defaults: {image: main}}, {key: linux, defaults: {image: other}}]",
    );
    let pod = files.plan(&job(&json!({})), &[("--config", &queues)]);
    assert_eq!(container(&pod, "container-0")["image"], "other");
}
