//! Logs, also over a bad network.

use buildkite_local::{Action, Answer, Config, Fault, Faults};

use crate::stage::{Mode, Stage, jobs};

const LINES: usize = 200_000;

#[tokio::test]
async fn a_log_is_whole_although_chunks_fail_come_late_and_come_twice() {
    let faults = Faults::default();
    let chunks = "/v3/jobs/*/chunks";
    let error = Answer { status: 500, body: None, headers: [].into() };
    // One after another, so that chunks overtake each other: three uploaders are at work.
    for (skip, times, action) in [
        (1, 2, Action::WaitBefore(0.7)),
        (3, 2, Action::Answer(error)),
        (5, 2, Action::LoseAnswer),
        (7, 2, Action::WaitAfter(0.7)),
        (9, 1, Action::Close),
    ] {
        faults.add(Fault { skip, times: Some(times), ..Fault::always(chunks, action) }).unwrap();
    }
    let stage = Stage::with(Config { faults: Some(faults.clone()), ..Config::default() }).await.unwrap();
    let steps = format!("steps: [{{key: one, command: 'echo begin; seq 1 {LINES}; echo end'}}]");
    let placed = stage.build(&steps).await.unwrap();
    let build = stage.finish(&placed, Mode::Acquire).await.unwrap();
    assert_eq!(build["state"], "passed");
    assert!(faults.list().iter().all(|fault| fault.spent), "{:?}", faults.list());
    let log = stage.log(jobs(&build).next().unwrap()).await.unwrap();
    let (_, log) = log.split_once("\nbegin\n").unwrap();
    let (numbers, _) = log.split_once("end\n").unwrap();
    let expected = (1..=LINES).map(|number| number.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    assert!(numbers == expected, "{} bytes instead of {}", numbers.len(), expected.len());
}

#[tokio::test]
async fn an_agent_without_time_stamps_in_its_log_is_served_as_well() {
    let stage = Stage::new().await.unwrap();
    let placed = stage.build("steps: [{key: one, command: \"echo '--- header'; echo text\"}]").await.unwrap();
    let job = stage.job(&placed, "one").await.unwrap();
    let id = job["id"].as_str().unwrap();
    let mut agent = stage.agent(&["--acquire-job", id, "--no-ansi-timestamps"]).unwrap();
    assert!(agent.ended().await.unwrap().success());
    assert!(!agent.log().contains("header times"), "{}", agent.log());
    assert!(stage.log(&job).await.unwrap().contains("--- header\ntext\n"));
}
