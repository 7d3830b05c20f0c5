//! Everything that can be wrong before there is a cluster: one clear line, a non-zero exit, no backtrace.

use std::{fs, path::Path};

use assert_cmd::Command;
use tempfile::TempDir;

use crate::{operator, program};

/// The one line on standard error of a command that fails.
fn complaint(command: &mut Command, status: i32) -> String {
    let failure = command.assert().code(status).stdout("");
    let text = String::from_utf8(failure.get_output().stderr.clone()).expect("the message is text");
    let line = text.strip_suffix('\n').unwrap_or_else(|| panic!("the line does not end: {text:?}"));
    assert!(!line.contains('\n'), "more than one line:\n{text}");
    line.to_owned()
}

/// What is wrong with a command line.
fn misuse(args: &[&str]) -> String {
    complaint(operator().args(args), 2)
}

/// A directory for a test's files, whose path snapshots show as `[DIR]`.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(TempDir::new().expect("there is room for a directory"));
        // Enough of a shim to get past the check of it.
        files.write("shim", "\x7fELF");
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.0.path().join(name), content).expect("the directory is ours");
    }

    /// `run` with a shim that is accepted and this kubeconfig.
    fn run_with(&self, kubeconfig: &str) -> Command {
        let mut command = operator();
        command.args(["run", "--shim", &self.path("shim"), "--kubeconfig", &self.path(kubeconfig)]);
        command
    }

    fn failure(&self, command: &mut Command) -> String {
        complaint(command, 1).replace(&self.path(""), "[DIR]/")
    }
}

#[test]
fn an_unknown_flag() {
    insta::assert_snapshot!(misuse(&["run", "--nonsense"]), @"error: unexpected argument '--nonsense' found; try --help");
}

#[test]
fn a_misspelt_flag_gets_a_hint() {
    insta::assert_snapshot!(misuse(&["run", "--quue=x"]), @"error: unexpected argument '--quue' found; tip: a similar argument exists: '--queue'; try --help");
}

#[test]
fn an_unknown_command() {
    insta::assert_snapshot!(misuse(&["fly"]), @"error: unrecognized subcommand 'fly'; try --help");
}

#[test]
fn a_flag_without_its_value() {
    insta::assert_snapshot!(misuse(&["run", "--queue"]), @"error: a value is required for '--queue <KEY>' but none was supplied; try --help");
}

#[test]
fn values_that_make_no_sense() {
    insta::assert_snapshot!(misuse(&["run", "--log-level=info,kube=loud"]), @r#"error: invalid value 'info,kube=loud' for '--log-level <FILTER>': error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5; try --help"#);
    insta::assert_snapshot!(misuse(&["run", "--log-format=xml"]), @"error: invalid value 'xml' for '--log-format <FORMAT>' [possible values: human, json]; try --help");
    insta::assert_snapshot!(misuse(&["run", "--max-in-flight=many"]), @"error: invalid value 'many' for '--max-in-flight <N>': invalid digit found in string; try --help");
    insta::assert_snapshot!(misuse(&["crds", "--output=toml"]), @"error: invalid value 'toml' for '--output <OUTPUT>' [possible values: yaml, json]; try --help");
}

#[test]
fn values_from_the_environment_are_checked_too() {
    let line = complaint(operator().arg("run").env("LOG_FORMAT", "xml"), 2);
    insta::assert_snapshot!(line, @"error: invalid value 'xml' for '--log-format <FORMAT>' [possible values: human, json]; try --help");
}

#[test]
fn the_controller_complains_in_the_same_way() {
    insta::assert_snapshot!(complaint(program("buildkite-controller").arg("--nonsense"), 2), @"error: unexpected argument '--nonsense' found; try --help");
}

#[test]
fn a_shim_that_is_not_there() {
    let files = Files::new();
    let line = files.failure(operator().args(["run", "--shim", &files.path("none")]));
    insta::assert_snapshot!(line, @"error: cannot read the shim [DIR]/none: No such file or directory (os error 2); pass its path with --shim");
}

#[test]
fn a_shim_that_is_no_program() {
    let files = Files::new();
    files.write("script", "#!/bin/sh\n");
    let line = files.failure(operator().args(["run", "--shim", &files.path("script")]));
    insta::assert_snapshot!(line, @"error: the shim [DIR]/script must be an ELF program of at most 1000000 bytes, to fit into a ConfigMap");
}

#[test]
fn a_kubeconfig_that_is_not_there() {
    let files = Files::new();
    insta::assert_snapshot!(files.failure(&mut files.run_with("none")), @"error: cannot read the kubeconfig [DIR]/none: No such file or directory (os error 2)");
}

#[test]
fn a_kubeconfig_that_is_a_directory() {
    let files = Files::new();
    fs::create_dir(Path::new(&files.path("directory"))).unwrap();
    insta::assert_snapshot!(files.failure(&mut files.run_with("directory")), @"error: cannot read the kubeconfig [DIR]/directory: Is a directory (os error 21)");
}

#[test]
fn a_kubeconfig_that_is_no_yaml_is_not_quoted() {
    let files = Files::new();
    files.write("broken", "users:\n- name: me\n  user: {token: hunter2\n");
    let line = files.failure(&mut files.run_with("broken"));
    assert!(!line.contains("hunter2"), "credentials are not shown: {line}");
    insta::assert_snapshot!(line, @"error: cannot parse the kubeconfig [DIR]/broken: line 3 column 9: unclosed bracket '{'");
}

#[test]
fn a_kubeconfig_that_says_nothing() {
    let files = Files::new();
    files.write("empty", "");
    insta::assert_snapshot!(files.failure(&mut files.run_with("empty")), @"error: cannot use the kubeconfig [DIR]/empty: failed to determine current context");
}

#[test]
fn a_kubeconfig_whose_context_does_not_exist() {
    let files = Files::new();
    files.write("dangling", "current-context: production\n");
    insta::assert_snapshot!(files.failure(&mut files.run_with("dangling")), @"error: cannot use the kubeconfig [DIR]/dangling: failed to load current context: production");
}

#[test]
fn no_cluster_anywhere() {
    let files = Files::new();
    let line = files
        .failure(operator().args(["run", "--shim", &files.path("shim")]).env("HOME", files.path("home")));
    insta::assert_snapshot!(line, @"error: not in a pod, and cannot read the kubeconfig [DIR]/home/.kube/config: No such file or directory (os error 2); pass --kubeconfig, or set KUBECONFIG");
}

#[test]
fn a_kubeconfig_from_the_environment_that_is_not_there() {
    let files = Files::new();
    let line = files.failure(
        operator().args(["run", "--shim", &files.path("shim")]).env("KUBECONFIG", files.path("none")),
    );
    insta::assert_snapshot!(line, @"error: not in a pod, and cannot read the kubeconfig [DIR]/none: No such file or directory (os error 2); pass --kubeconfig, or set KUBECONFIG");
}

/// Nothing listens on port 1, and nobody but the superuser could make it so.
const NOBODY_THERE: &str = r#"
apiVersion: v1
kind: Config
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: hunter2}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: me}}]
current-context: nowhere
"#;

#[test]
fn a_cluster_that_does_not_answer() {
    let files = Files::new();
    files.write("nowhere", NOBODY_THERE);
    insta::assert_snapshot!(files.failure(&mut files.run_with("nowhere")), @"error: cannot reach the Kubernetes API at https://127.0.0.1:1/: client error (Connect): tcp connect error: Connection refused (os error 111)");
}

#[test]
fn a_log_in_json_does_not_change_the_last_line() {
    let files = Files::new();
    files.write("nowhere", NOBODY_THERE);
    let human = files.failure(&mut files.run_with("nowhere"));
    let json = files.failure(files.run_with("nowhere").arg("--log-format=json"));
    assert_eq!(human, json);
}
