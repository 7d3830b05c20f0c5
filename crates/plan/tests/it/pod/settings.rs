//! Each setting of `pod_config` that concerns the operator's own containers, and each checkout parameter of a step: what it
//! changes in the pod.

use bk_api::{BuildJob, config::PodConfig};
use bk_plan::{
    pod::{PodSettings, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;

use crate::{
    environment::difference,
    fixtures::{AGENT_IMAGE, job, pod_settings},
};

const BUILDKITE: &str = "buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001, pipeline: rocket }";

fn settings(yaml: &str) -> PodSettings {
    let config: PodConfig = serde_saphyr::from_str(yaml).expect("the fixture is a configuration");
    PodSettings { config: PodConfig { agent_image: AGENT_IMAGE.to_owned(), ..config }, ..pod_settings() }
}

fn pod(job: &BuildJob, settings: &PodSettings) -> Pod {
    render(job, 0, &Surroundings::default(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn check(name: &str, written: &str, before: &Pod, after: &Pod) {
    insta::with_settings!({ description => written, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(name, difference::between(before, after));
    });
}

/// Settings, for a Buildkite job in an image of its own.
#[rstest]
#[case("agent-config", "agentConfig: { shell: /bin/bash -ec, noPty: true }")]
#[case(
    "hooks-and-plugins",
    "agentConfig: { hooksVolume: { configMap: { name: hooks } }, pluginsPath: /plugins, pluginsVolume: { emptyDir: {} } }"
)]
#[case(
    "signing-and-verification",
    "agentConfig: { signingJWKSVolume: { secret: { secretName: s } }, verificationJWKSFile: /keys/v.json, verificationJWKSVolume: { secret: { secretName: v } } }"
)]
#[case("additional-redacted-vars", "additionalRedactedVars: ['*_PIN', CODE]")]
#[case("checkout-flags", "checkout: { cloneFlags: --depth 1, noSubmodules: true }")]
#[case("checkout-skip", "checkout: { skip: true }")]
#[case(
    "git-mirrors",
    "checkout: { gitMirrors: { volume: { hostPath: { path: /mirrors } }, lockTimeout: 60 } }"
)]
#[case("ssh-secret", "gitCredentials: { sshSecret: key }")]
#[case("https-secret", "gitCredentials: { httpsSecret: password }")]
#[case("git-credentials-secret", "checkout: { gitCredentialsSecret: { secretName: urls } }")]
#[case(
    "workspace-volume",
    "workspaceVolume: { ephemeral: { volumeClaimTemplate: { spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } } } } }"
)]
#[case(
    "workspace-sub-path",
    "workspaceVolume: { name: disk, hostPath: { path: /work } }\nworkspaceSubPathExpr: $(BUILDKITE_PIPELINE_SLUG)/$(BUILDKITE_JOB_ID)"
)]
#[case("agent-delivery-init", "agentDelivery: init")]
#[case("several-architectures", "architectures: [amd64, arm64]")]
#[case("image-check-init", "imageCheck: init")]
#[case("image-check-none", "imageCheck: none")]
#[case("pod-security-restricted", "podSecurity: restricted")]
#[case(
    "resources",
    "resources: { agent: { limits: { memory: 1Gi } }, checkout: { requests: { cpu: 500m } } }"
)]
fn settings_change_pods(#[case] name: &str, #[case] yaml: &str) {
    let job = job(&format!("spec: {{ {BUILDKITE}, command: make, image: 'golang:1' }}"));
    check(&format!("setting-{name}"), yaml, &pod(&job, &pod_settings()), &pod(&job, &settings(yaml)));
}

/// What a step or its author says, for a Buildkite job in the agent's image unless it names another.
#[rstest]
#[case("git-env-from", "kubernetes: { gitEnvFrom: [{ secretRef: { name: my-git } }] }")]
#[case(
    "checkout",
    "kubernetes: { checkout: { fetchFlags: -v, envFrom: [{ configMapRef: { name: c } }], extraVolumeMounts: [{ name: workspace, mountPath: /again }] } }"
)]
#[case("run-as-user", "kubernetes: { podSpec: { securityContext: { runAsUser: 1234, runAsGroup: 7 } } }")]
#[case(
    "users-differ",
    "image: busybox, kubernetes: { podSpec: { containers: [{ securityContext: { runAsUser: 1234 } }] } }"
)]
#[case("arm64", "kubernetes: { podSpec: { nodeSelector: { kubernetes.io/arch: arm64 } } }")]
#[case("workspace-volume", "workspaceVolume: { persistentVolumeClaim: { claimName: mine } }")]
#[case(
    "workspace-sub-path-expr",
    "workspaceVolume: { persistentVolumeClaim: { claimName: mine } }, workspaceSubPathExpr: $(BUILDKITE_PIPELINE_SLUG)"
)]
fn steps_change_pods(#[case] name: &str, #[case] yaml: &str) {
    let plain = job(&format!("spec: {{ {BUILDKITE}, command: make }}"));
    let changed = job(&format!("spec: {{ {BUILDKITE}, command: make, {yaml} }}"));
    let settings = pod_settings();
    check(&format!("step-{name}"), yaml, &pod(&plain, &settings), &pod(&changed, &settings));
}

/// The path below the workspace's volume is the job's, then the configuration's.
#[rstest]
#[case::the_jobs("workspaceSubPathExpr: mine", "workspaceSubPathExpr: theirs", Some("mine"))]
#[case::the_configurations("image: go", "workspaceSubPathExpr: theirs", Some("theirs"))]
#[case::of_a_volume_of_the_jobs(
    "workspaceVolume: { emptyDir: {} }",
    "workspaceSubPathExpr: theirs",
    Some("theirs")
)]
#[case::nobodys("image: go", "{}", None)]
fn the_path_below_the_workspaces_volume(
    #[case] spec: &str,
    #[case] config: &str,
    #[case] expected: Option<&str>,
) {
    let job = job(&format!("spec: {{ {BUILDKITE}, command: make, {spec} }}"));
    let spec = pod(&job, &settings(config)).spec.unwrap();
    for container in &spec.containers {
        let mounts = container.volume_mounts.iter().flatten();
        let paths: Vec<_> = mounts.filter(|mount| mount.mount_path == "/workspace").collect();
        assert_eq!(paths.len(), 1, "{}", container.name);
        assert_eq!(paths[0].sub_path_expr.as_deref(), expected, "{}", container.name);
    }
}

#[test]
fn a_step_brings_back_the_checkout_that_the_configuration_skips() {
    let step = format!(
        "spec: {{ {BUILDKITE}, command: make, image: go, kubernetes: {{ checkout: {{ skip: false }} }} }}"
    );
    let spec = pod(&job(&step), &settings("checkout: { skip: true }")).spec.unwrap();
    assert!(spec.containers.iter().any(|container| container.name == "checkout"));
}

#[rstest]
#[case::windows(
    "kubernetes: { podSpec: { nodeSelector: { kubernetes.io/os: windows } } }",
    "{}",
    "pod.spec: the job asks for Windows nodes, and there is no agent image for them; choose nodes with the label kubernetes.io/os=linux"
)]
#[case::another_workspace(
    "kubernetes: { podSpec: { volumes: [{ name: mine, emptyDir: {} }], containers: [{ image: a, volumeMounts: [{ name: mine, mountPath: /workspace }] }] } }",
    "{}",
    "pod.spec.containers[container-0].volumeMounts: volume `mine` is mounted at /workspace, where the pod's workspace has to be; to put the workspace on another volume, set `workspaceVolume`"
)]
#[case::bad_workspace_volume(
    "workspaceVolume: { emtyDir: {} }",
    "{}",
    "spec.workspaceVolume.emtyDir: unknown key `emtyDir`; did you mean `emptyDir`?"
)]
#[case::taken_workspace_volume(
    "workspaceVolume: { name: mine, emptyDir: {} }, kubernetes: { podSpec: { volumes: [{ name: mine, emptyDir: {} }] } }",
    "{}",
    "spec.workspaceVolume.name: the pod has a volume `mine` already; choose another name"
)]
#[case::unknown_variable(
    "image: a",
    "workspaceSubPathExpr: $(NOBODY_KNOWS)",
    "pod_config.workspaceSubPathExpr: there is no variable `NOBODY_KNOWS`; known: BUILDKITE_JOB_ID, BUILDKITE_PIPELINE_SLUG, BUILDKITE_BUILD_NUMBER"
)]
#[case::unknown_variable_of_a_job(
    "workspaceSubPathExpr: a/$(NOBODY_KNOWS)",
    "workspaceSubPathExpr: $(BUILDKITE_JOB_ID)",
    "spec.workspaceSubPathExpr: there is no variable `NOBODY_KNOWS`; known: BUILDKITE_JOB_ID, BUILDKITE_PIPELINE_SLUG, BUILDKITE_BUILD_NUMBER"
)]
fn what_cannot_be_is_refused(#[case] spec: &str, #[case] config: &str, #[case] expected: &str) {
    let job = job(&format!("spec: {{ command: make, {spec} }}"));
    let error = render(&job, 0, &Surroundings::default(), &settings(config)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// A Secret for git is mounted in one container, and no variable of another says how to use it.
#[rstest]
#[case("gitCredentials: { sshSecret: key, httpsSecret: password }")]
#[case("checkout: { gitCredentialsSecret: { secretName: urls } }")]
fn secrets_for_git_are_the_checkouts_alone(#[case] config: &str) {
    for image in [AGENT_IMAGE, "golang:1"] {
        let job = job(&format!("spec: {{ {BUILDKITE}, command: make, image: '{image}' }}"));
        let spec = pod(&job, &settings(config)).spec.unwrap();
        for container in &spec.containers {
            let mounts =
                container.volume_mounts.iter().flatten().filter(|mount| mount.name.starts_with("git-"));
            let vars = container.env.iter().flatten().filter(|var| var.name.starts_with("GIT_"));
            let (mounts, vars) = (mounts.count(), vars.count());
            assert_eq!((mounts > 0, vars > 0), (container.name == "checkout", container.name == "checkout"));
        }
    }
}

#[rstest]
#[case::nobody_in_particular("{}", None)]
#[case::root("{ runAsUser: 0 }", None)]
#[case::somebody("{ runAsUser: 1001 }", Some(1001))]
#[case::somebody_of_a_group("{ runAsUser: 1001, runAsGroup: 7 }", Some(7))]
#[case::a_group_of_the_authors("{ runAsUser: 1001, fsGroup: 9 }", Some(9))]
fn a_volume_as_workspace_is_open_to_the_pods_user(#[case] context: &str, #[case] expected: Option<i64>) {
    let spec = format!("kubernetes: {{ podSpec: {{ securityContext: {context} }} }}");
    let job = job(&format!("spec: {{ {BUILDKITE}, command: make, {spec} }}"));
    let group = |yaml: &str| {
        let spec = pod(&job, &settings(yaml)).spec.unwrap();
        spec.security_context.and_then(|context| context.fs_group)
    };
    assert_eq!(group("workspaceVolume: { persistentVolumeClaim: { claimName: c } }"), expected);
    let given = expected.filter(|_| context.contains("fsGroup"));
    assert_eq!(group("{}"), given, "an emptyDir is open to everybody");
}

#[test]
fn a_checkout_in_another_image_still_knows_its_user() {
    let patch = "podSpecPatch: { containers: [{ name: checkout, image: 'alpine/git:2' }] }";
    let spec = format!("kubernetes: {{ podSpec: {{ securityContext: {{ runAsUser: 1001 }} }}, {patch} }}");
    let job = job(&format!("spec: {{ {BUILDKITE}, command: make, image: busybox, {spec} }}"));
    let spec = pod(&job, &settings("{}")).spec.unwrap();
    let checkout = spec.containers.iter().find(|container| container.name == "checkout").unwrap();
    let mounts: Vec<_> = checkout.volume_mounts.iter().flatten().map(|mount| &mount.mount_path).collect();
    assert!(mounts.iter().any(|path| *path == "/etc/passwd"), "{mounts:?}");
}
