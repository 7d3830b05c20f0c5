use rstest::rstest;

use super::*;
use crate::build::bench::Bench;

const YAML: &str = "
steps:
  - label: Test
    key: test
    command: make
    agents: {os: linux}
    env: {A: b}
    depends_on: [{step: other, allow_failure: true}]
    parallelism: 2
    timeout_in_minutes: 5
    priority: 3
    if: 'true'
    notify: [{slack: a}]
    concurrency: 4
    concurrency_group: g
  - {key: other, command: x}
";

fn build() -> Build {
    Bench::new(YAML).build
}

fn read(attribute: &str, format: &str) -> Result<String, AttributeProblem> {
    let build = build();
    export(&build, &build.steps[0], attribute, format)
}

#[rstest]
#[case("label", "", "Test")]
#[case("label", "json", "\"Test\"")]
#[case("key", "", "test")]
#[case("command", "", "make")]
#[case("type", "", "command")]
#[case("timeout", "", "5")]
#[case("timeout", "json", "5")]
#[case("parallelism", "", "2")]
#[case("state", "", "waiting_for_dependencies")]
#[case("outcome", "", "neutral")]
#[case("if", "", "true")]
#[case("concurrency_key", "", "g")]
#[case("concurrency_limit", "", "4")]
#[case("notify", "json", r#"[{"slack":"a"}]"#)]
#[case("env", "json", r#"{"A":"b"}"#)]
#[case("agents", "json", r#"["os=linux"]"#)]
#[case("depends_on", "json", r#"[{"allow_failure":true,"step":"other"}]"#)]
fn attributes_are_read(#[case] attribute: &str, #[case] format: &str, #[case] expected: &str) {
    assert_eq!(read(attribute, format).unwrap(), expected);
}

#[rstest]
#[case("env", "", "format json")]
#[case("agents", "", "format json")]
#[case("", "", "format json")]
#[case("nonsense", "", "no attribute")]
#[case("nonsense", "json", "no attribute")]
#[case("label", "yaml", "not known")]
fn what_cannot_be_read_is_refused(#[case] attribute: &str, #[case] format: &str, #[case] reason: &str) {
    let problem = read(attribute, format).unwrap_err().to_string();
    assert!(problem.contains(reason), "{problem}");
}

#[test]
fn a_whole_step_is_an_object() {
    let whole: Value = serde_json::from_str(&read("", "json").unwrap()).unwrap();
    assert_eq!((&whole["key"], &whole["state"]), (&json!("test"), &json!("waiting_for_dependencies")));
    // What is absent is null, and has an empty plain form.
    let build = build();
    assert_eq!(export(&build, &build.steps[1], "label", "").unwrap(), "");
}

#[rstest]
#[case("label", "New", false, "label", "New")]
#[case("label", " more", true, "label", "Test more")]
#[case("priority", "10", false, "priority", "10")]
#[case("priority", "-1", false, "priority", "-1")]
#[case("notify", r#"["x"]"#, true, "notify", r#"[{"slack":"a"},"x"]"#)]
#[case("notify", r#"["x"]"#, false, "notify", r#"["x"]"#)]
fn attributes_are_changed(
    #[case] attribute: &str,
    #[case] value: &str,
    #[case] append: bool,
    #[case] read: &str,
    #[case] expected: &str,
) {
    let mut build = build();
    change(&mut build.steps.change()[0].step, attribute, value, append).unwrap();
    let format = if read == "notify" { "json" } else { "" };
    assert_eq!(export(&build, &build.steps[0], read, format).unwrap(), expected);
}

#[rstest]
#[case("priority", "high", false)]
#[case("priority", "1", true)]
#[case("notify", "x", false)]
#[case("if", "x", false)]
#[case("command", "x", false)]
#[case("state", "finished", false)]
#[case("nonsense", "x", false)]
#[case("", "x", false)]
fn what_cannot_be_changed_is_refused(#[case] attribute: &str, #[case] value: &str, #[case] append: bool) {
    let mut build = build();
    let before = build.steps[0].step.clone();
    assert!(change(&mut build.steps.change()[0].step, attribute, value, append).is_err());
    assert_eq!(build.steps[0].step, before);
}
