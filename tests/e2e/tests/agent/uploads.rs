//! Steps that jobs add to their build.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::process;
use crate::stage::{Case, Mode, Stage, jobs};

pub(crate) const UPLOADS: Case = Case {
    commands: &["pipeline upload"],
    steps: r#"
steps:
  - key: up
    command: |
      export COLOUR=green
      cat > plain.yml <<'END'
      env: {SHARED: "yes"}
      steps:
        - key: plain
          command: 'run echo "$$COLOUR $$$$SHARED $${NONE:-default}"'
        - key: unchanged
          command: run echo never
          if_changed: "docs/**"
      END
      echo src/main.rs > changed.txt
      run sh -c 'buildkite-agent pipeline upload --dry-run plain.yml | grep -c green'
      run buildkite-agent pipeline upload --changed-files-path changed.txt plain.yml
      printf 'steps: [{key: piped, command: "run echo piped", depends_on: plain}]' | run buildkite-agent pipeline upload
      printf -- '---\nsteps: [{key: one, command: run echo one}]\n---\nsteps: [{key: two, command: run echo two}]\n' > both.yml
      run buildkite-agent pipeline upload both.yml
      printf 'steps: [{key: up, command: again}]' | run buildkite-agent pipeline upload
      printf 'steps: [{key: raw, command: "run echo $$COLOUR"}]' | run buildkite-agent pipeline upload --no-interpolation
  - wait
  - key: after
    command: run echo after
"#,
    results: &[
        "0|1",
        "0|",
        "0|",
        "0|",
        "1|",
        "0|",
        // Without interpolation the name reached the job, which has no such variable.
        "0|",
        "0|two",
        "0|one",
        "0|piped",
        "0|green yes default",
        "0|after",
    ],
};

#[tokio::test]
async fn uploaded_steps_run_before_what_waits_for_the_uploader() {
    let (_stage, _, build) = UPLOADS.play(Mode::Acquire).await;
    let steps: Vec<_> = jobs(&build).map(|job| json!([job["step_key"], job["state"]])).collect();
    let expected = [
        json!(["up", "passed"]),
        json!(["raw", "passed"]),
        json!(["two", "passed"]),
        json!(["one", "passed"]),
        json!(["piped", "passed"]),
        json!(["plain", "passed"]),
        json!(["unchanged", "skipped"]),
        json!([null, "passed"]),
        json!(["after", "passed"]),
    ];
    assert_eq!(steps, expected);
}

pub(crate) const REPLACE: Case = Case {
    commands: &["pipeline upload"],
    steps: r#"
steps:
  - key: up
    command: "echo 'steps: [{key: only, command: run echo only}]' | run buildkite-agent pipeline upload --replace"
  - wait
  - key: gone
    command: run echo gone
"#,
    results: &["0|", "0|only"],
};

#[tokio::test]
async fn a_replacement_drops_what_has_not_begun() {
    let (_stage, _, build) = REPLACE.play(Mode::Acquire).await;
    let keys: Vec<&Value> = jobs(&build).map(|job| &job["step_key"]).collect();
    assert_eq!(keys, ["up", "only"]);
}

/// A new key pair; the files with the private and the public half.
fn keys(stage: &Stage) -> [PathBuf; 2] {
    let [private, public] = ["private", "public"].map(|half| stage.directory().join(format!("{half}.json")));
    let made = Command::new(process::program().unwrap())
        .args(["tool", "keygen", "--alg", "EdDSA", "--key-id", "test"])
        .arg("--private-jwks-file")
        .arg(&private)
        .arg("--public-jwks-file")
        .arg(&public)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    [private, public]
}

#[tokio::test]
async fn signed_steps_reach_the_verifying_agent_unaltered() {
    let stage = Stage::new().await.unwrap();
    let [private, public] = keys(&stage);
    let sign = format!("--signing-jwks-file={}", private.display());
    let verify = format!("--verification-jwks-file={}", public.display());
    let steps = r#"
steps:
  - key: up
    command: |
      cat > signed.yml <<'END'
      env: {TOP: level}
      steps:
        - key: signed
          label: ":lock: signed"
          command: ["echo first", "echo second $$$$OWN"]
          env: {OWN: "1", FLAG: true}
          plugins: []
      END
      buildkite-agent pipeline upload signed.yml
  - key: unsigned
    command: echo no
"#;
    let placed = stage.build(steps).await.unwrap();
    let up = stage.job(&placed, "up").await.unwrap();
    let id = up["id"].as_str().unwrap();
    let mut uploader = stage.agent(&["--acquire-job", id, &sign, "--signing-jwks-key-id=test"]).unwrap();
    let up = stage.job_when(&placed, "up", "ends", |job| job["job_state"] == "finished").await.unwrap();
    assert_eq!(up["exit_status"], 0, "{}", stage.log(&up).await.unwrap());
    for (key, exit_status, reason) in
        [("signed", json!(0), json!(null)), ("unsigned", json!(-1), json!("signature_rejected"))]
    {
        let job = stage.job(&placed, key).await.unwrap();
        let mut agent = stage.agent(&["--acquire-job", job["id"].as_str().unwrap(), &verify]).unwrap();
        let job = stage.job_when(&placed, key, "ends", |job| job["job_state"] == "finished").await.unwrap();
        let log = stage.log(&job).await.unwrap();
        assert_eq!((&job["exit_status"], &job["signal_reason"]), (&exit_status, &reason), "{log}");
        if key == "signed" {
            assert!(log.contains("first\nsecond 1\n"), "{log}");
        }
        agent.ended().await.unwrap();
    }
    uploader.ended().await.unwrap();
}
