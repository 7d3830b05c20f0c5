//! `buildkite-operator run-job` without a cluster: its help, and what it says when it cannot begin.

use rstest::rstest;

use crate::{operator, output};

#[test]
fn its_options() {
    insta::assert_snapshot!(output(operator().args(["run-job", "-h"])));
}

#[rstest]
#[case::no_command(&["run-job"], 2, "the following required arguments were not provided: <COMMAND>")]
#[case::image_and_environment(
    &["run-job", "--image=a", "--environment=b", "--", "x"], 2, "cannot be used with '--environment <NAME>'"
)]
#[case::no_duration(&["run-job", "--timeout=soon", "--", "x"], 2, "it must be a duration such as 90m or 1h30m")]
#[case::no_time(&["run-job", "--deadline=0s", "--", "x"], 2, "it must be positive")]
#[case::no_cluster(
    &["run-job", "--kubeconfig=/nowhere/config", "--", "x"], 125, "cannot read the kubeconfig /nowhere/config"
)]
fn what_it_cannot_begin_with_is_said_in_one_line(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] expected: &str,
) {
    let failure = operator().args(args).assert().code(code).stdout("");
    let text = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    assert!(text.starts_with("error: ") && text.contains(expected), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
