//! Steps, read and changed from inside a job.

use crate::stage::{Case, Mode, jobs};

pub(crate) const STEPS: Case = Case {
    commands: &["step get", "step update"],
    steps: r#"
steps:
  - key: one
    label: first
    command:
      - run buildkite-agent step get label
      - run buildkite-agent step get state --step two.dots
      - run buildkite-agent step update label " and more" --append
      - run buildkite-agent step get label --step one
      - run buildkite-agent step get label --step nothing
  - wait
  - key: two.dots
    label: second
    command: run buildkite-agent step get outcome --step one
"#,
    results: &["0|first", "0|waiting_for_dependencies", "0|", "0|first and more", "1|", "0|passed"],
};

#[tokio::test]
async fn steps_are_read_and_changed() {
    let (_stage, _, build) = STEPS.play(Mode::Acquire).await;
    assert_eq!(jobs(&build).next().unwrap()["name"], "first and more");
}
