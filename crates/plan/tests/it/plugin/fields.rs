//! Each field of the plugin, and the configuration that goes with it: what it changes in the pod of a step that runs `make` in
//! busybox.

use bk_plan::plugin;
use rstest::rstest;

use super::{check, container, spec_of, variable};
use crate::fixtures::job;

#[rstest]
#[case(
    "pod-spec",
    "podSpec: { serviceAccountName: deployer, restartPolicy: OnFailure, nodeSelector: { disk: fast }, terminationGracePeriodSeconds: 300 }"
)]
#[case(
    "pod-spec-containers",
    "podSpec: { containers: [{ command: [go test], args: [./..., -run, Test One], resources: { requests: { cpu: 2 } } }, { name: second }] }"
)]
#[case(
    "pod-spec-volumes",
    "podSpec: { volumes: [{ name: cache, hostPath: { path: /var/cache } }], containers: [{ volumeMounts: [{ name: cache, mountPath: /cache }] }] }"
)]
#[case(
    "pod-spec-init-containers",
    "podSpec: { initContainers: [{ name: prepare, image: alpine, command: [sh, -c, 'echo ready'] }] }"
)]
#[case("pod-template", "podTemplate: fast")]
#[case("pod-template-and-pod-spec", "{ podTemplate: gone, podSpec: { hostname: mine } }")]
#[case(
    "containers",
    "containers: [{ image: gradle:latest, command: [gradle], args: [jib, --image=ttl.sh/example:1h] }]"
)]
#[case("git-env-from", "{ gitEnvFrom: [{ secretRef: { name: git } }], sidecars: [{ image: redis }] }")]
#[case(
    "sidecars",
    "sidecars: [{ image: redis }, { name: db, image: postgres, command: [postgres], readinessProbe: { tcpSocket: { port: 5432 } } }]"
)]
#[case(
    "sidecars-behind-init-containers",
    "{ sidecars: [{ image: redis }], podSpec: { initContainers: [{ name: prepare, image: alpine }] } }"
)]
#[case(
    "sidecar-params",
    "{ sidecars: [{ image: redis, envFrom: [{ configMapRef: { name: own } }] }], podSpec: { volumes: [{ name: cache, emptyDir: {} }] }, sidecarParams: { envFrom: [{ secretRef: { name: redis } }], extraVolumeMounts: [{ name: cache, mountPath: /cache }] } }"
)]
#[case(
    "command-params",
    "{ podSpec: { volumes: [{ name: cache, emptyDir: {} }] }, commandParams: { envFrom: [{ secretRef: { name: s } }], extraVolumeMounts: [{ name: cache, mountPath: /cache }] } }"
)]
#[case(
    "command-params-interposer",
    "{ commandParams: { interposer: vector }, podSpec: { containers: [{ command: [one, two], args: [three, four five] }] } }"
)]
#[case(
    "extra-volume-mounts",
    "{ podSpec: { volumes: [{ name: cache, emptyDir: {} }] }, sidecars: [{ image: redis }], extraVolumeMounts: [{ name: cache, mountPath: /cache }] }"
)]
#[case(
    "mounts-of-one-path",
    "{ podSpec: { volumes: [{ name: mine, emptyDir: {} }, { name: other, emptyDir: {} }], containers: [{ volumeMounts: [{ name: mine, mountPath: /cache }] }] }, extraVolumeMounts: [{ name: other, mountPath: /cache }] }"
)]
#[case(
    "mounts-said-twice",
    "{ podSpec: { volumes: [{ name: mine, emptyDir: {} }], containers: [{ volumeMounts: [{ name: mine, mountPath: /cache }, { name: mine, mountPath: /cache }] }] }, extraVolumeMounts: [{ name: mine, mountPath: /cache }] }"
)]
#[case("metadata", "metadata: { labels: { team: rockets }, annotations: { example.com/cost: high } }")]
#[case(
    "metadata-and-the-operators-own",
    "metadata: { labels: { buildkite.com/job-uuid: x }, annotations: { buildkite.com/job-url: x, cluster-autoscaler.kubernetes.io/safe-to-evict: 'true' } }"
)]
#[case(
    "checkout-flags",
    "checkout: { checkoutFlags: -f, cleanFlags: -ffxdq, cloneFlags: --depth 1, fetchFlags: --prune, noSubmodules: true, submoduleCloneConfig: [core.autocrlf=input] }"
)]
#[case("checkout-skip", "checkout: { skip: true }")]
#[case(
    "checkout-git-mirrors",
    "checkout: { gitMirrors: { path: /mirrors, volume: { name: mirrors, hostPath: { path: /var/mirrors } }, cloneFlags: -v --mirror, lockTimeout: 60, skipUpdate: true } }"
)]
#[case("checkout-git-credentials-secret", "checkout: { gitCredentialsSecret: { secretName: urls } }")]
#[case("nothing", "{ podSpec: ~, sidecars: ~, metadata: { labels: ~ }, checkout: ~, commandParams: {} }")]
fn a_field(#[case] name: &str, #[case] plugin: &str) {
    let plugin = if plugin.starts_with('{') { plugin.to_owned() } else { format!("{{ {plugin} }}") };
    check(name, &format!("kubernetes: {plugin}"), "{}");
}

#[rstest]
#[case(
    "config-command",
    "commandParams: { envFrom: [{ secretRef: { name: step } }] }",
    "{ command: { interposer: vector, envFrom: [{ secretRef: { name: everywhere } }] } }"
)]
#[case(
    "config-command-mounts",
    "commandParams: { extraVolumeMounts: [{ name: step, mountPath: /cache }] }, podSpec: { volumes: [{ name: step, emptyDir: {} }] }",
    "{ command: { extraVolumeMounts: [{ name: everywhere, mountPath: /cache }] } }"
)]
#[case(
    "config-sidecar",
    "sidecars: [{ image: redis }]",
    "{ sidecar: { envFrom: [{ secretRef: { name: everywhere } }] } }"
)]
#[case(
    "config-metadata",
    "metadata: { labels: { team: rockets } }",
    "{ metadata: { labels: { team: nobody, site: moon }, annotations: { cluster-autoscaler.kubernetes.io/safe-to-evict: 'true' } } }"
)]
#[case(
    "config-image-pull-policy",
    "sidecars: [{ image: redis, imagePullPolicy: Never }]",
    "{ imagePullPolicy: IfNotPresent }"
)]
fn a_setting(#[case] name: &str, #[case] plugin: &str, #[case] pod_config: &str) {
    check(name, &format!("kubernetes: {{ {plugin} }}"), pod_config);
}

/// What a container runs.
#[rstest]
#[case::the_steps_command("", "make")]
#[case::its_own("command: [one, two]", "one\ntwo")]
#[case::with_args("command: [one, two], args: [three, four five]", "one\ntwo three 'four five'")]
#[case::args_alone("args: [test, -v, 'a b']", "make test -v 'a b'")]
#[case::empty("command: [], args: []", "make")]
fn a_container_runs(#[case] container: &str, #[case] expected: &str) {
    let spec = spec_of(&format!("kubernetes: {{ podSpec: {{ containers: [{{ {container} }}] }} }}"));
    assert_eq!(
        variable(self::container(&spec, "container-0"), "BUILDKITE_COMMAND").as_deref(),
        Some(expected)
    );
}

#[rstest]
#[case::lines("buildkite", "one\ntwo three 'four five'")]
#[case::lines_by_default("''", "one\ntwo three 'four five'")]
#[case::words("vector", "one two three 'four five'")]
#[case::as_they_are("legacy", "one two three four five")]
fn an_interposer_makes_a_script(#[case] interposer: &str, #[case] expected: &str) {
    let spec = spec_of(&format!(
        "kubernetes: {{ commandParams: {{ interposer: {interposer} }}, \
         podSpec: {{ containers: [{{ command: [one, two], args: [three, four five] }}] }} }}"
    ));
    assert_eq!(variable(container(&spec, "container-0"), "BUILDKITE_COMMAND").as_deref(), Some(expected));
}

/// The step's `image` is that of every container that runs a command; without it each has its own, or the agent's.
#[rstest]
#[case::nowhere("image: ''", "{}", "buildkite/agent:3")]
#[case::in_the_step("image: rust:1", "{}", "rust:1")]
#[case::in_the_container("image: ''", "{ image: golang:1 }", "golang:1")]
#[case::in_both("image: rust:1", "{ image: golang:1 }", "rust:1")]
fn an_image(#[case] step: &str, #[case] written: &str, #[case] expected: &str) {
    let spec = spec_of(&format!(
        "{step}\n  kubernetes: {{ podSpec: {{ containers: [{written}, {{ command: [second] }}] }}, sidecars: [{{ image: redis }}] }}"
    ));
    assert_eq!(container(&spec, "container-0").image.as_deref(), Some(expected));
    assert_eq!(container(&spec, "sidecar-0").image.as_deref(), Some("redis"));
    assert_eq!(container(&spec, "agent").image.as_deref(), Some("buildkite/agent:3"));
}

/// The BuildJob's own word goes first.
#[rstest]
#[case::nobody("{ command: make }", None)]
#[case::the_step("{ command: make, kubernetes: { jobActiveDeadlineSeconds: 90 } }", Some(90))]
#[case::the_step_without_limit("{ command: make, kubernetes: { jobActiveDeadlineSeconds: 0 } }", None)]
#[case::the_build_job(
    "{ command: make, timeout: 2m, kubernetes: { jobActiveDeadlineSeconds: 90 } }",
    Some(120)
)]
fn a_time_limit(#[case] spec: &str, #[case] seconds: Option<i64>) {
    let job = job(&format!("spec: {spec}"));
    assert_eq!(plugin::time_limit(&job).map(|limit| limit.as_secs()), seconds);
}
