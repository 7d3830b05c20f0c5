use rstest::rstest;

use super::*;

fn params(yaml: &str) -> CheckoutParams {
    serde_saphyr::from_str(yaml).expect("the fixture is a checkout's parameters")
}

fn git(configured: &str, step: &str) -> Git {
    Git::new(&params(configured), &params(step), Credentials::default(), &[])
}

fn lines(vars: Vec<EnvVar>) -> Vec<String> {
    vars.into_iter().map(|var| format!("{}={}", var.name, var.value.unwrap_or_default())).collect()
}

#[rstest]
#[case("{}", &[])]
#[case("{checkoutFlags: -f}", &["BUILDKITE_GIT_CHECKOUT_FLAGS=-f"])]
#[case("{cleanFlags: -fdq}", &["BUILDKITE_GIT_CLEAN_FLAGS=-fdq"])]
#[case("{cloneFlags: --depth 1}", &["BUILDKITE_GIT_CLONE_FLAGS=--depth 1"])]
#[case("{fetchFlags: -v}", &["BUILDKITE_GIT_FETCH_FLAGS=-v"])]
#[case("{submoduleCloneConfig: [a=1, b=2]}", &["BUILDKITE_GIT_SUBMODULE_CLONE_CONFIG=a=1,b=2"])]
#[case("{gitMirrors: {path: /m}}", &["BUILDKITE_GIT_MIRRORS_PATH=/m"])]
#[case("{gitMirrors: {volume: {emptyDir: {}}}}", &["BUILDKITE_GIT_MIRRORS_PATH=/buildkite/git-mirrors"])]
#[case("{gitMirrors: {cloneFlags: -v}}", &["BUILDKITE_GIT_CLONE_MIRROR_FLAGS=-v"])]
#[case("{gitMirrors: {lockTimeout: 600}}", &["BUILDKITE_GIT_MIRRORS_LOCK_TIMEOUT=600"])]
#[case("{gitMirrors: {lockTimeout: 0}}", &[])]
#[case("{gitMirrors: {skipUpdate: true}}", &["BUILDKITE_GIT_MIRRORS_SKIP_UPDATE=true"])]
fn each_parameter_is_a_variable(#[case] yaml: &str, #[case] expected: &[&str]) {
    assert_eq!(lines(git(yaml, "{}").start_env()), expected);
    assert_eq!(lines(git("{}", yaml).start_env()), expected);
    assert_eq!(lines(git(yaml, "{}").bootstrap_env()), expected);
}

#[test]
fn submodules_are_told_to_each_in_its_own_words() {
    let git = git("{noSubmodules: true}", "{}");
    assert_eq!(lines(git.start_env()), ["BUILDKITE_NO_GIT_SUBMODULES=true"]);
    assert_eq!(lines(git.bootstrap_env()), ["BUILDKITE_GIT_SUBMODULES=false"]);
}

#[rstest]
#[case("{}", "{}", false)]
#[case("{skip: true}", "{}", true)]
#[case("{skip: true}", "{skip: false}", false)]
#[case("{skip: false}", "{skip: true}", true)]
fn the_step_decides_whether_there_is_a_checkout(
    #[case] configured: &str,
    #[case] step: &str,
    #[case] skipped: bool,
) {
    assert_eq!(git(configured, step).is_skipped(), skipped);
}

#[test]
fn the_steps_word_goes_before_the_configurations() {
    let git = git(
        "{cloneFlags: a, fetchFlags: b, gitMirrors: {path: /m, volume: {name: m, emptyDir: {}}, skipUpdate: true}}",
        "{cloneFlags: c, gitMirrors: {volume: {name: m, hostPath: {path: /mirrors}}}}",
    );
    assert_eq!(
        lines(git.start_env()),
        [
            "BUILDKITE_GIT_CLONE_FLAGS=c",
            "BUILDKITE_GIT_FETCH_FLAGS=b",
            "BUILDKITE_GIT_MIRRORS_PATH=/m",
            "BUILDKITE_GIT_MIRRORS_SKIP_UPDATE=true",
        ]
    );
    let volumes = git.volumes();
    assert_eq!(volumes.len(), 1, "volumes of the same name do not clash");
    assert!(volumes[0].host_path.is_some());
}

#[test]
fn mirrors_can_be_written_by_the_checkout_and_read_by_commands() {
    let git = git("{gitMirrors: {path: /m, volume: {emptyDir: {}}}}", "{}");
    let shown = |mounts: Vec<VolumeMount>| -> Vec<_> {
        mounts.into_iter().map(|mount| (mount.name, mount.mount_path, mount.read_only)).collect()
    };
    let mount = |read_only| [("git-mirrors".to_owned(), "/m".to_owned(), read_only)];
    assert_eq!(shown(git.mounts()), mount(None));
    assert_eq!(shown(git.command_mounts()), mount(Some(true)));
    assert!(!git.wants_own_container(), "flags and mirrors do not cost a container");
}

#[test]
fn mounts_and_sources_of_both_are_there_each_path_once() {
    let git = git(
        "{extraVolumeMounts: [{name: a, mountPath: /x}, {name: a, mountPath: /y}], envFrom: [{secretRef: {name: one}}]}",
        "{extraVolumeMounts: [{name: b, mountPath: /x}], envFrom: [{secretRef: {name: two}}]}",
    );
    let mounts: Vec<_> =
        git.mounts().into_iter().map(|mount| format!("{}:{}", mount.name, mount.mount_path)).collect();
    assert_eq!(mounts, ["a:/y", "b:/x"]);
    assert_eq!(git.env_from().len(), 2);
    assert!(git.wants_own_container());
}
