//! Patches: what they change, and that everything that depends on containers follows.

use rstest::rstest;

use super::{check, container, difference, pod, settings, spec_of, variable};

#[rstest]
#[case(
    "patch-pod",
    "{ hostNetwork: true, tolerations: [{ key: gpu, operator: Exists }], priorityClassName: high }"
)]
#[case(
    "patch-command-container",
    "{ containers: [{ name: container-0, resources: { limits: { memory: 4Gi } }, env: [{ name: MINE, value: '1' }] }] }"
)]
#[case("patch-command", "{ containers: [{ name: container-0, command: [go test], args: [./...] }] }")]
#[case(
    "patch-agent",
    "{ containers: [{ name: agent, resources: { limits: { memory: 1Gi } }, env: [{ name: BUILDKITE_AGENT_DEBUG, value: 'true' }] }] }"
)]
#[case("patch-checkout", "{ containers: [{ name: checkout, env: [{ name: GIT_TRACE, value: '1' }] }] }")]
#[case("patch-checkout-away", "{ containers: [{ name: checkout, $patch: delete }] }")]
#[case("patch-adds-a-container", "{ containers: [{ name: proxy, image: envoy, command: [envoy] }] }")]
#[case("patch-adds-an-init-container", "{ initContainers: [{ name: prepare, image: alpine, args: [x] }] }")]
#[case("patch-grace", "{ terminationGracePeriodSeconds: 7 }")]
#[case(
    "patch-workspace",
    "{ volumes: [{ name: workspace, emptyDir: null, ephemeral: { volumeClaimTemplate: { spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } } } } }] }"
)]
#[case(
    "patch-of-what-is-not-there",
    "{ initContainers: [{ name: copy-agent, resources: { limits: { cpu: 1 } } }, { name: imagecheck-0, resources: {} }] }"
)]
fn a_patch(#[case] name: &str, #[case] patch: &str) {
    check(name, &format!("kubernetes: {{ podSpecPatch: {patch} }}"), "{}");
    // The configuration's patches do the same.
    let by_step = pod(&format!("kubernetes: {{ podSpecPatch: {patch} }}"), &settings("{}"));
    let by_configuration = pod("", &settings(&format!("{{ podSpecPatch: {patch} }}")));
    assert_eq!(difference::between(&by_step, &by_configuration), "");
}

#[rstest]
#[case::another_command("command: [go vet]", "go vet")]
#[case::other_args("args: [./cmd]", "go test ./cmd")]
#[case::both("command: [go vet], args: [./cmd, a b]", "go vet ./cmd 'a b'")]
#[case::none_any_more("command: null, args: null", "make")]
#[case::as_it_was("command: [go test], args: [./..., -v]", "go test ./... -v")]
#[case::without_args("args: null", "go test")]
fn a_patched_command_is_a_script(#[case] patch: &str, #[case] expected: &str) {
    let spec = spec_of(&format!(
        "kubernetes: {{ podSpec: {{ containers: [{{ command: [go test], args: [./..., -v] }}] }}, \
         podSpecPatch: {{ containers: [{{ name: container-0, {patch} }}] }} }}"
    ));
    let patched = container(&spec, "container-0");
    assert_eq!(variable(patched, "BUILDKITE_COMMAND").as_deref(), Some(expected));
    assert_eq!(patched.args, None);
}

/// The configuration's patch, then the step's image, then the step's patch.
#[test]
fn later_patches_win() {
    let config = settings(
        "{ podSpecPatch: { priority: 1, containers: [{ name: container-0, image: a, env: [{ name: A, value: a }] }] } }",
    );
    let image = |spec: &str| {
        let spec = pod(spec, &config).spec.expect("a pod has a spec");
        container(&spec, "container-0").image.clone().expect("it has an image")
    };
    assert_eq!(image("image: ''"), "a");
    assert_eq!(image("image: b"), "b");
    let all = "image: b\n  kubernetes: { podSpecPatch: { containers: [{ name: container-0, image: c, env: [{ name: A, $patch: delete }] }] } }";
    assert_eq!(image(all), "c");
    let spec = pod(all, &config).spec.expect("a pod has a spec");
    assert_eq!(spec.priority, Some(1));
    assert_eq!(variable(container(&spec, "container-0"), "A"), None);
}

/// One container is enough if it has the agent's image in the end, whoever says so.
#[rstest]
#[case::patched_into_it(
    "image: busybox\n  kubernetes: { podSpecPatch: { containers: [{ name: container-0, image: 'buildkite/agent:3' }] } }",
    false
)]
#[case::patched_out_of_it(
    "image: ''\n  kubernetes: { podSpecPatch: { containers: [{ name: container-0, image: busybox }] } }",
    true
)]
#[case::in_it("image: ''", false)]
#[case::the_checkout_is_wanted(
    "image: ''\n  kubernetes: { podSpecPatch: { containers: [{ name: checkout, tty: true }] } }",
    true
)]
fn a_checkout_of_its_own(#[case] spec: &str, #[case] expected: bool) {
    let names: Vec<_> = spec_of(spec).containers.into_iter().map(|container| container.name).collect();
    assert_eq!(names.contains(&"checkout".to_owned()), expected, "{names:?}");
}

/// The order of turns is that of the step, whatever order a patch makes of the list.
#[test]
fn patches_do_not_change_whose_turn_it_is() {
    let spec = spec_of(
        "kubernetes: { podSpec: { containers: [{ name: a }, { name: b }, { name: c }] }, \
         podSpecPatch: { containers: [{ name: c, tty: true }, { name: a, tty: true }, { name: b, $patch: delete }] } }",
    );
    let names: Vec<_> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "agent", "checkout"]);
    assert_eq!(variable(container(&spec, "agent"), "BUILDKITE_CONTAINER_COUNT").as_deref(), Some("3"));
    assert_eq!(variable(container(&spec, "a"), "BUILDKITE_CONTAINER_ID").as_deref(), Some("1"));
    assert_eq!(variable(container(&spec, "c"), "BUILDKITE_CONTAINER_ID").as_deref(), Some("2"));
}

/// Where the configuration allows it, other programs run in the operator's own containers, still under the shim.
#[rstest]
#[case::agents_args("agent", "args: [start, --debug]", "-- buildkite-agent start --debug")]
#[case::agents_command("agent", "command: [/my/agent], args: [start]", "-- /my/agent start")]
#[case::checkouts_command("checkout", "command: [sh, -c, ./checkout]", "-- sh -c ./checkout")]
#[case::nothing("agent", "command: [], args: []", "-- buildkite-agent start")]
fn unsafe_commands(#[case] name: &str, #[case] patch: &str, #[case] expected: &str) {
    let settings = settings("{ allowUnsafeCommandPatches: true }");
    let spec = pod(
        &format!("kubernetes: {{ podSpecPatch: {{ containers: [{{ name: {name}, {patch} }}] }} }}"),
        &settings,
    );
    let spec = spec.spec.expect("a pod has a spec");
    let patched = container(&spec, name);
    let line = patched.command.clone().unwrap_or_default().join(" ");
    assert!(line.starts_with("/buildkite/shim/buildkite-shim ") && line.ends_with(expected), "{line}");
    assert_eq!(patched.args, None);
}

#[test]
fn image_checks_and_the_agents_delivery_may_be_patched() {
    let settings = settings(
        "{ imageCheck: init, agentDelivery: init, podSpecPatch: { initContainers: [\
         { name: imagecheck-0, resources: { limits: { cpu: 1 } } }, { name: imagecheck-7, tty: true }, \
         { name: copy-agent, resources: { limits: { cpu: 2 } } }] } }",
    );
    let spec = pod("", &settings).spec.expect("a pod has a spec");
    let limit = |name: &str| {
        let resources = container(&spec, name).resources.clone().expect("it has resources");
        resources.limits.expect("it has limits")["cpu"].0.clone()
    };
    assert_eq!((limit("copy-agent"), limit("imagecheck-0")), ("2".to_owned(), "1".to_owned()));
    let names: Vec<_> =
        spec.init_containers.iter().flatten().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["copy-agent", "imagecheck-0"]);
}
