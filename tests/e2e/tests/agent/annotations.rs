//! Annotations.

use serde_json::{Value, json};

use crate::stage::{Case, Mode, jobs};

pub(crate) const ANNOTATIONS: Case = Case {
    commands: &["annotate", "annotation remove"],
    steps: r"
steps:
  - key: writer
    command:
      - run buildkite-agent annotate 'All *good*' --style success
      - echo 'from a pipe' | run buildkite-agent annotate --style info --context pipe.d/x
      - run buildkite-agent annotate --context pipe.d/x --append ' and more'
      - run buildkite-agent annotate urgent --context high --style error --priority 10
      - run buildkite-agent annotate careful --context w --style warning
      - run buildkite-agent annotate mine --context w --scope job
      - run buildkite-agent annotate gone --context remove.me
      - run buildkite-agent annotation remove --context remove.me
      - run buildkite-agent annotate gone --context w2 --scope job
      - run buildkite-agent annotation remove --context w2 --scope job
",
    results: &["0|", "0|", "0|", "0|", "0|", "0|", "0|", "0|", "0|", "0|"],
};

#[tokio::test]
async fn annotations_are_kept_as_written() {
    let (stage, placed, build) = ANNOTATIONS.play(Mode::Acquire).await;
    let writer = jobs(&build).next().unwrap()["id"].clone();
    let seen: Vec<Value> = stage.show(&placed, "/annotations").await.unwrap().as_array().unwrap().clone();
    let seen: Vec<Value> = seen
        .iter()
        .map(|one| {
            json!([one["context"], one["style"], one["scope"], one["job_id"], one["priority"], one["body"]])
        })
        .collect();
    let expected = [
        json!(["high", "error", "build", null, 10, "urgent"]),
        json!(["default", "success", "build", null, 3, "All *good*"]),
        json!(["pipe.d/x", "info", "build", null, 3, "from a pipe\n and more"]),
        json!(["w", "warning", "build", null, 3, "careful"]),
        json!(["w", "", "job", writer, 3, "mine"]),
    ];
    assert_eq!(seen, expected);
}
