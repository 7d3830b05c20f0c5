//! BuildJob → Pod, as a reviewer would want to see it.

mod directories;
mod exporters;
mod mirrors;
mod properties;
mod registration;
mod settings;

use bk_api::BuildJob;
use bk_plan::{
    facts::PodFacts,
    pod::{PodSettings, managed_containers, render},
    surroundings::Surroundings,
};
use insta::assert_yaml_snapshot;
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use rstest::rstest;

use crate::fixtures::{job, kept, pod_settings};

fn pod(job: &BuildJob) -> Pod {
    let pod = render(job, 0, &Surroundings::default(), &pod_settings()).expect("the job can be rendered");
    assert_eq!(kept(&pod), PodFacts::of(&pod), "the cache keeps what matters");
    pod
}

#[test]
fn a_plain_job_is_one_container_beside_the_agent() {
    let job = job("
metadata: { name: buildkite-0198f0a0-0000-7000-8000-000000000001, namespace: ci, uid: 8f2c, generation: 1 }
spec:
  buildkite:
    jobUUID: 0198f0a0-0000-7000-8000-000000000001
    pipeline: rocket
    build: 7
    step: test
    url: https://buildkite.com/acme/rocket/builds/7
    priority: 5
    agentQueryRules: [queue=linux, arch=arm64]
  command: make test
  source: { repo: https://example.com/rocket.git, commit: abc123, branch: main }
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn another_image_gets_a_checkout_beside_it() {
    let job = job("
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  command: cargo test
  image: rust:1
  env: [{ name: RUST_LOG, value: debug }]
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn a_pod_spec_keeps_what_its_author_asked_for() {
    let job = job("
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  kubernetes:
    podSpec:
      serviceAccountName: deployer
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 300
      nodeSelector: { disk: fast }
      volumes: [{ name: cache, hostPath: { path: /var/cache } }]
      containers:
      - image: golang:1
        command: [go test]
        args: [./..., -run, Test One]
        resources: { requests: { cpu: 500m }, limits: { memory: 2Gi } }
        volumeMounts: [{ name: cache, mountPath: /cache }]
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn several_containers_take_turns() {
    let job = job("
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  command: make
  kubernetes:
    podSpec:
      containers:
      - { image: alpine, command: [echo one] }
      - { name: second, image: busybox, command: [echo two] }
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn init_containers_stay_as_they_are() {
    let job = job("
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  command: make
  kubernetes:
    podSpec:
      initContainers:
      - { name: prepare, image: busybox, command: [sh, -c, 'echo ready'] }
");
    let pod = pod(&job);
    assert_yaml_snapshot!(pod.spec.unwrap().init_containers, @"
    - command:
        - sh
        - \"-c\"
        - echo ready
      image: busybox
      name: prepare
    ");
}

#[test]
fn a_standalone_job_checks_out_its_source() {
    let job = job("
spec:
  command: make test
  source: { repo: https://example.com/rocket.git, commit: abc123, branch: main }
  plugins: [{ 'docker#v5': { image: node } }]
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn a_standalone_job_without_source_checks_nothing_out() {
    let job = job("
spec:
  command: date
  image: busybox
  env: [{ name: BUILDKITE_SHELL, value: /bin/ash -c }]
");
    assert_yaml_snapshot!(pod(&job));
}

#[test]
fn another_attempt_is_another_pod() {
    let job = job("
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  command: make
");
    let pod = render(&job, 2, &Surroundings::default(), &pod_settings()).unwrap();
    assert_eq!(pod.metadata.name.as_deref(), Some("nightly-try2"));
    assert_eq!(pod.metadata.annotations.unwrap()["buildkite-operator.dev/attempt"], "2");
    let commands = pod.spec.unwrap().containers.into_iter().map(|c| c.command.unwrap().join(" "));
    insta::assert_snapshot!(commands.collect::<Vec<_>>().join("\n"), @"
    /buildkite/shim/buildkite-shim job --run 8f2c-2 --name container-0 -- /workspace/buildkite-agent kubernetes-bootstrap
    /buildkite/shim/buildkite-shim agent --run 8f2c-2 --jobs container-0 --link -- buildkite-agent start
    ");
}

/// The shim takes 1 to 63 of `[a-z0-9.-]`.
#[rstest]
#[case::as_long_as_can_be("metadata: { name: NAME, uid: 0198f0a0-0000-7000-8000-000000000001 }", 52)]
#[case::longer_than_may_be("metadata: { name: NAME, uid: 0198f0a0-0000-7000-8000-000000000001 }", 253)]
#[case::not_stored("metadata: { name: NAME }", 52)]
fn a_run_has_an_id_that_the_shim_takes(#[case] metadata: &str, #[case] length: usize) {
    let job = job(&format!("{}\nspec: {{ command: date }}", metadata.replace("NAME", &"n".repeat(length))));
    let mut ids = Vec::new();
    for attempt in 0..3 {
        let spec = render(&job, attempt, &Surroundings::default(), &pod_settings()).unwrap().spec.unwrap();
        let line = spec.containers[0].command.clone().unwrap();
        ids.push(line.into_iter().skip_while(|word| word != "--run").nth(1).unwrap());
    }
    assert!(ids.iter().all(|id| (1..=63).contains(&id.len())), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

/// Whoever names a service account wants its token; `serviceAccount` is the old spelling.
#[rstest]
#[case::none("{}", None, Some(false))]
#[case::none_but_a_token("{ automountServiceAccountToken: true }", None, Some(true))]
#[case::named("{ serviceAccountName: deployer }", Some("deployer"), None)]
#[case::named_as_of_old("{ serviceAccount: deployer }", Some("deployer"), None)]
#[case::named_twice("{ serviceAccountName: deployer, serviceAccount: other }", Some("deployer"), None)]
#[case::named_without_a_name("{ serviceAccountName: '', serviceAccount: '' }", None, Some(false))]
#[case::named_without_its_token(
    "{ serviceAccount: deployer, automountServiceAccountToken: false }",
    Some("deployer"),
    Some(false)
)]
fn a_service_account(#[case] pod_spec: &str, #[case] name: Option<&str>, #[case] automount: Option<bool>) {
    let job = job(&format!("spec: {{ command: date, kubernetes: {{ podSpec: {pod_spec} }} }}"));
    let spec = pod(&job).spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), name);
    assert_eq!(spec.service_account, None);
    assert_eq!(spec.automount_service_account_token, automount);
}

/// An agent without a queue joins the default one. Jobs from a queue have its rule; those by hand have none.
#[rstest]
#[case::from_a_queue(
    "queue: linux, agentQueryRules: [queue=linux, arch=arm64]",
    "bk-operator",
    "queue=linux,arch=arm64"
)]
#[case::by_hand("", "bk-operator", "queue=bk-operator")]
#[case::by_hand_for_another_queue("queue: gpu", "bk-operator", "queue=gpu")]
#[case::by_hand_with_rules("agentQueryRules: [arch=arm64]", "bk-operator", "arch=arm64,queue=bk-operator")]
#[case::from_the_default_queue("queue: _default, agentQueryRules: [arch=arm64]", "bk-operator", "arch=arm64")]
#[case::by_hand_for_the_default_queue("", "~", "")]
fn an_agent_joins_its_jobs_queue(#[case] buildkite: &str, #[case] queue: &str, #[case] expected: &str) {
    let uuid = "0198f0a0-0000-7000-8000-000000000001";
    let job = job(&format!("spec: {{ buildkite: {{ jobUUID: {uuid}, {buildkite} }}, command: make }}"));
    let settings = PodSettings { queue: queue.to_owned(), ..pod_settings() };
    let pod = render(&job, 0, &Surroundings::default(), &settings).unwrap();
    let agent = pod.spec.unwrap().containers.into_iter().find(|c| c.name == "agent").unwrap();
    assert_eq!(values(&agent, "BUILDKITE_AGENT_TAGS"), [expected]);
    let labels = pod.metadata.labels.unwrap();
    let labelled = labels.iter().filter(|(key, _)| key.starts_with("tag.buildkite.com/")).count();
    assert_eq!(labelled, expected.split_terminator(',').count());
}

#[test]
fn the_shell_of_a_standalone_job_may_be_chosen() {
    let shell = |job: &BuildJob| -> Vec<String> {
        let spec = pod(job).spec.unwrap();
        values(managed_containers(&spec).next().unwrap(), "BUILDKITE_SHELL")
    };
    assert_eq!(shell(&job("spec: { command: date }")), ["/bin/sh -ec"]);
    let chosen = "spec: { command: date, env: [{ name: BUILDKITE_SHELL, value: /bin/bash -c }] }";
    assert_eq!(shell(&job(chosen)), ["/bin/bash -c"]);
}

#[rstest]
#[case::unknown_key(
    "{ podSpecPach: {} }",
    "spec.kubernetes.podSpecPach: unknown key `podSpecPach`; did you mean `podSpecPatch`?"
)]
#[case::unknown_field(
    "{ podSpec: { containers: [{ image: a }, { image: b, comand: [x] }] } }",
    "spec.kubernetes.podSpec.containers[1].comand: unknown key `comand`; did you mean `command`?"
)]
#[case::unknown_nested_field(
    "{ podSpec: { containers: [{ image: a, resources: { request: { cpu: 1 } } }] } }",
    "spec.kubernetes.podSpec.containers[0].resources.request: unknown key `request`; did you mean `requests`?"
)]
#[case::wrong_type(
    "{ podSpec: { containers: [{ image: a, env: { A: b } }] } }",
    "spec.kubernetes.podSpec.containers[0].env: invalid type: map, expected a sequence"
)]
#[case::not_an_object("{ podSpec: [] }", "spec.kubernetes.podSpec: invalid type: sequence, expected PodSpec")]
#[case::nul_in_args(
    r#"{ podSpec: { containers: [{ image: a, command: [x], args: ["\0"] }] } }"#,
    "pod.spec.containers[container-0].command: `command` and `args` cannot have a NUL byte in them"
)]
#[case::agents_name(
    "{ podSpec: { containers: [{ name: agent, image: a }] } }",
    "spec.kubernetes.podSpec.containers[0].name: the name `agent` is taken by the operator's own container; \
     choose another, or change that one with `podSpecPatch`"
)]
#[case::checkouts_name(
    "{ podSpec: { containers: [{ image: a }, { name: checkout, image: a }] } }",
    "spec.kubernetes.podSpec.containers[1].name: the name `checkout` is taken by the operator's own container; \
     choose another, or change that one with `podSpecPatch`"
)]
#[case::same_name_twice(
    "{ podSpec: { containers: [{ name: a, image: a }, { name: a, image: b }] } }",
    "pod.spec.containers[a]: there are two containers called `a`; choose another name"
)]
#[case::a_default_name(
    "{ podSpec: { containers: [{ name: container-1, image: a }, { image: b }] } }",
    "pod.spec.containers[container-1]: there are two containers called `container-1`; choose another name"
)]
#[case::an_init_containers_name(
    "{ podSpec: { initContainers: [{ name: container-0, image: a }] } }",
    "pod.spec.containers[container-0]: there are two containers called `container-0`; choose another name"
)]
#[case::the_shims_volume(
    "{ podSpec: { volumes: [{ name: buildkite-shim, emptyDir: {} }] } }",
    "pod.spec.volumes[buildkite-shim]: there are two volumes called `buildkite-shim`; choose another name"
)]
#[case::no_such_volume(
    "{ podSpec: { containers: [{ volumeMounts: [{ name: cache, mountPath: /cache }] }] } }",
    "pod.spec.containers[container-0]: `/cache` is to show the volume `cache`, but the pod has no volume of that name"
)]
#[case::containers_twice(
    "{ podSpec: {}, containers: [{ image: a }] }",
    "spec.kubernetes.containers: give either `podSpec` or `containers`, which is short for `podSpec.containers`"
)]
#[case::no_such_template(
    "{ podTemplate: fast }",
    "spec.kubernetes.podTemplate: there is no PodTemplate `fast` in namespace `ci`"
)]
fn what_is_wrong_is_said_with_its_path(#[case] kubernetes: &str, #[case] expected: &str) {
    let job = job(&format!("spec: {{ command: x, kubernetes: {kubernetes} }}"));
    assert_eq!(render(&job, 0, &Surroundings::default(), &pod_settings()).unwrap_err().to_string(), expected);
}

/// The values that a container gives to a variable; more than one means that somebody is overruled.
fn values(container: &Container, name: &str) -> Vec<String> {
    let given = |var: &EnvVar| (var.name == name).then(|| var.value.clone().unwrap_or_default());
    container.env.iter().flatten().filter_map(given).collect()
}
