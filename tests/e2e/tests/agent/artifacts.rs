//! Artifacts.

use buildkite_local::Config;
use serde_json::Value;

use crate::stage::{Case, Mode, Stage, jobs};

pub(crate) const ARTIFACTS: Case = Case {
    commands: &["artifact upload", "artifact download", "artifact search", "artifact shasum"],
    steps: r#"
steps:
  - key: make
    artifact_paths: "auto.txt"
    command: |
      mkdir -p out/deep
      printf alpha > out/a.txt
      printf beta > out/deep/b.txt
      printf gamma > 'out/c d.log'
      printf auto > auto.txt
      seq 1 300000 > big.bin
      run buildkite-agent artifact upload 'out/**/*.txt;out/*.log'
      run buildkite-agent artifact upload big.bin
      run buildkite-agent artifact upload nothing.txt
  - wait
  - key: use
    command: |
      run buildkite-agent artifact shasum out/a.txt
      run buildkite-agent artifact shasum --sha256 out/a.txt
      run sh -c "buildkite-agent artifact search 'out/*' --format '%p %s\n' | sort"
      run sh -c "buildkite-agent artifact search '*' --step make --format '%p\n' | sort"
      run buildkite-agent artifact search '*' --step use --allow-empty-results --format '%p\n'
      run buildkite-agent artifact search 'out/a.txt' --build $$BUILDKITE_BUILD_ID --format '%S\n'
      run buildkite-agent artifact download 'out/*' .
      run cat out/a.txt out/deep/b.txt 'out/c d.log'
      mkdir there
      run buildkite-agent artifact download big.bin there/ --step make
      seq 1 300000 | run cmp - there/big.bin
      run buildkite-agent artifact download auto.txt .
      run cat auto.txt
"#,
    results: &[
        "0|",
        "0|",
        "0|",
        "0|be76331b95dfc399cd776d2fc68021e0db03cc4f",
        "0|8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8",
        "0|out/a.txt 5~out/c d.log 5~out/deep/b.txt 4",
        "0|auto.txt~big.bin~out/a.txt~out/c d.log~out/deep/b.txt",
        "0|",
        "0|be76331b95dfc399cd776d2fc68021e0db03cc4f",
        "0|",
        "0|alphabetagamma",
        "0|",
        "0|",
        "0|",
        "0|auto",
    ],
};

#[tokio::test]
async fn artifacts_come_back_as_they_went() {
    // Low enough that the large one goes up in parts.
    let stage = Stage::with(Config { multipart_from_bytes: 1024 * 1024, ..Config::default() }).await.unwrap();
    ARTIFACTS.play_on(&stage, Mode::Acquire).await;
}

pub(crate) const RETRIED: Case = Case {
    commands: &["artifact upload", "artifact search"],
    steps: r#"
steps:
  - key: flaky
    retry: {automatic: {exit_status: 1, limit: 1}}
    command: |
      echo "try $$BUILDKITE_RETRY_COUNT" > result.txt
      run buildkite-agent artifact upload result.txt
      test "$$BUILDKITE_RETRY_COUNT" = 1
  - wait
  - command: |
      run buildkite-agent artifact search result.txt --format '%p\n'
      run buildkite-agent artifact search result.txt --include-retried-jobs --format '%p\n'
      run buildkite-agent artifact download result.txt .
      run cat result.txt
"#,
    results: &["0|", "0|", "0|result.txt", "0|result.txt~result.txt", "0|", "0|try 1"],
};

#[tokio::test]
async fn a_retried_job_hides_what_it_left() {
    let (_stage, _, build) = RETRIED.play(Mode::Acquire).await;
    let states: Vec<&Value> =
        jobs(&build).filter(|job| job["type"] == "script").map(|job| &job["exit_status"]).collect();
    assert_eq!(states, [1, 0, 0]);
}
