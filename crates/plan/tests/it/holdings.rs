//! What the agent runs and goes by is out of reach of whoever writes a step, a BuildEnvironment or a PodTemplate.

use bk_api::config::ImageCheck;
use bk_plan::{
    pod::{PodSettings, render},
    surroundings::Surroundings,
};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use rstest::rstest;

use crate::fixtures::{broker, job, pod_settings};

const OF_BUILDKITE: &str = "buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }";

/// Settings with hooks that anybody could write to who has them mounted so.
fn with_hooks(volume: &str) -> PodSettings {
    let config = format!("{{ agentConfig: {{ hooksVolume: {{ name: hooks, {volume} }} }} }}");
    PodSettings {
        config: serde_saphyr::from_str(&config).expect("the fixture is a configuration"),
        broker: Some(broker()),
        ..pod_settings()
    }
}

fn with_claim() -> PodSettings {
    with_hooks("persistentVolumeClaim: { claimName: hooks }")
}

fn rendered(spec: &str, settings: &PodSettings) -> Result<PodSpec, String> {
    let job = job(&format!("spec:\n  {OF_BUILDKITE}\n  command: make\n  {spec}\n"));
    let pod = render(&job, 0, &Surroundings::default(), settings).map_err(|error| error.to_string())?;
    Ok(pod.spec.expect("a pod has a spec"))
}

fn container<'a>(spec: &'a PodSpec, name: &str) -> &'a Container {
    let mut containers = spec.containers.iter();
    containers.find(|container| container.name == name).expect("there is such a container")
}

fn value<'a>(container: &'a Container, variable: &str) -> Option<&'a str> {
    let mut env = container.env.iter().flatten();
    env.find(|var| var.name == variable)?.value.as_deref()
}

#[rstest]
#[case::of_its_own(
    "kubernetes: { podSpec: { containers: [{ image: a, volumeMounts: [{ name: hooks, mountPath: /mine }] }] } }",
    "pod.spec.containers[container-0].volumeMounts[/mine]"
)]
#[case::everywhere(
    "kubernetes: { extraVolumeMounts: [{ name: hooks, mountPath: /mine }] }",
    "pod.spec.containers[checkout].volumeMounts[/mine]"
)]
#[case::before_the_others(
    "kubernetes: { podSpec: { initContainers: [{ name: i, image: a, volumeMounts: [{ name: hooks, mountPath: /mine }] }] } }",
    "pod.spec.initContainers[i].volumeMounts[/mine]"
)]
#[case::by_a_sidecar(
    "kubernetes: { sidecars: [{ image: a, volumeMounts: [{ name: hooks, mountPath: /mine }] }] }",
    "pod.spec.initContainers[sidecar-0].volumeMounts[/mine]"
)]
#[case::by_a_patch(
    "kubernetes: { podSpecPatch: { containers: [{ name: container-0, volumeMounts: [{ name: hooks, mountPath: /mine }] }] } }",
    "pod.spec.containers[container-0].volumeMounts[/mine]"
)]
#[case::over_the_mount_that_it_has(
    "kubernetes: { podSpecPatch: { containers: [{ name: container-0, volumeMounts: [{ mountPath: /workspace/hooks, readOnly: false }] }] } }",
    "pod.spec.containers[container-0].volumeMounts[/workspace/hooks]"
)]
fn nobody_else_writes_to_what_the_agent_runs(#[case] spec: &str, #[case] path: &str) {
    let refused = rendered(spec, &with_claim()).expect_err("it is refused");
    assert_eq!(
        refused,
        format!(
            "{path}: the volume is one of `agent`, which runs and trusts what is in it; mount it with `readOnly: true`"
        )
    );
    let read_only = spec.replace("mountPath: /mine", "mountPath: /mine, readOnly: true");
    if read_only != spec {
        rendered(&read_only, &with_claim()).expect("it may be read");
    }
    rendered(spec, &with_hooks("configMap: { name: hooks }")).expect("nobody can write to it anyway");
}

#[rstest]
#[case::another_volume("{ name: hooks, persistentVolumeClaim: { claimName: mine } }")]
#[case::another_kind("{ name: hooks, persistentVolumeClaim: null, emptyDir: {} }")]
#[case::none("{ name: hooks, $patch: delete }")]
fn a_step_does_not_change_what_the_agent_runs(#[case] volume: &str) {
    let spec = format!("kubernetes: {{ podSpecPatch: {{ volumes: [{volume}] }} }}");
    let refused = rendered(&spec, &with_claim()).expect_err("it is refused");
    assert!(
        refused.starts_with(
            "spec.kubernetes.podSpecPatch.volumes: a step may not change the volumes of `agent`"
        ),
        "{refused}"
    );
}

/// Two volumes of one name, of which a patch takes one away.
#[rstest]
#[case::by_the_workspace("workspaceVolume: { name: hooks, emptyDir: {} }")]
#[case::by_a_pod_spec(
    "kubernetes: { podSpec: { volumes: [{ name: hooks, emptyDir: {} }], containers: [{ image: a }] } }"
)]
fn no_volume_comes_in_place_of_the_agents(#[case] spec: &str) {
    const PATCH: &str =
        "podSpecPatch: { volumes: [{ name: hooks, $patch: delete }, { name: hooks, emptyDir: {} }] }";
    let spec = if let Some(plugin) = spec.strip_suffix(" }").filter(|spec| spec.starts_with("kubernetes")) {
        format!("{plugin}, {PATCH} }}")
    } else {
        format!("{spec}\n  kubernetes: {{ {PATCH} }}")
    };
    let refused = rendered(&spec, &with_claim()).expect_err("it is refused");
    assert_eq!(refused, "pod.spec.volumes[hooks]: there are two volumes called `hooks`; choose another name");
}

#[test]
fn administrators_may_and_whom_they_let() {
    let writes = "containers: [{ name: container-0, volumeMounts: [{ name: hooks, mountPath: /mine }] }]";
    let changes = "volumes: [{ name: hooks, persistentVolumeClaim: { claimName: mine } }]";
    let patch = format!("{{ {writes}, {changes} }}");
    let by_step = format!("kubernetes: {{ podSpecPatch: {patch} }}");
    rendered(&by_step, &with_claim()).expect_err("it is refused");

    let mut trusting = with_claim();
    trusting.config.allow_unsafe_command_patches = true;
    rendered(&by_step, &trusting).expect("steps may run anything in the agent's container there");
    let mut by_administrator = with_claim();
    by_administrator.config.pod_spec_patch =
        Some(serde_saphyr::from_str(&patch).expect("the fixture is a patch"));
    rendered("", &by_administrator).expect("it is the administrator's patch");
    let resources = "kubernetes: { podSpecPatch: { containers: [{ name: container-0, resources: { limits: { cpu: 1 } } }] } }";
    rendered(resources, &by_administrator).expect("a step's patch is not blamed for it");
}

/// A job of which nobody at Buildkite knows has no agent with anything to hide.
#[test]
fn standalone_jobs_mount_what_they_like() {
    let spec = "kubernetes: { extraVolumeMounts: [{ name: hooks, mountPath: /mine }] }";
    let standalone = job(&format!("spec:\n  command: make\n  {spec}\n"));
    render(&standalone, 0, &Surroundings::default(), &with_claim()).expect("it becomes a pod");
}

/// A patch of a container that comes last is looked at as well.
#[test]
fn containers_of_the_operators_do_not_write_to_it_either() {
    let mut settings = with_claim();
    settings.config.image_check = ImageCheck::Init;
    let spec = "image: a\n  kubernetes: { podSpecPatch: { initContainers: [{ name: imagecheck-0, volumeMounts: [{ name: hooks, mountPath: /mine }] }] } }";
    let refused = rendered(spec, &settings).expect_err("it is refused");
    assert!(refused.starts_with("pod.spec.initContainers[imagecheck-0].volumeMounts[/mine]: "), "{refused}");
}

/// What is in a claim is the same under another name.
#[test]
fn the_same_storage_by_another_name_is_not_written_to() {
    let spec = "kubernetes: { podSpec: { volumes: [{ name: mine, persistentVolumeClaim: { claimName: hooks } }], \
                containers: [{ image: a, volumeMounts: [{ name: mine, mountPath: /mine }] }] } }";
    let refused = rendered(spec, &with_claim()).expect_err("it is refused");
    assert!(refused.starts_with("pod.spec.containers[container-0].volumeMounts[/mine]: "), "{refused}");
    rendered(&spec.replace("claimName: hooks", "claimName: another"), &with_claim()).expect("it is another");
    rendered(spec, &with_hooks("emptyDir: {}")).expect("it is another");
}

/// The agent's container starts by what `copy-agent` has copied.
#[rstest]
#[case::another_image("image: mine", "image")]
#[case::another_place("volumeMounts: [{ name: workspace, mountPath: /bin }]", "volumeMounts")]
#[case::variables("env: [{ name: LD_PRELOAD, value: /workspace/x }]", "env")]
fn a_step_does_not_choose_the_program_of_the_agent(#[case] patch: &str, #[case] below: &str) {
    let spec =
        format!("kubernetes: {{ podSpecPatch: {{ initContainers: [{{ name: copy-agent, {patch} }}] }} }}");
    let refused = rendered(&spec, &pod_settings()).expect_err("it is refused");
    let path = format!(
        "spec.kubernetes.podSpecPatch.initContainers[0].{below}: a step may not change what `copy-agent`"
    );
    assert!(refused.starts_with(&path), "{refused}");
    let resources = "kubernetes: { podSpecPatch: { initContainers: [{ name: copy-agent, resources: { limits: { cpu: 1 } } }] } }";
    rendered(resources, &pod_settings()).expect("it may change how much that may take");
}

/// Kubernetes puts the values of variables in the place of `$(NAME)` if they stand before it.
#[test]
fn nothing_that_a_step_writes_refers_to_the_token() {
    const REFERS: &str = "$(BUILDKITE_AGENT_TOKEN)";
    let spec =
        rendered(&format!("kubernetes: {{ checkout: {{ cloneFlags: '{REFERS}' }} }}"), &pod_settings());
    let spec = spec.expect("it becomes a pod");
    let agent = container(&spec, "agent");
    assert_eq!(value(agent, "BUILDKITE_GIT_CLONE_FLAGS"), Some("$$(BUILDKITE_AGENT_TOKEN)"));
    let last = agent.env.iter().flatten().last().map(|var| var.name.as_str());
    assert_eq!(last, Some("BUILDKITE_AGENT_TOKEN"), "and nothing stands behind it");

    let patch = |value: &str| {
        let var = format!("{{ name: BUILDKITE_GIT_CLONE_FLAGS, value: '{value}' }}");
        let patch = format!("{{ containers: [{{ name: agent, env: [{var}] }}] }}");
        rendered(&format!("kubernetes: {{ podSpecPatch: {patch} }}"), &pod_settings())
    };
    let refused = patch(REFERS).expect_err("it is refused");
    assert!(
        refused.starts_with(
            "spec.kubernetes.podSpecPatch.containers[0].env[0].value: must not refer to another variable"
        ),
        "{refused}"
    );
    patch("-v $$(date) $HOME").expect("it refers to nothing");
}

/// The agent puts variables into this path by itself.
#[rstest]
#[case::of_the_plugin("checkout: { gitMirrors: { path: /m/$BUILDKITE_AGENT_TOKEN } }")]
#[case::of_a_patch(
    "podSpecPatch: { containers: [{ name: agent, env: [{ name: BUILDKITE_GIT_MIRRORS_PATH, value: '/m/${BUILDKITE_AGENT_TOKEN}' }] }] }"
)]
fn the_path_of_mirrors_does_not_refer_to_the_token_either(#[case] plugin: &str) {
    let refused =
        rendered(&format!("kubernetes: {{ {plugin} }}"), &pod_settings()).expect_err("it is refused");
    assert!(
        refused.starts_with(
            "pod.spec.containers[agent].env[BUILDKITE_GIT_MIRRORS_PATH].value: must not contain `$`"
        ),
        "{refused}"
    );
}
