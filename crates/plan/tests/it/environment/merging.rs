//! What becomes of what several of job, environments and pod spec say.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use rstest::rstest;
use serde_json::json;

use super::{container, json_of, spec, try_spec};
use crate::fixtures::pod_settings;

fn values(spec: &PodSpec, container_name: &str, variable: &str) -> Vec<String> {
    let env = container(spec, container_name).env.iter().flatten();
    env.filter(|var| var.name == variable).map(|var| var.value.clone().unwrap_or_default()).collect()
}

const GO: &str = "go: { image: golang, command: [go, test], args: [./..., -run, One Two], env: [{ name: A, value: environment }] }";

/// The job's command goes before its environment's, which is a list of words.
#[rstest]
#[case::of_the_job("{ command: make, environment: go }", "make")]
#[case::of_the_environment("{ environment: go }", "go test ./... -run 'One Two'")]
#[case::of_the_environment_if_the_jobs_is_empty(
    "{ command: '', environment: go }",
    "go test ./... -run 'One Two'"
)]
#[case::of_the_pod_spec(
    "{ command: make, environment: go, kubernetes: { podSpec: { containers: [{ command: [go vet] }] } } }",
    "go vet"
)]
fn the_command(#[case] job: &str, #[case] expected: &str) {
    assert_eq!(values(&spec(job, GO), "container-0", "BUILDKITE_COMMAND"), [expected]);
}

#[rstest]
#[case::an_image_alone("{ image: busybox }", "container-0")]
#[case::arguments_alone("{ environment: args }", "container-0")]
#[case::a_container_alone(
    "{ kubernetes: { podSpec: { containers: [{ name: mine, image: busybox }] } } }",
    "mine"
)]
fn a_standalone_job_needs_something_to_run(#[case] job: &str, #[case] name: &str) {
    let refused = try_spec(job, "args: { image: a, args: [b] }", &pod_settings()).unwrap_err();
    let expected = format!(
        "spec.command: there is nothing to run in `{name}`: neither it nor the job nor its environment has a command"
    );
    assert_eq!(refused.to_string(), expected);
}

/// Each variable is there once, so nobody has to know which of two wins.
#[rstest]
#[case::of_the_environment("{ command: make, environment: go }", &["environment"])]
#[case::of_the_job("{ command: make, environment: go, env: [{ name: A, value: job }] }", &["job"])]
#[case::of_the_pod_spec(
    "{ command: make, environment: go, kubernetes: { podSpec: { containers: [{ env: [{ name: A, value: pod }] }] } } }",
    &["pod"]
)]
fn a_variable(#[case] job: &str, #[case] expected: &[&str]) {
    assert_eq!(values(&spec(job, GO), "container-0", "A"), expected);
}

/// What comes with a container precedes it; the job's own come behind its environment's, and before those of its pod spec.
#[test]
fn containers_start_in_an_order_in_which_each_finds_what_it_needs() {
    let environments = "
go: { image: golang, initContainers: [{ environment: login }], extraContainers: [{ environment: postgres }] }
login: { image: login, extraContainers: [{ environment: vault }] }
vault: { image: vault }
postgres: { image: postgres, initContainers: [{ environment: schema }] }
schema: { image: schema }
reporter: { image: reporter, startup: with }
cache: { image: cache }
";
    let spec = spec(
        "
  command: make
  environment: go
  initContainers: [{ name: fetch, container: { image: curl } }]
  extraContainers: [{ environment: reporter }, { environment: cache }]
  kubernetes: { podSpec: { initContainers: [{ name: theirs, image: a }] } }
",
        environments,
    );
    let shown = |container: &Container| match container.restart_policy.as_deref() {
        None => container.name.clone(),
        Some(policy) => format!("{} ({policy})", container.name),
    };
    let first: Vec<_> = spec.init_containers.iter().flatten().map(shown).collect();
    let expected = "vault (Always), login, schema, postgres (Always), fetch, cache (Always), theirs";
    assert_eq!(first.join(", "), expected);
    let beside: Vec<_> = spec.containers.iter().map(shown).collect();
    assert_eq!(beside.join(", "), "container-0, agent, reporter");
}

#[test]
fn what_is_the_same_is_there_once() {
    let shared = "volumes: [{ name: data, emptyDir: {} }], serviceAccountName: ci, imagePullSecrets: [{ name: registry }], \
                  tolerations: [{ key: ci, operator: Exists }], nodeRequirements: [{ key: pool, values: [ci] }]";
    let environments = format!("a: {{ image: a, {shared} }}\nb: {{ image: b, {shared} }}");
    let job = "
  command: make
  environment: a
  extraContainers: [{ environment: b }]
  tolerations: [{ key: ci, operator: Exists }]
  kubernetes: { podSpec: { serviceAccountName: ci, volumes: [{ name: data, emptyDir: {} }], imagePullSecrets: [{ name: registry }] } }
";
    let spec = spec(job, &environments);
    assert_eq!(spec.volumes.iter().flatten().filter(|volume| volume.name == "data").count(), 1);
    assert_eq!(spec.service_account_name.as_deref(), Some("ci"));
    assert_eq!(json_of(&spec.image_pull_secrets), json!([{ "name": "registry" }]));
    let tolerated = spec.tolerations.iter().flatten().filter(|own| own.key.as_deref() == Some("ci"));
    assert_eq!(tolerated.count(), 1);
    let affinity = json_of(&spec.affinity);
    let terms =
        &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(
        *terms,
        json!([{ "matchExpressions": [{ "key": "pool", "operator": "In", "values": ["ci"] }] }])
    );
}

#[rstest]
#[case::names_of_two_uses(
    "{ command: make, extraContainers: [{ environment: a }, { environment: a }] }",
    "spec.extraContainers[1]: a: the container's name `a` is taken by spec.extraContainers[0]: a; give it a `name` of its own"
)]
#[case::names_of_what_two_bring(
    "{ command: make, environment: brings-a, extraContainers: [{ environment: a }] }",
    "spec.extraContainers[0]: a: the container's name `a` is taken by spec.environment: brings-a → extraContainers[0]: a; give it a `name` of its own"
)]
#[case::the_operators_names(
    "{ command: make, extraContainers: [{ name: agent, environment: a }] }",
    "spec.extraContainers[0]: a: the container's name `agent` is taken by the operator; give it a `name` of its own"
)]
#[case::names_of_commands(
    "{ command: make, extraContainers: [{ name: container-0, environment: a }] }",
    "spec.extraContainers[0]: a: the container's name `container-0` is taken by the job's own pod; give it a `name` of its own"
)]
#[case::ports(
    "{ command: make, extraContainers: [{ environment: web }, { name: other, environment: web }] }",
    "spec.extraContainers[1]: web → container.ports[0]: TCP port 80 is taken by spec.extraContainers[0]: web: the containers of a pod share their ports"
)]
#[case::ports_of_the_primary(
    "{ command: make, environment: web, extraContainers: [{ name: a, container: { image: a, ports: [{ containerPort: 80 }] } }] }",
    "spec.extraContainers[0].container.ports[0]: TCP port 80 is taken by spec.environment: web: the containers of a pod share their ports"
)]
#[case::volumes_of_the_pod_spec(
    "{ command: make, environment: volume, kubernetes: { podSpec: { volumes: [{ name: data, hostPath: { path: /data } }] } } }",
    "spec.environment: volume → volumes[0]: `data` is another volume in the job's own pod; choose another name"
)]
#[case::the_operators_volumes(
    "{ command: make, environment: shim }",
    "spec.environment: shim → volumes[0]: `buildkite-shim` is another volume in every job pod; choose another name"
)]
#[case::accounts(
    "{ command: make, environment: account, kubernetes: { podSpec: { serviceAccountName: theirs } } }",
    "spec.environment: account → serviceAccountName: the pod cannot be both `ours` and `theirs`, which is in spec.kubernetes.podSpec"
)]
fn clashes_are_refused(#[case] job: &str, #[case] expected: &str) {
    let environments = "
a: { image: a }
brings-a: { image: b, extraContainers: [{ environment: a }] }
web: { image: web, container: { ports: [{ containerPort: 80 }] } }
volume: { image: a, volumes: [{ name: data, emptyDir: {} }] }
shim: { image: a, volumes: [{ name: buildkite-shim, emptyDir: {} }] }
account: { image: a, serviceAccountName: ours }
";
    assert_eq!(try_spec(job, environments, &pod_settings()).unwrap_err().to_string(), expected);
}

/// An init container is gone when the others start, and so are its ports.
#[test]
fn init_containers_may_have_the_ports_of_others() {
    let web = "web: { image: web, container: { ports: [{ containerPort: 80 }] } }";
    let job = "{ command: make, environment: web, initContainers: [{ environment: web }] }";
    assert!(try_spec(job, web, &pod_settings()).is_ok());
}

#[test]
fn services_that_are_switched_off_disturb_nobody() {
    let job = "{ command: make, logExporter: {}, artifactExporter: { enabled: false }, metricsExporter: {}, repoMirror: {} }";
    assert!(try_spec(job, "{}", &pod_settings()).is_ok());
}
