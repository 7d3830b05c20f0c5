use rstest::rstest;

use super::*;
use crate::build::Event;
use crate::build::bench::Bench;
use StepOutcome::{Errored, HardFailed, Neutral, Passed, SoftFailed};
use StepState::{Failing, Finished, Ignored, Ready, Running, WaitingForDependencies};

/// Plays a script on the build: `start a`, `end a 1`, `cancel a`, `promise a 1`, `unblock a`.
fn play(bench: &mut Bench, script: &str) {
    for line in script.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let (verb, label) = (words.next().unwrap(), words.next().unwrap());
        let number: i64 = words.next().map_or(0, |word| word.parse().unwrap());
        let job = bench.job(label).id;
        match verb {
            "start" => bench.start(job),
            "end" => bench.run(label, number),
            "finish" => bench.end(job, number),
            "cancel" => drop(bench.event(&Event::CancelJob { job }).unwrap()),
            "promise" => drop(bench.event(&Event::Promised { job, exit_status: number }).unwrap()),
            "unblock" => drop(bench.event(&Event::Unblock { job }).unwrap()),
            other => panic!("{other}"),
        }
    }
}

fn step(bench: &Bench, label: &str) -> Uuid {
    bench.build.steps.iter().find(|placed| placed.step.label.as_deref() == Some(label)).unwrap().id
}

const CHAIN: &str = "[{label: a, command: x}, wait, {label: b, command: x}]";
const PAIR: &str = "[{label: a, command: x, parallelism: 2}]";
const GROUP: &str = "[{group: g, steps: [{label: a, command: x}, {label: b, command: x}]}]";
const GATE: &str = "[{label: a, command: x}, {block: gate}]";

#[rstest]
#[case::ready(CHAIN, "", "a", Ready, Neutral)]
#[case::waits(CHAIN, "", "b", WaitingForDependencies, Neutral)]
#[case::runs(CHAIN, "start a", "a", Running, Neutral)]
#[case::passes(CHAIN, "end a 0", "a", Finished, Passed)]
#[case::fails(CHAIN, "end a 1", "a", Finished, HardFailed)]
#[case::is_cancelled(CHAIN, "cancel a", "a", Finished, HardFailed)]
#[case::never_could(CHAIN, "end a 1", "b", Finished, Errored)]
#[case::half_done(PAIR, "end a 0", "a", Running, Neutral)]
#[case::half_failed(PAIR, "end a 1", "a", Failing, HardFailed)]
#[case::soft("[{label: a, command: x, soft_fail: true}]", "end a 1", "a", Finished, SoftFailed)]
#[case::soft_elsewhere(
    "[{label: a, command: x, soft_fail: [{exit_status: 2}]}]",
    "end a 1",
    "a",
    Finished,
    HardFailed
)]
#[case::retried("[{label: a, command: x, retry: {automatic: true}}]", "end a 1", "a", Ready, Neutral)]
#[case::passes_at_last(
    "[{label: a, command: x, retry: {automatic: true}}]",
    "end a 1; end a 0",
    "a",
    Finished,
    Passed
)]
#[case::skipped("[{label: a, command: x, skip: true}]", "", "a", Ignored, Neutral)]
#[case::filtered("[{label: a, command: x, if: 'false'}]", "", "a", Ignored, Neutral)]
#[case::limited("[{label: a, command: x, concurrency: 1, concurrency_group: g}]", "", "a", Ready, Neutral)]
#[case::triggered("[{trigger: other, label: a}]", "", "a", Running, Neutral)]
#[case::group_ready(GROUP, "", "g", Ready, Neutral)]
#[case::group_runs(GROUP, "end a 0", "g", Running, Neutral)]
#[case::group_fails(GROUP, "end a 1", "g", Failing, HardFailed)]
#[case::group_passes(GROUP, "end a 0; end b 0", "g", Finished, Passed)]
#[case::gate_waits(GATE, "", "gate", WaitingForDependencies, Neutral)]
#[case::gate_asks(GATE, "end a 0", "gate", Ready, Neutral)]
#[case::gate_is_answered(GATE, "end a 0; unblock gate", "gate", Finished, Passed)]
#[case::gate_never_could(GATE, "end a 1", "gate", Finished, Errored)]
fn where_a_step_is(
    #[case] steps: &str,
    #[case] script: &str,
    #[case] label: &str,
    #[case] state: StepState,
    #[case] outcome: StepOutcome,
) {
    let mut bench = Bench::new(&format!("steps: {steps}"));
    play(&mut bench, script);
    let step = step(&bench, label);
    assert_eq!((bench.build.step_state(step), bench.build.step_outcome(step)), (state, outcome));
}

/// A step `b` that is to be cancelled once the build is failing, in the state that `script` brings it to.
#[rstest]
#[case::ready("", "end a 1", JobState::Canceled)]
#[case::running("start b", "end a 1", JobState::Canceling)]
#[case::passed("end b 0", "end a 1", JobState::Finished)]
#[case::announced("", "start a; promise a 1", JobState::Canceled)]
#[case::nothing_failed("", "end a 0", JobState::Scheduled)]
#[case::cancelled("", "cancel a", JobState::Canceled)]
#[case::soft("", "end soft 1", JobState::Scheduled)]
#[case::to_be_tried_again("", "end again 1", JobState::Scheduled)]
#[case::tried_enough("", "end again 1; end again 1", JobState::Canceled)]
fn cancelled_when_failing(#[case] before: &str, #[case] script: &str, #[case] expected: JobState) {
    let mut bench = Bench::new(
        "steps: [{label: a, command: x}, {label: soft, command: x, soft_fail: true},
          {label: again, command: x, retry: {automatic: {limit: 1}}},
          {label: b, command: x, cancel_on_build_failing: true}, {label: c, command: x}]",
    );
    play(&mut bench, before);
    play(&mut bench, script);
    assert_eq!((bench.state("b"), bench.state("c")), (expected, JobState::Scheduled));
}

#[test]
fn one_that_waits_is_cancelled_too() {
    let mut bench = Bench::new(
        "steps: [{label: a, command: x}, {label: slow, key: slow, command: x},
          {label: b, command: x, depends_on: slow, cancel_on_build_failing: true}]",
    );
    play(&mut bench, "end a 1");
    assert_eq!(bench.state("b"), JobState::Canceled);
}
