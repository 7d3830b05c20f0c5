//! The document says what there is.

use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../../docs/buildkite-local.md");

#[test]
fn every_flag_of_serve_is_described() {
    let output = assert_cmd::Command::cargo_bin("buildkite-local")
        .unwrap()
        .args(["serve", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let flags: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("-h, ").or(Some(line.trim_start())))
        .filter(|line| line.starts_with("--"))
        .filter_map(|line| {
            line.split(|character: char| character != '-' && !character.is_ascii_alphanumeric()).next()
        })
        .collect();
    assert!(flags.len() > 10, "the help reads differently: {help}");
    let missing: Vec<_> = flags
        .into_iter()
        .filter(|flag| *flag != "--help" && !DOCUMENT.contains(&format!("`{flag}`")))
        .collect();
    assert!(missing.is_empty(), "docs/buildkite-local.md does not mention {missing:?}");
}
