//! The shim under the names of the agent's hooks.

use crate::pod::{Pod, copy_shim, until};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

/// A hook of this name, in the container `a` of the pod.
fn hook(pod: &Pod, name: &str) -> Command {
    let program: PathBuf = pod.outside(name);
    copy_shim(&program);
    let mut command = Command::new(program);
    in_container(pod, command.env_clear());
    command.stderr(Stdio::piped());
    // Whoever has started this hook has no command to run, and no output to hold.
    command.env("BUILDKITE_BOOTSTRAP_PHASES", "plugin,checkout");
    command
}

/// Gives a command what hooks in the container `a` know of the pod.
pub(crate) fn in_container(pod: &Pod, command: &mut Command) {
    command.envs([
        ("BUILDKITE_SHIM_WORKSPACE", pod.workspace("").to_str().unwrap().trim_end_matches('/')),
        ("BUILDKITE_SHIM_RUN", pod.run),
        ("BUILDKITE_SHIM_NAME", "a"),
        ("BUILDKITE_SHIM_ENVIRONMENTS", pod.outside("environments").to_str().unwrap()),
    ]);
}

/// The end of a container, in a run that has begun.
fn pre_exit(pod: &Pod) -> Child {
    fs::create_dir_all(pod.marks("")).unwrap();
    let child = hook(pod, "pre-exit").spawn().unwrap();
    until("a wish", || pod.marks("drain/a").exists());
    child
}

fn said(child: Child) -> String {
    let end = child.wait_with_output().unwrap();
    assert!(end.status.success(), "a hook never fails: {end:?}");
    String::from_utf8(end.stderr).unwrap()
}

#[test]
fn the_environment_is_written_down_whole() {
    for name in ["environment", "pre-command"] {
        let pod = Pod::new();
        fs::create_dir(pod.outside("environments")).unwrap();
        for value in ["one\ntwo", "käse"] {
            let child = hook(&pod, name).env("SECRET", value).spawn().unwrap();
            assert_eq!(said(child), "");
            let written = fs::read_to_string(pod.outside("environments/a")).unwrap();
            let entries: Vec<_> = written.split_terminator('\0').collect();
            assert!(entries.contains(&format!("SECRET={value}").as_str()), "{entries:?}");
            assert!(entries.contains(&"BUILDKITE_SHIM_NAME=a"), "{entries:?}");
        }
        assert_eq!(fs::read_dir(pod.outside("environments")).unwrap().count(), 1, "no draft is left");
    }
}

#[test]
fn an_environment_that_cannot_be_written_down_is_no_reason_to_fail() {
    let pod = Pod::new();
    let said = said(hook(&pod, "environment").spawn().unwrap());
    assert!(said.contains("cannot write down the job's environment"), "{said}");
}

#[test]
fn without_anybody_to_work_for_hooks_do_nothing() {
    let pod = Pod::new();
    for name in ["environment", "pre-exit"] {
        assert_eq!(said(hook(&pod, name).env_remove("BUILDKITE_SHIM_NAME").spawn().unwrap()), "");
    }
    assert!(!pod.marks("").exists());
}

#[test]
fn the_end_waits_until_artifacts_are_uploaded() {
    let pod = Pod::new();
    let mut child = pre_exit(&pod);
    assert!(child.try_wait().unwrap().is_none());
    File::create(pod.marks("drained/a")).unwrap();
    assert_eq!(said(child), "");
}

#[test]
fn a_slow_upload_is_waited_for_as_long_as_it_goes_on_and_no_longer() {
    let pod = Pod::new();
    let mut child = pre_exit(&pod);
    let alive = File::create(pod.marks("drained/.alive")).unwrap();
    // An upload that goes on: the hook must not take its own 15 s for the limit.
    alive.set_modified(SystemTime::now() + Duration::from_secs(3)).unwrap();
    let begin = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < Duration::from_mins(1), "it waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(begin.elapsed() > Duration::from_secs(16), "it left after {:?}", begin.elapsed());
    let said = said(child);
    assert!(
        said.contains("may be missing among the artifacts: the artifact exporter has given no sign for 15 s"),
        "{said}"
    );
}
