//! The commands that talk to a cluster, without one: their help, what they say when they cannot begin, and their page.

use rstest::rstest;

use crate::{operator, output};

const DOCUMENT: &str = include_str!("../../../../docs/command-line.md");

#[rstest]
fn options(#[values("get", "describe", "logs", "cancel", "top", "doctor")] command: &str) {
    let help = output(operator().args([command, "-h"]));
    insta::assert_snapshot!(format!("{command}_options"), help);
}

#[rstest]
fn every_option_is_in_the_document(
    #[values("get", "describe", "logs", "cancel", "top", "doctor")] command: &str,
) {
    let (_, chapter) = DOCUMENT
        .split_once(&format!("## `{command}`"))
        .unwrap_or_else(|| panic!("there is no chapter on {command}"));
    let chapter = chapter.split("\n## ").next().unwrap_or_default();
    let common = DOCUMENT.split("\n## ").next().unwrap_or_default();
    let help = output(operator().args([command, "--help"]));
    let flags = help.split_whitespace().map(|word| word.trim_end_matches(','));
    for flag in flags.filter(|word| word.starts_with("--") && *word != "--help") {
        let quoted = format!("`{flag}");
        assert!(chapter.contains(&quoted) || common.contains(&quoted), "{command} {flag}");
    }
}

#[rstest]
#[case::no_job(&["describe"], 2, "the following required arguments were not provided: <JOB>...")]
#[case::no_phase(&["get", "--phase=fast"], 2, "invalid value 'fast' for '--phase <PHASE>'")]
#[case::no_kind(&["get", "pods"], 2, "invalid value 'pods' for '[KIND]' [possible values: jobs, environments, mirrors]")]
#[case::phases_of_mirrors(&["get", "mirrors", "--queue=linux"], 1, "--phase and --queue are about jobs")]
#[case::no_interval(&["top", "--interval=0"], 2, "0 is not in 1..")]
#[case::two_configurations(
    &["plan", "--job=a", "--cluster", "--config=b"], 2, "'--cluster' cannot be used with '--config <FILE>'"
)]
#[case::no_kubeconfig(
    &["get", "--kubeconfig=/nowhere/config"], 1, "cannot read the kubeconfig /nowhere/config"
)]
#[case::no_context(&["doctor", "--context=staging"], 1, "cannot read the kubeconfig")]
fn what_they_cannot_begin_with_is_said_in_one_line(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] expected: &str,
) {
    let failure = operator().env("HOME", "/nowhere").args(args).assert().code(code).stdout("");
    let text = String::from_utf8_lossy(&failure.get_output().stderr).into_owned();
    assert!(text.starts_with("error: ") && text.contains(expected), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}
