use crate::pod::shim;
use std::process::Command;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(shim()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn mistakes_are_one_line_and_status_64() {
    let (status, output, errors) = run(&["job", "--name", "a/b", "--", "true"]);
    assert_eq!((status, output.as_str()), (Some(64), ""));
    assert_eq!(
        errors,
        "buildkite-shim: --name takes names of at most 63 of [a-z0-9.-] that do not begin with a dot, not `a/b`\n"
    );
    assert_eq!(run(&[]).0, Some(64));
}

#[test]
fn version_and_help_go_to_standard_output() {
    let version = format!("buildkite-shim {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]), (Some(0), version, String::new()));
    let (status, help, errors) = run(&["--help"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    for flag in ["--jobs", "--name", "--after", "--standalone", "--run", "--workspace", "--agent-binary"] {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn a_workspace_that_is_not_there_is_named() {
    let (status, _, errors) = run(&["job", "--name", "a", "--workspace", "/nowhere", "--", "true"]);
    assert_eq!(status, Some(125));
    assert_eq!(
        errors,
        "buildkite-shim: cannot make the directory /nowhere/.buildkite-operator: no such file or directory (errno 2)\n"
    );
}
