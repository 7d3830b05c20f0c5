//! Build meta-data.

use rstest::rstest;
use serde_json::json;

use crate::stage::{Case, Mode};

pub(crate) const META_DATA: Case = Case {
    commands: &[
        "meta-data set",
        "meta-data get",
        "meta-data exists",
        "meta-data keys",
        "meta-data set-batch",
    ],
    steps: r#"
steps:
  - command:
      - run buildkite-agent meta-data exists colour
      - run buildkite-agent meta-data set colour green
      - run buildkite-agent meta-data exists colour
      - run buildkite-agent meta-data get colour
      - printf 'two\nlines' | run buildkite-agent meta-data set text
      - run buildkite-agent meta-data set colour blue
      - run buildkite-agent meta-data set-batch "one=1" "two=a=b"
      - run buildkite-agent meta-data get none --default fallback
      - run buildkite-agent meta-data get none
      - run buildkite-agent meta-data keys
  - wait
  - command:
      - run buildkite-agent meta-data get colour
      - run buildkite-agent meta-data get text
      - run buildkite-agent meta-data get --build $$BUILDKITE_BUILD_ID two
      - run buildkite-agent meta-data exists --build $$BUILDKITE_BUILD_ID two
      - run buildkite-agent meta-data keys --build $$BUILDKITE_BUILD_ID
"#,
    results: &[
        "100|",
        "0|",
        "0|",
        "0|green",
        "0|",
        "0|",
        "0|",
        "0|fallback",
        "1|",
        "0|colour~one~text~two",
        "0|blue",
        "0|two~lines",
        "0|a=b",
        "0|",
        "0|colour~one~text~two",
    ],
};

#[rstest]
#[case::acquire(Mode::Acquire)]
#[case::classic(Mode::Classic)]
#[tokio::test]
async fn meta_data_belongs_to_the_build(#[case] mode: Mode) {
    let (_stage, _, build) = META_DATA.play(mode).await;
    let expected = json!({"colour": "blue", "text": "two\nlines", "one": "1", "two": "a=b"});
    assert_eq!(build["meta_data"], expected);
}
