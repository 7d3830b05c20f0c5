//! Each field of both resources: what it changes in the pod.

use std::collections::BTreeSet;

use bk_api::BuildJob;
use bk_plan::{pod::render, surroundings::Surroundings};
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;

use super::{difference, surroundings};
use crate::fixtures::{job, pod_settings};

fn pod(job: &BuildJob, found: &Surroundings) -> Pod {
    render(job, 0, found, &pod_settings()).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with the snapshot of that name, which also shows what was written.
fn check(name: &str, written: &str, difference: &str) {
    insta::with_settings!({ description => written, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(name, difference);
    });
}

const ENVIRONMENTS: &str = "
go: { image: golang:1.25 }
postgres: { image: postgres:18, command: [postgres] }
";

/// Fields of a BuildJob, each beside a command and nothing else.
#[rstest]
#[case("source", "source: { repo: https://example.com/rocket.git, commit: abc123, branch: main }")]
#[case("env", "env: [{ name: GREETING, value: hello }]")]
#[case("plugins", "plugins: [{ 'docker#v5': { image: node } }]")]
#[case("environment", "environment: go")]
#[case("image", "image: golang:1.13")]
#[case(
    "init-containers",
    "initContainers: [{ environment: go, name: prepare }, { container: { name: fetch, image: curl, args: [-O, https://example.com] } }]"
)]
#[case("extra-containers-before", "extraContainers: [{ environment: postgres }]")]
#[case(
    "extra-containers-with",
    "extraContainers: [{ environment: postgres, startup: with }, { name: report, startup: with, container: { image: junit } }]"
)]
#[case(
    "extra-containers-ready",
    "extraContainers: [{ name: db, container: { image: redis, readinessProbe: { tcpSocket: { port: 6379 }, periodSeconds: 2, successThreshold: 2 } } }]"
)]
#[case(
    "node-requirements",
    "nodeRequirements: [{ key: kubernetes.io/arch, values: [amd64] }, { key: gpu, operator: Exists }, { key: cpus, operator: Gt, values: ['8'] }]"
)]
#[case(
    "node-preferences",
    "nodePreferences: [{ weight: 50, requirements: [{ key: disk, values: [ssd] }] }, { requirements: [{ key: spot, operator: DoesNotExist }] }]"
)]
#[case("tolerations", "tolerations: [{ key: dedicated, operator: Equal, value: ci, effect: NoSchedule }]")]
#[case(
    "tolerations-of-lost-nodes",
    "tolerations: [{ key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 600 }]"
)]
#[case("resources", "resources: { requests: { cpu: 2, memory: 4Gi }, limits: { memory: 4Gi } }")]
#[case(
    "workspace-volume",
    "workspaceVolume: { ephemeral: { volumeClaimTemplate: { spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 10Gi } } } } } }"
)]
#[case("workspace-sub-path-expr", "workspaceSubPathExpr: builds/$(BUILDKITE_PIPELINE_SLUG)")]
fn a_build_jobs(#[case] name: &str, #[case] field: &str) {
    let found = surroundings(ENVIRONMENTS);
    let without = job("spec: { command: make }");
    let with = job(&format!("spec:\n  command: make\n  {field}\n"));
    check(&format!("job-{name}"), field, &difference::between(&pod(&without, &found), &pod(&with, &found)));
}

/// Fields of a BuildEnvironment that a job runs in.
#[rstest]
#[case("image-pull-policy", "imagePullPolicy: Always")]
#[case("working-dir", "workingDir: /src")]
#[case("env", "env: [{ name: GOFLAGS, value: -mod=vendor }]")]
#[case("env-from", "envFrom: [{ secretRef: { name: npm } }]")]
#[case("resources", "resources: { requests: { cpu: 2 } }")]
#[case(
    "volumes",
    "volumes: [{ name: cache, persistentVolumeClaim: { claimName: go-cache } }]\n  volumeMounts: [{ name: cache, mountPath: /root/.cache }]"
)]
#[case("security-context", "securityContext: { runAsUser: 1000, allowPrivilegeEscalation: false }")]
#[case(
    "container",
    "container: { ports: [{ containerPort: 8080 }], lifecycle: { preStop: { exec: { command: [sync] } } } }"
)]
#[case("service-account-name", "serviceAccountName: builder")]
#[case("image-pull-secrets", "imagePullSecrets: [{ name: registry }]")]
#[case("node-requirements", "nodeRequirements: [{ key: kubernetes.io/arch, values: [arm64] }]")]
#[case("node-preferences", "nodePreferences: [{ requirements: [{ key: disk, values: [ssd] }] }]")]
#[case("tolerations", "tolerations: [{ key: arm64, operator: Exists }]")]
#[case("init-containers", "initContainers: [{ environment: login }]")]
#[case("extra-containers", "extraContainers: [{ environment: postgres }, { environment: reporter }]")]
fn a_primary_environments(#[case] name: &str, #[case] field: &str) {
    let found = |field: &str| {
        surroundings(&format!(
            "go:\n  image: golang:1.25\n  {field}\nlogin: {{ image: vault, serviceAccountName: vault }}\n\
             postgres: {{ image: postgres:18 }}\nreporter: {{ image: junit, startup: with }}"
        ))
    };
    let job = job("spec: { command: make, environment: go }");
    let difference = difference::between(&pod(&job, &found("")), &pod(&job, &found(field)));
    check(&format!("environment-{name}"), field, &difference);
}

/// What an environment runs, where the job has no command for it.
#[rstest]
#[case("command", "command: [go, vet]")]
#[case("args", "args: [-v, ./...]")]
fn an_environments_beside_a_job(#[case] name: &str, #[case] field: &str) {
    let found = |field: &str| surroundings(&format!("go:\n  image: golang:1.25\n  {field}\n"));
    let job = job("spec: { command: make, extraContainers: [{ environment: go }] }");
    let difference = difference::between(&pod(&job, &found("")), &pod(&job, &found(field)));
    check(&format!("environment-{name}"), field, &difference);
}

/// They are where git runs, and nowhere else; those of an environment beside the job are nobody's.
#[rstest]
#[case::primary("environment: private", &["checkout"])]
#[case::beside("extraContainers: [{ environment: private, startup: with }]", &[])]
fn git_credentials_of_an_environment(#[case] field: &str, #[case] expected: &[&str]) {
    let with = |credentials: &str| surroundings(&format!("private: {{ image: golang, {credentials} }}"));
    let job = job(&format!("spec:\n  command: make\n  source: {{ repo: git@example.com:a/b }}\n  {field}\n"));
    let credentials = "gitCredentials: { sshSecret: deploy-key, httpsSecret: git-password }";
    let difference = difference::between(&pod(&job, &with("")), &pod(&job, &with(credentials)));
    assert_eq!(difference.contains("secretName: deploy-key"), !expected.is_empty(), "{difference}");
    let changed: BTreeSet<_> = difference
        .lines()
        .filter_map(|line| line.split_once("spec.containers[")?.1.split(']').next())
        .collect();
    assert_eq!(changed, expected.iter().copied().collect());
    if !expected.is_empty() {
        check("environment-git-credentials", credentials, &difference);
    }
}

/// When an environment beside the job starts is its own to say, unless the job says otherwise.
#[test]
fn the_startup_of_an_environment() {
    let with = |startup: &str| surroundings(&format!("report: {{ image: junit, {startup} }}"));
    let job = job("spec: { command: make, extraContainers: [{ environment: report }] }");
    let field = "startup: with";
    let difference = difference::between(&pod(&job, &with("")), &pod(&job, &with(field)));
    check("environment-startup", field, &difference);
}

/// The same environment, in each of the places that it can have.
#[rstest]
#[case("primary", "{ command: make, environment: tool }")]
#[case("init-container", "{ command: make, initContainers: [{ environment: tool }] }")]
#[case("extra-container", "{ command: make, extraContainers: [{ environment: tool }] }")]
#[case(
    "all-of-them",
    "{ command: make, environment: tool, initContainers: [{ environment: tool }], extraContainers: [{ environment: tool, name: beside, startup: with }] }"
)]
fn an_environment_as(#[case] name: &str, #[case] spec: &str) {
    let found = surroundings(
        "
tool:
  image: tool:3
  command: [tool, --serve]
  args: [a b]
  env: [{ name: MODE, value: fast }]
  volumes: [{ name: cache, emptyDir: {} }]
  volumeMounts: [{ name: cache, mountPath: /cache }]
  tolerations: [{ key: tools, operator: Exists }]
",
    );
    let without = job("spec: { command: make }");
    let with = job(&format!("spec: {spec}"));
    check(&format!("as-{name}"), spec, &difference::between(&pod(&without, &found), &pod(&with, &found)));
}
