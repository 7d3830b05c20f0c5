use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// What is found, a line each.
fn found(text: &str, context: &Context) -> String {
    let line = |finding: &Finding| {
        let Finding { line, column, level, message, .. } = finding;
        format!("{line}:{column}: {}: {message}", level.as_str())
    };
    lint(text, context, Strangers::Refuse).iter().map(line).collect::<Vec<_>>().join("\n")
}

fn configured(data: &[(&str, &str)]) -> Context {
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Context { config: Some(Config::from_data(&data).expect("a configuration")), ..Context::default() }
}

/// Each is the text, and what is found in it.
#[rstest]
#[case::no_yaml("steps:\n- command: [a\n- wait\n", "2:12: error: invalid YAML: unclosed bracket")]
#[case::no_pipeline(
    "step: []\n",
    "1:1: error: this is neither a pipeline, which has `steps`, nor a manifest"
)]
#[case::a_word("make test\n", "1:1: error: this is neither a pipeline")]
#[case::no_list("steps: make\n", "1:8: error: steps: steps must be a list, not a string")]
#[case::unknown_step("steps:\n- wiat\n", "2:3: error: steps[0]: unknown step \"wiat\"")]
#[case::unknown_kind(
    "steps:\n- label: x\n  comand: make\n",
    "3:3: error: steps[0].comand: unknown attribute comand; did you mean command?"
)]
#[case::unknown_attribute(
    "steps:\n- command: make\n  artifact_path: x\n",
    "3:3: error: steps[0].artifact_path: unknown attribute artifact_path; did you mean artifact_paths?"
)]
#[case::in_a_group(
    "steps:\n- group: g\n  steps:\n  - command: a\n    retries: 3\n",
    "5:5: error: steps[0].steps[0].retries: unknown attribute retries"
)]
#[case::matrix(
    "steps:\n- command: echo {{matrix.so}}\n  matrix: {setup: {os: [linux]}}\n",
    "2:3: error: steps[0]: {{matrix.so}} names no dimension of the matrix"
)]
#[case::condition("steps:\n- command: a\n  if: build.branch = 'x'\n", "3:7: error: steps[0].if: ")]
#[case::the_same_key(
    "steps:\n- {command: a, key: x}\n- {command: b, key: x}\n",
    "3:21: error: steps[1]: the key `x` is taken by the step on line 2"
)]
#[case::no_such_key(
    "steps:\n- {command: a, key: build}\n- {command: b, depends_on: biuld}\n",
    "3:28: warning: steps[1]: no step in this file has the key `biuld`; did you mean `build`?"
)]
fn what_buildkite_would_refuse(#[case] text: &str, #[case] expected: &str) {
    let found = found(text, &Context::default());
    assert!(found.starts_with(expected), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn each_step_has_its_own_problem() {
    let text = "steps:\n- comand: a\n- wait\n- group: g\n  steps:\n  - lable: x\n    command: b\n  - command: c\n    bogus: 1\n";
    insta::assert_snapshot!(found(text, &Context::default()), @r"
    2:3: error: steps[0].comand: unknown attribute comand; did you mean command?
    6:5: error: steps[2].steps[0].lable: unknown attribute lable; did you mean label?
    9:5: error: steps[2].steps[1].bogus: unknown attribute bogus
    ");
}

const PLUGINS: &str = r"
env:
  BK_OPERATOR_LOG_PATH: /var/log
steps:
- command: one
  env: {BK_OPERATOR_TIMEOUT: soon}
- command: two
  plugins:
  - docker#v5: {image: x}
  - buildkite-operator#v0.0.1:
      imge: golang
      resources:
        request: {cpu: 2}
- command: three
  plugins:
  - kubernetes:
      podSpecPach: {}
      podSpec:
        containers:
        - image: golang:1.25
          resorces: {}
          env:
          - {name: A, value: 1}
";

#[test]
fn plugins_and_options_are_read_as_the_operator_does() {
    insta::assert_snapshot!(found(PLUGINS, &Context::default()), @r"
    3:3: error: BK_OPERATOR_LOG_PATH: there is no such option; did you mean `BK_OPERATOR_LOG_PATHS`?
    6:30: error: BK_OPERATOR_TIMEOUT: `soon` must be a positive duration such as 90m or 1h30m
    11:7: error: buildkite-operator plugin: imge: there is no such option; did you mean `image`?
    13:9: error: buildkite-operator plugin: resources.request: there is no such field
    17:7: error: kubernetes plugin: podSpecPach: unknown key `podSpecPach`; did you mean `podSpecPatch`?
    21:11: error: kubernetes plugin: podSpec.containers[0].resorces: unknown key `resorces`; did you mean `resources`?
    ");
}

#[rstest]
#[case::image(
    "steps:\n- command: a\n  image: 'UPPER case'\n",
    "3:10: error: pod.spec.containers[container-0].image: "
)]
#[case::image_of_the_pipeline(
    "image: 'a b'\nsteps:\n- command: a\n",
    "1:8: error: pod.spec.containers[container-0].image: "
)]
#[case::image_of_a_container(
    "steps:\n- plugins:\n  - kubernetes:\n      podSpec:\n        containers:\n        - {image: golang, command: [a]}\n        - {image: 'a b', command: [b]}\n",
    "7:19: error: pod.spec.containers[container-1].image: "
)]
#[case::a_volume_that_is_not_there(
    "steps:\n- plugins:\n  - kubernetes:\n      podSpec:\n        containers:\n        - image: golang\n          command: [a]\n          volumeMounts: [{name: cache, mountPath: /cache}]\n",
    "6:11: error: pod.spec.containers[container-0]"
)]
#[case::a_matrix_in_an_option(
    "steps:\n- command: a\n  matrix: [1h, never]\n  env: {BK_OPERATOR_TIMEOUT: '{{matrix}}'}\n",
    "4:30: error: BK_OPERATOR_TIMEOUT: `never` must be a positive duration"
)]
#[case::words(
    "steps:\n- plugins:\n  - kubernetes:\n      podSpec:\n        containers:\n        - image: alpine\n          command: [sh, -c, make]\n",
    "7:25: warning: kubernetes plugin: each element of `command` is a line of a script, so `-c` would be run as a command"
)]
fn what_the_operator_would_refuse(#[case] text: &str, #[case] expected: &str) {
    let found = found(text, &Context::default());
    assert!(found.starts_with(expected), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[rstest]
#[case::steps("- command: a\n- wait\n- block: b\n- input: c\n- trigger: d\n")]
#[case::variables(
    "steps:\n- command: a\n  image: $IMAGE\n  parallelism: $COUNT\n  agents: {queue: \"${QUEUE:-x}\"}\n"
)]
#[case::a_variable_of_its_own("env: {TAG: '1.25'}\nsteps:\n- command: a\n  image: golang:$TAG\n")]
#[case::what_may_exist(
    "steps:\n- command: a\n  env: {BK_OPERATOR_BUILD_ENVIRONMENT: go, BK_OPERATOR_RESOURCE_CLASS: large}\n- plugins: [{kubernetes: {podTemplate: standard}}]\n  command: b\n"
)]
#[case::words_by_vector(
    "steps:\n- plugins:\n  - kubernetes:\n      commandParams: {interposer: vector}\n      podSpec: {containers: [{image: alpine, command: [sh, -c, make]}]}\n"
)]
#[case::other_documents("apiVersion: v1\nkind: Service\n---\nsteps: [wait]\n---\n")]
#[case::anchors(".common: &common {command: a}\nsteps:\n- <<: *common\n  label: b\n- *common\n")]
fn what_is_right_is_let_be(#[case] text: &str) {
    assert_eq!(found(text, &Context::default()), "");
}

#[rstest]
#[case("{queue: linx}", "warning: the operator does not serve the queue `linx`; did you mean `linux`?")]
#[case("{queue: windows}", "warning: the operator does not serve the queue `windows`; it serves linux, gpu")]
#[case(
    "{queue: gpu, gpu: h100}",
    "warning: the operator does not offer `gpu=h100` in the queue `gpu`; its tags: gpu=a100"
)]
#[case("{queue: linux, resource_class: hug}", "error: spec.buildkite.agentQueryRules[1]: ")]
#[case("{}", "warning: the step names no queue and waits in the cluster's default one")]
fn with_the_configuration_queues_and_classes_are_known(#[case] agents: &str, #[case] expected: &str) {
    let context = configured(&[
        ("job_spawner_config", "queues: [{key: linux}, {key: gpu, tags: [gpu=a100]}]"),
        ("resource_classes", "huge: {}"),
    ]);
    let found = found(&format!("steps:\n- command: a\n  agents: {agents}\n"), &context);
    let (place, message) = found.split_once(": ").expect("something is found");
    assert_eq!(place, "3:11", "{found}");
    assert!(message.starts_with(expected), "{found}");
}

#[test]
fn what_is_forbidden_is_found_where_it_is_set() {
    let context = configured(&[("job_spawner_config", "{queue: q, forbid: [image, kubernetes]}")]);
    let text = "agents: {queue: q}\nsteps:\n- command: a\n  image: golang\n- command: b\n  plugins:\n  - kubernetes: {podSpec: {}}\n";
    insta::assert_snapshot!(found(text, &context), @r"
    4:10: error: the operator's configuration forbids this queue's jobs to set the step's image
    7:17: error: the operator's configuration forbids this queue's jobs to set kubernetes plugin
    ");
}

#[test]
fn with_all_environments_others_are_unknown() {
    let environment = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildEnvironment\nmetadata: {name: go}\nspec: {image: golang}\n";
    let context = Context { surroundings: surroundings(environment), complete: true, ..Context::default() };
    let text = "steps:\n- command: a\n  env: {BK_OPERATOR_BUILD_ENVIRONMENT: go}\n- command: b\n  env:\n    BK_OPERATOR_BUILD_ENVIRONMENT: goo\n";
    insta::assert_snapshot!(found(text, &context), @r#"6:36: error: spec.environment: there is no BuildEnvironment "goo" in namespace "default""#);
}

const MANIFESTS: &str = r"
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: a}
spec:
  comand: make
  timeout: 5
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: b}
spec:
  command: make
  workload: Jobs
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: c}
spec:
  command: make
  kubernetes:
    podSpec:
      containers:
      - imagee: golang
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: d}
spec:
  image: golang
  env: {A: b}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildEnvironment
metadata: {name: e}
spec:
  image: golang
  extraContainers:
  - environment: e
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: RepoMirror
metadata: {name: f}
spec: {interval: 1}
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJobb
---
apiVersion: v1
kind: ConfigMap
metadata: {name: buildkite-operator-config}
data:
  pod_config: |
    agentimage: x
---
apiVersion: buildkite-operator.dev/v1alpha1
kind: BuildJob
metadata: {name: g}
spec: {environment: go, image: golang}
";

#[test]
fn manifests_are_held_against_their_definitions_and_tried_out() {
    insta::assert_snapshot!(found(MANIFESTS, &Context::default()), @r#"
    6:3: error: spec.comand: there is no such field; did you mean `command`?
    7:12: error: spec.timeout: must be a string, not a number
    14:13: error: spec.workload: must be one of Pod, Job; did you mean `Job`?
    24:9: error: spec.kubernetes.podSpec.containers[0].imagee: unknown key `imagee`; did you mean `image`?
    31:8: error: spec.env: must be a list, not a map
    39:5: error: spec.extraContainers[0]: e: "e" would bring itself: a cycle
    44:7: error: spec: `url` is missing
    44:8: error: spec.interval: there is no such field; did you mean `intervalSeconds`?
    47:7: error: kind: buildkite-operator.dev has no `BuildJobb`; did you mean `BuildJob`?
    53:3: error: ConfigMap buildkite-operator-config, key `pod_config`: line 1 column 1: unknown field `agentimage`; did you mean `agentImage`?
    59:7: error: spec.command: there is nothing to run in `container-0`: neither it nor the job nor its environment has a command
    59:32: error: spec: `environment` and `image` exclude one another: an environment names its image
    "#);
}

/// As `kubectl get --output yaml` prints them.
#[test]
fn objects_of_a_list_count() {
    let environment = "{apiVersion: buildkite-operator.dev/v1alpha1, kind: BuildEnvironment, metadata: {name: go}, spec: {imag: a}}";
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {environment}\n");
    let found = found(&list, &Context::default());
    assert!(
        found.contains("4:102: error: spec.imag: there is no such field; did you mean `image`?"),
        "{found}"
    );
    assert_eq!(surroundings(&list.replace("imag", "image")).environments.len(), 1);
}

#[test]
fn what_a_directory_holds_besides_is_let_be() {
    assert_eq!(lint("name: chart\n", &Context::default(), Strangers::Ignore), []);
}

/// Text that is nearly something of ours: its words in any order.
fn nearly() -> impl Strategy<Value = String> {
    let words = [
        "steps:",
        "- ",
        "command:",
        "wait",
        "group:",
        "matrix:",
        "env:",
        "plugins:",
        "kubernetes:",
        "podSpec:",
        "containers:",
        "image:",
        "buildkite-operator:",
        "BK_OPERATOR_IMAGE:",
        "agents:",
        "queue:",
        "key:",
        "[",
        "]",
        "{",
        "}",
        "\"",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "\n      ",
        "&a",
        "*a",
        "<<:",
        "|",
        "$X",
        "${X:-y}",
        "{{matrix}}",
        "1",
        "~",
        "---\n",
        "apiVersion: buildkite-operator.dev/v1alpha1\n",
        "kind: BuildJob\n",
        "kind: BuildEnvironment\n",
        "spec:",
        "metadata:",
        "name:",
        "→",
        "depends_on:",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_makes_it_panic(text in nearly(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for text in [text, String::from_utf8_lossy(&bytes).into_owned()] {
            for finding in lint(&text, &Context::default(), Strangers::Refuse) {
                prop_assert!(finding.line >= 1 && finding.column >= 1);
            }
        }
    }
}
