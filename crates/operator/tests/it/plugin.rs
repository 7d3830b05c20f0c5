//! The hooks of the plugin, run as an agent runs them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rstest::rstest;
use tempfile::TempDir;

fn hook(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin/hooks").join(name)
}

/// Runs the command hook like an agent: read by a shell, not executed.
fn run(env: &[(&str, &str)]) -> Output {
    let script = format!(". {}", hook("command").display());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
    command.output().expect("a shell can be run")
}

#[rstest]
#[case("command")]
#[case("environment")]
fn a_hook_is_a_script_that_shells_understand(#[case] name: &str) {
    let path = hook(name);
    let mode = fs::metadata(&path).expect("there is such a hook").permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "it can be executed");
    for shell in ["sh", "bash"] {
        let status = Command::new(shell).arg("-n").arg(&path).status().expect("there is a shell");
        assert!(status.success(), "{shell} -n {name}");
    }
}

#[test]
fn the_step_ends_as_the_program_does() {
    let directory = TempDir::new().expect("a directory of our own");
    let program = directory.path().join("program");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 7\n").expect("it can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    let output = run(&[("BUILDKITE_OPERATOR", &program.to_string_lossy())]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run-job --from-env\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn an_agent_without_the_program_says_so() {
    let output = run(&[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("there is no program buildkite-operator on this agent's PATH"), "{text}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn in_a_pod_of_the_operator_the_step_just_runs() {
    let output = run(&[("BUILDKITE_CONTAINER_ID", "0"), ("BUILDKITE_COMMAND", "echo here; exit 3")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn the_licence_is_the_projects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("there is one");
    assert_eq!(read("plugin/LICENSE"), read("LICENSE"));
}
