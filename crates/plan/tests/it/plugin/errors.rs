//! What is refused, and in which words.

use rstest::rstest;

use super::{settings, try_pod};

#[rstest]
#[case::unknown(
    "podSpecPach: {}",
    "spec.kubernetes.podSpecPach: unknown key `podSpecPach`; did you mean `podSpecPatch`?"
)]
#[case::unknown_and_like_nothing(
    "foo: 1",
    "spec.kubernetes.foo: unknown key `foo`; known: checkout, commandParams, containers, extraVolumeMounts, gitEnvFrom, \
     jobActiveDeadlineSeconds, metadata, podSpec, podSpecPatch, podTemplate, sidecarParams, sidecars"
)]
#[case::unknown_in_checkout(
    "checkout: { cloneFlag: x }",
    "spec.kubernetes.checkout.cloneFlag: unknown key `cloneFlag`; did you mean `cloneFlags`?"
)]
#[case::unknown_in_git_mirrors(
    "checkout: { gitMirrors: { volume: { name: m, hostpath: {} } } }",
    "spec.kubernetes.checkout.gitMirrors.volume.hostpath: unknown key `hostpath`; did you mean `hostPath`?"
)]
#[case::unknown_in_params(
    "commandParams: { envfrom: [] }",
    "spec.kubernetes.commandParams.envfrom: unknown key `envfrom`; did you mean `envFrom`?"
)]
#[case::unknown_in_a_sidecar(
    "sidecars: [{ image: a }, { image: b, port: [] }]",
    "spec.kubernetes.sidecars[1].port: unknown key `port`; did you mean `ports`?"
)]
#[case::unknown_in_a_patch(
    "podSpecPatch: { containers: [{ name: container-0, resource: {} }] }",
    "spec.kubernetes.podSpecPatch.containers[0].resource: unknown key `resource`; did you mean `resources`?"
)]
#[case::several(
    "sidecar: [], podspec: {}",
    "spec.kubernetes.podspec: unknown key `podspec`; did you mean `podSpec`?; also spec.kubernetes.sidecar: unknown key \
     `sidecar`; did you mean `sidecars`?"
)]
#[case::interposer(
    "commandParams: { interposer: bash }",
    "spec.kubernetes.commandParams.interposer: unknown variant `bash`, expected one of ``, `buildkite`, \
     `vector`, `legacy`"
)]
#[case::label(
    "metadata: { labels: { a: 1 } }",
    "spec.kubernetes.metadata.labels.a: invalid type: integer `1`, expected a string"
)]
#[case::label_value(
    "metadata: { labels: { team: a b } }",
    "spec.kubernetes.metadata.labels.team: this is not a legal value of a label"
)]
#[case::label_key(
    "metadata: { labels: { /team: x } }",
    "spec.kubernetes.metadata.labels./team: this is not a legal key of a label"
)]
#[case::annotation_key(
    "metadata: { annotations: { a b: x } }",
    "spec.kubernetes.metadata.annotations.a b: this is not a legal key of an annotation"
)]
#[case::deadline(
    "jobActiveDeadlineSeconds: soon",
    "spec.kubernetes.jobActiveDeadlineSeconds: invalid type: string \"soon\", expected i64"
)]
#[case::template(
    "podTemplate: gone",
    "spec.kubernetes.podTemplate: there is no PodTemplate `gone` in namespace `ci`"
)]
#[case::sidecar_of_the_same_name(
    "sidecars: [{ image: a }], podSpec: { initContainers: [{ name: sidecar-0, image: b }] }",
    "pod.spec.containers[sidecar-0]: there are two containers called `sidecar-0`; choose another name"
)]
#[case::sidecar_without_image(
    "sidecars: [{ name: db }]",
    "pod.spec.containers[db].image: a container needs an image"
)]
#[case::image(
    "sidecars: [{ image: Redis }]",
    "pod.spec.containers[sidecar-0].image: `Redis` is not the name of an image: images are named in lower case"
)]
#[case::patched_image(
    "podSpecPatch: { containers: [{ name: container-0, image: 'golang:' }] }",
    "pod.spec.containers[container-0].image: `golang:` is not the name of an image: its tag may have letters, digits, _, . \
     and -, and 128 characters"
)]
#[case::added_without_image(
    "podSpecPatch: { containers: [{ name: contianer-0, tty: true }] }",
    "pod.spec.containers[contianer-0].image: a container needs an image"
)]
#[case::mount(
    "extraVolumeMounts: [{ name: cache, mountPath: /cache }]",
    "pod.spec.containers[container-0]: `/cache` is to show the volume `cache`, but the pod has no volume of that name"
)]
#[case::patch_of_a_wrong_type(
    "podSpecPatch: { containers: [{ name: container-0, image: [a] }] }",
    "spec.kubernetes.podSpecPatch.containers[0].image: must be a single value, not a list"
)]
#[case::patch_to_a_wrong_type(
    "podSpecPatch: { hostNetwork: maybe }",
    "spec.kubernetes.podSpecPatch: the patched pod is not valid: pod.spec.hostNetwork: invalid type: string \"maybe\", \
     expected a boolean"
)]
#[case::restart_policy(
    "podSpecPatch: { restartPolicy: OnFailure }",
    "spec.kubernetes.podSpecPatch.restartPolicy: must be `Never`: a container that is started again would run the command again"
)]
#[case::agent_removed(
    "podSpecPatch: { containers: [{ name: agent, $patch: delete }] }",
    "pod.spec.containers: a patch removes `agent`, without which no job can run"
)]
#[case::commands_removed(
    "podSpecPatch: { containers: [{ name: container-0, $patch: delete }] }",
    "pod.spec.containers: a patch removes every container that runs a command; leave one"
)]
#[case::everything_replaced(
    "podSpecPatch: { containers: [{ $patch: replace }, { name: a, image: b }] }",
    "pod.spec.containers: a patch removes `agent`, without which no job can run"
)]
#[case::agents_command(
    "podSpecPatch: { containers: [{ name: agent, args: [start, --debug] }] }",
    "spec.kubernetes.podSpecPatch.containers[0].args: modifying container commands or args via podSpecPatch is not supported \
     for `agent`, which the operator runs; `pod_config.allowUnsafeCommandPatches` allows it"
)]
#[case::checkouts_command(
    "podSpecPatch: { containers: [{ name: container-0, tty: true }, { name: checkout, command: [sh] }] }",
    "spec.kubernetes.podSpecPatch.containers[1].command: modifying container commands or args via podSpecPatch is not \
     supported for `checkout`, which the operator runs; `pod_config.allowUnsafeCommandPatches` allows it"
)]
#[case::an_image_checks_command(
    "podSpecPatch: { initContainers: [{ name: imagecheck-0, command: [sh] }] }",
    "spec.kubernetes.podSpecPatch.initContainers[0].command: modifying container commands or args via podSpecPatch is not \
     supported for `imagecheck-0`, which the operator runs; `pod_config.allowUnsafeCommandPatches` allows it"
)]
#[case::clashing_mounts(
    "podSpec: { volumes: [{ name: a, emptyDir: {} }, { name: b, emptyDir: {} }], containers: [{ volumeMounts: [{ name: a, mountPath: /x }, { name: b, mountPath: /x/ }] }] }",
    "pod.spec.containers[container-0].volumeMounts[/x]: both volume `a` and volume `b` are to be mounted there; choose \
     another path for one"
)]
#[case::clashing_parts_of_a_volume(
    "podSpec: { volumes: [{ name: a, emptyDir: {} }] }, extraVolumeMounts: [{ name: a, mountPath: /x, subPath: one }, { name: a, mountPath: /x, subPathExpr: two }]",
    "pod.spec.containers[container-0].volumeMounts[/x]: both volume `a` (`one` of it) and volume `a` (`two` of it) are to be \
     mounted there; choose another path for one"
)]
#[case::a_mount_over_the_shim(
    "podSpec: { volumes: [{ name: a, emptyDir: {} }], containers: [{ volumeMounts: [{ name: a, mountPath: /buildkite/shim }] }] }",
    "pod.spec.containers[container-0].volumeMounts[/buildkite/shim]: both volume `a` and volume `buildkite-shim` are to be mounted there; \
     choose another path for one"
)]
fn what_is_wrong_is_said_with_its_path(#[case] plugin: &str, #[case] expected: &str) {
    let error = try_pod(&format!("kubernetes: {{ {plugin} }}"), &settings("{}")).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[rstest]
#[case::plugin(
    "{ prohibitKubernetesPlugin: true }",
    "spec.kubernetes: the kubernetes plugin is prohibited here (`pod_config.prohibitKubernetesPlugin`); remove it from the step"
)]
#[case::patch(
    "{ podSpecPatch: { containers: [{ name: container-0, imag: x }] } }",
    "pod_config.podSpecPatch.containers[0].imag: unknown key `imag`; did you mean `image`?"
)]
fn what_the_configuration_refuses(#[case] pod_config: &str, #[case] expected: &str) {
    let error = try_pod("kubernetes: { podSpec: {} }", &settings(pod_config)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_prohibited_plugin_is_no_matter_for_steps_without_it() {
    assert!(try_pod("", &settings("{ prohibitKubernetesPlugin: true }")).is_ok());
}
