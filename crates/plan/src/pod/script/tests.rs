use std::process::Command;

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|item| (*item).to_owned()).collect()
}

const COMMAND: &[&str] = &["one", "two", "three", "four", "five six seven eight"];
const ARGS: &[&str] = &["nine", "ten", "eleven twelve"];

#[rstest]
#[case::lines(Interposer::Buildkite, "one\ntwo\nthree\nfour\nfive six seven eight nine ten 'eleven twelve'")]
#[case::words(Interposer::Vector, "one two three four 'five six seven eight' nine ten 'eleven twelve'")]
#[case::as_they_are(Interposer::Legacy, "one two three four five six seven eight nine ten eleven twelve")]
fn commands_become_scripts(#[case] interposer: Interposer, #[case] expected: &str) {
    let script = of(Some("make"), &owned(COMMAND), &owned(ARGS), interposer);
    assert_eq!(script, Ok(Some(expected.to_owned())));
}

#[rstest]
#[case::nothing_at_all(None, &[], Interposer::Buildkite, None)]
#[case::the_steps_own(Some("make"), &[], Interposer::Buildkite, Some("make"))]
#[case::with_args(Some("cd src\nmake"), &["test one", "-v"], Interposer::Buildkite, Some("cd src\nmake 'test one' -v"))]
#[case::with_args_behind_a_line(Some("make\n"), &["test"], Interposer::Vector, Some("make test"))]
#[case::with_args_as_they_are(Some("make"), &["$TARGET", "-v"], Interposer::Legacy, Some("make $TARGET -v"))]
#[case::args_of_nothing(None, &["make", "test"], Interposer::Buildkite, Some("make test"))]
fn without_a_command_the_steps_runs(
    #[case] step: Option<&str>,
    #[case] args: &[&str],
    #[case] interposer: Interposer,
    #[case] expected: Option<&str>,
) {
    assert_eq!(of(step, &[], &owned(args), interposer), Ok(expected.map(str::to_owned)));
}

#[rstest]
#[case("plain", "plain")]
#[case("", "''")]
#[case("a b", "'a b'")]
#[case("$HOME", r"\$HOME")]
#[case("it's", r"it\'s")]
#[case("it's late", r"'it'\''s late'")]
#[case("'a b'", r"\''a b'\'")]
#[case("~/x~", r"\~/x~")]
#[case("#1", r"\#1")]
#[case("--flag=*", r"--flag=\*")]
#[case("line\nline", "'line\nline'")]
fn words_are_quoted(#[case] word: &str, #[case] expected: &str) {
    assert_eq!(quote(word), expected);
}

#[test]
fn nul_is_refused() {
    assert_eq!(of(None, &owned(&["a"]), &owned(&["\0"]), Interposer::Buildkite), Err(NulByte));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A real shell reads back what was quoted.
    #[test]
    fn a_shell_reads_the_same_words(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
        let script = format!("printf '%s\\0' {}", quoted(words.iter()));
        let output = Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
        let read = String::from_utf8(output.stdout).expect("text stays text");
        prop_assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
    }
}
