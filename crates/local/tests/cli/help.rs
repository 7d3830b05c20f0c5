//! What a new user reads: the help of each command, and typical errors.

use crate::harness::{command, one_line_error};

#[rstest::rstest]
#[case("")]
#[case("serve")]
#[case("build")]
#[case("log")]
#[case("cancel")]
#[case("retry")]
#[case("unblock")]
#[case("builds")]
#[case("artifacts")]
#[case("agents")]
#[case("queue")]
fn help(#[case] name: &str) {
    let mut command = command();
    if !name.is_empty() {
        command.arg(name);
    }
    let output = command.arg("-h").env("COLUMNS", "110").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let shown = if name.is_empty() { "all" } else { name };
    insta::assert_snapshot!(format!("help_{shown}"), text);
}

#[rstest::rstest]
#[case("no_server", &["builds", "--server", "http://127.0.0.1:1"])]
#[case("no_repository", &["build", "x.yml", "--repo", "nowhere"])]
#[case("no_token_file", &["builds", "--api-token-file", "nowhere"])]
fn errors(#[case] name: &str, #[case] arguments: &[&str]) {
    let error = one_line_error(command().args(arguments));
    insta::with_settings!({filters => vec![(r": error sending.*", ": [why]")]}, {
        insta::assert_snapshot!(format!("error_{name}"), error);
    });
}

#[rstest::rstest]
#[case("reference", &["log", "what?"])]
#[case("pair", &["build", "--env", "NAME"])]
#[case("dirty_commit", &["build", "--dirty", "--commit", "abc"])]
#[case("raw_plain", &["log", "1", "--raw", "--plain"])]
#[case("limit", &["builds", "-n", "0"])]
fn usage(#[case] name: &str, #[case] arguments: &[&str]) {
    let output = command().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(format!("usage_{name}"), String::from_utf8(output.stderr).unwrap());
}
