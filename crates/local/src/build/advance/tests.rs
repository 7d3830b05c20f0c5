//! Scenarios in YAML.

mod circles;
mod properties;

use jiff::SignedDuration;
use rstest::rstest;
use uuid::Uuid;

use super::*;
use crate::build::BuildState;
use crate::build::bench::Bench;

const WAITED: &str = "
steps:
  - {label: a, command: x}
  - {label: b, command: x}
  - wait
  - {label: c, command: x}
";

#[test]
fn a_wait_holds_the_rest_until_all_before_it_passed() {
    let mut bench = Bench::new(WAITED);
    assert_eq!(bench.build.state, BuildState::Scheduled);
    bench.run("a", 0);
    assert_eq!((bench.state("c"), bench.build.state), (JobState::Waiting, BuildState::Running));
    bench.run("b", 0);
    assert_eq!(bench.state("c"), JobState::Scheduled);
    bench.run("c", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
    assert!(bench.build.finished_at.is_some());
}

#[test]
fn a_failure_before_a_wait_fails_the_rest_and_a_retry_revives_it() {
    let mut bench = Bench::new(WAITED);
    bench.run("a", 3);
    assert_eq!(bench.build.state, BuildState::Failing);
    bench.run("b", 0);
    assert_eq!((bench.state("c"), bench.build.state), (JobState::WaitingFailed, BuildState::Failed));
    let failed = bench.job("a").id;
    bench.event(&Event::Retry { job: failed }).unwrap();
    assert_eq!((bench.state("a"), bench.state("c")), (JobState::Scheduled, JobState::Waiting));
    assert!(bench.build.finished_at.is_none());
    bench.run("a", 0);
    bench.run("c", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
    let again = bench.event(&Event::Retry { job: failed });
    assert!(matches!(again, Err(Refusal::NoRetry { .. })), "{again:?}");
}

#[test]
fn continue_on_failure_goes_on_but_not_after_a_cancellation() {
    let yaml =
        "steps: [{label: a, command: x}, {wait: ~, continue_on_failure: true}, {label: b, command: x}]";
    let mut bench = Bench::new(yaml);
    bench.run("a", 1);
    assert_eq!(bench.state("b"), JobState::Scheduled);
    bench.run("b", 0);
    assert_eq!(bench.build.state, BuildState::Failed);

    let mut bench = Bench::new(yaml);
    let id = bench.job("a").id;
    bench.event(&Event::CancelJob { job: id }).unwrap();
    assert_eq!((bench.state("a"), bench.state("b")), (JobState::Canceled, JobState::WaitingFailed));
}

#[rstest]
#[case::bare("depends_on: a", JobState::WaitingFailed)]
#[case::allowed("depends_on: [{step: a, allow_failure: true}]", JobState::Scheduled)]
#[case::all_allowed("depends_on: a\n    allow_dependency_failure: true", JobState::Scheduled)]
#[case::none("depends_on: []", JobState::Scheduled)]
fn dependencies_on_a_failed_step(#[case] line: &str, #[case] expected: JobState) {
    let yaml = format!(
        "steps:\n  - label: a\n    key: a\n    command: x\n  - label: b\n    command: x\n    {line}\n"
    );
    let mut bench = Bench::new(&yaml);
    bench.run("a", 1);
    assert_eq!(bench.state("b"), expected);
}

#[test]
fn explicit_dependencies_replace_the_wait() {
    let yaml = "steps:\n  - {label: a, key: a, command: x}\n  - {label: b, command: x}\n  - wait\n  - {label: c, depends_on: a, command: x}\n";
    let mut bench = Bench::new(yaml);
    bench.run("a", 0);
    assert_eq!((bench.state("b"), bench.state("c")), (JobState::Scheduled, JobState::Scheduled));
}

#[test]
fn a_missing_key_fails_the_step_once_nothing_can_bring_it() {
    let mut bench =
        Bench::new("steps: [{label: a, command: x}, {label: b, depends_on: nowhere, command: x}]");
    assert_eq!(bench.state("b"), JobState::Waiting);
    bench.run("a", 0);
    assert_eq!((bench.state("b"), bench.build.state), (JobState::WaitingFailed, BuildState::Failed));
}

#[test]
fn steps_that_wait_for_each_other_end_the_build() {
    let yaml = "steps: [{label: a, key: a, depends_on: b, command: x}, {label: b, key: b, depends_on: a, command: x}]";
    assert_eq!(Bench::new(yaml).build.state, BuildState::Failed);
}

#[test]
fn soft_failures_satisfy_and_pass() {
    let mut bench = Bench::new(
        "steps:\n  - {label: a, command: x, soft_fail: [{exit_status: 7}]}\n  - wait\n  - {label: b, command: x, soft_fail: true}\n",
    );
    bench.run("a", 7);
    assert!(bench.job("a").soft_failed);
    bench.run("b", -1);
    assert_eq!(bench.build.state, BuildState::Passed);
}

#[test]
fn automatic_retries_follow_their_rules_and_limits() {
    let yaml = "
steps:
  - label: a
    command: x
    retry: {automatic: [{exit_status: -1, limit: 1}, {exit_status: '*', limit: 2}]}
  - wait
  - {label: b, command: x}
";
    let mut bench = Bench::new(yaml);
    bench.run("a", -1);
    assert_eq!((bench.job("a").retry_count, bench.state("a")), (1, JobState::Scheduled));
    bench.run("a", 9);
    bench.run("a", 9);
    assert_eq!((bench.job("a").retry_count, bench.state("b")), (3, JobState::Waiting));
    bench.run("a", 9);
    assert_eq!((bench.state("a"), bench.state("b")), (JobState::Finished, JobState::WaitingFailed));
    assert_eq!(bench.build.state, BuildState::Failed);
    assert_eq!(bench.build.jobs.iter().filter(|job| job.retried_in.is_some()).count(), 3);
}

#[test]
fn a_star_does_not_stand_for_minus_one() {
    let mut bench =
        Bench::new("steps: [{label: a, command: x, retry: {automatic: [{exit_status: '*', limit: 2}]}}]");
    bench.run("a", -1);
    assert_eq!(bench.build.state, BuildState::Failed);
}

#[test]
fn cancelling_a_build_ends_waiting_jobs_at_once_and_running_ones_when_they_answer() {
    let mut bench = Bench::new(WAITED);
    let running = bench.job("a").id;
    bench.start(running);
    bench.event(&Event::CancelBuild).unwrap();
    assert_eq!(
        (bench.state("a"), bench.state("b"), bench.state("c")),
        (JobState::Canceling, JobState::Canceled, JobState::Canceled)
    );
    assert_eq!(bench.build.state, BuildState::Canceling);
    bench.end(running, -1);
    assert_eq!((bench.state("a"), bench.build.state), (JobState::Canceled, BuildState::Canceled));
}

#[test]
fn cancelling_a_step_ends_its_jobs_and_hurries_its_agents() {
    let mut bench = Bench::new(
        "steps: [{label: a, command: x, parallelism: 2, soft_fail: true}, wait, {label: b, command: x}]",
    );
    let running = bench.build.jobs[0].id;
    bench.start(running);
    let (step, stop_by) = (bench.build.jobs[0].step, Some(bench.now));
    bench.event(&Event::CancelStep { step, stop_by }).unwrap();
    let first = &bench.build.jobs[0];
    assert_eq!((first.state, first.stop_by), (JobState::Canceling, stop_by));
    assert_eq!(bench.state("a"), JobState::Canceled);
    bench.event(&Event::DeadlinePassed { job: running }).unwrap();
    // A soft failure does not hold up the rest.
    assert_eq!((bench.build.jobs[0].state, bench.state("b")), (JobState::Canceled, JobState::Scheduled));
    bench.event(&Event::CancelStep { step, stop_by: None }).unwrap();
    assert_eq!(bench.state("b"), JobState::Scheduled);
}

#[rstest]
#[case::hard("", BuildState::Failing)]
#[case::soft(", soft_fail: [{exit_status: 3}]", BuildState::Running)]
#[case::another_is_soft(", soft_fail: [{exit_status: 4}]", BuildState::Failing)]
#[case::retried(", retry: {automatic: [{exit_status: 3, limit: 1}]}", BuildState::Running)]
fn a_promised_failure_counts_before_the_end(#[case] attributes: &str, #[case] expected: BuildState) {
    let yaml = format!(
        "steps: [{{label: a, command: x{attributes}}}, {{label: b, command: x, cancel_on_build_failing: true}}]"
    );
    let mut bench = Bench::new(&yaml);
    let id = bench.job("a").id;
    bench.start(id);
    bench.event(&Event::Promised { job: id, exit_status: 3 }).unwrap();
    assert_eq!((bench.state("a"), bench.build.state), (JobState::Running, expected));
    let failing = expected == BuildState::Failing;
    assert_eq!(bench.state("b") == JobState::Canceled, failing);
    bench.end(id, 3);
    assert_eq!(bench.build.state == BuildState::Failed, failing);
}

#[test]
fn a_stack_ends_only_what_no_agent_has() {
    let mut bench = Bench::new(WAITED);
    let (mine, other) = (Uuid::from_u128(77), Uuid::from_u128(78));
    let (a, b) = (bench.job("a").id, bench.job("b").id);
    bench.start(a);
    let taken = bench.event(&Event::StackFinished { job: a, stack: mine, exit_status: -1 });
    assert!(matches!(taken, Err(Refusal::WrongState { .. })));
    let reserved = bench.build.jobs.iter_mut().find(|job| job.id == b).unwrap();
    (reserved.state, reserved.stack) = (JobState::Reserved, Some(mine));
    let foreign = bench.event(&Event::StackFinished { job: b, stack: other, exit_status: -1 });
    assert!(matches!(foreign, Err(Refusal::WrongState { .. })));
    bench.event(&Event::StackFinished { job: b, stack: mine, exit_status: 5 }).unwrap();
    let job = bench.job("b");
    assert_eq!(
        (job.state, job.exit_status, job.signal_reason.as_deref()),
        (JobState::Finished, Some(5), Some("stack_error"))
    );
}

#[test]
fn a_lost_agent_fails_a_running_job_and_returns_an_accepted_one() {
    let mut bench = Bench::new(WAITED);
    let (a, b) = (bench.job("a").id, bench.job("b").id);
    bench.start(a);
    let now = bench.now;
    bench
        .build
        .jobs
        .iter_mut()
        .find(|job| job.id == b)
        .unwrap()
        .acquire(Uuid::nil(), "t".into(), now)
        .unwrap();
    for job in [a, b] {
        bench.event(&Event::AgentGone { job, signal_reason: None }).unwrap();
    }
    assert_eq!((bench.state("a"), bench.job("a").exit_status), (JobState::Finished, Some(-1)));
    assert_eq!((bench.state("b"), bench.job("b").token.clone()), (JobState::Scheduled, None));
}

#[test]
fn timeouts_warn_then_end() {
    let mut bench = Bench::new("steps: [{label: a, command: x, timeout_in_minutes: 1}]");
    let id = bench.job("a").id;
    bench.start(id);
    let policy = crate::build::Policy {
        start_within: SignedDuration::from_secs(60),
        stop_within: SignedDuration::from_secs(60),
        expire_after: SignedDuration::from_hours(1),
    };
    let started = bench.job("a").started_at.unwrap();
    assert_eq!(bench.job("a").deadline(&policy), started.checked_add(SignedDuration::from_mins(1)).ok());
    bench.event(&Event::DeadlinePassed { job: id }).unwrap();
    assert_eq!(bench.state("a"), JobState::TimingOut);
    bench.event(&Event::DeadlinePassed { job: id }).unwrap();
    assert_eq!(
        (bench.state("a"), bench.job("a").signal_reason.as_deref()),
        (JobState::TimedOut, Some("cancel"))
    );
    assert_eq!(bench.build.state, BuildState::Failed);
}

#[test]
fn a_block_waits_for_its_answer() {
    let mut bench =
        Bench::new("steps: [{label: a, command: x}, {block: Go?, label: gate}, {label: b, command: x}]");
    let gate = bench.job("gate").id;
    assert!(bench.event(&Event::Unblock { job: gate }).is_err());
    bench.run("a", 0);
    assert_eq!((bench.state("gate"), bench.build.state), (JobState::Blocked, BuildState::Blocked));
    bench.event(&Event::Unblock { job: gate }).unwrap();
    assert_eq!(bench.state("b"), JobState::Scheduled);
}

#[test]
fn uploaded_steps_wait_for_their_uploader_and_hold_what_follows_it() {
    let mut bench = Bench::new("steps: [{label: up, command: x}, wait, {label: after, command: x}]");
    let up = bench.job("up").id;
    bench.start(up);
    let step = bench.job("up").step;
    bench.lay("steps: [{label: one, command: x}, wait, {label: two, command: x}]", Some(step));
    bench.lay("steps: [{label: free, command: x, depends_on: []}]", Some(step));
    assert_eq!((bench.state("one"), bench.state("free")), (JobState::Waiting, JobState::Scheduled));
    bench.end(up, 0);
    assert_eq!((bench.state("one"), bench.state("after")), (JobState::Scheduled, JobState::Waiting));
    bench.run("one", 0);
    // The later upload of the same job comes first in the list, so the uploaded wait holds for it too.
    assert_eq!(bench.state("two"), JobState::Waiting);
    bench.run("free", 0);
    assert_eq!((bench.state("two"), bench.state("after")), (JobState::Scheduled, JobState::Waiting));
    bench.run("two", 0);
    assert_eq!(bench.state("after"), JobState::Scheduled);
}

#[test]
fn groups_keep_their_waits_to_themselves_and_stand_for_their_members() {
    let yaml = "
steps:
  - group: g
    key: g
    steps: [{label: a, command: x}, wait, {label: b, command: x}]
  - {label: beside, command: x}
  - {label: after, depends_on: g, command: x}
";
    let mut bench = Bench::new(yaml);
    assert_eq!((bench.state("beside"), bench.state("b")), (JobState::Scheduled, JobState::Waiting));
    bench.run("a", 0);
    assert_eq!(bench.state("after"), JobState::Waiting);
    bench.run("b", 0);
    assert_eq!(bench.state("after"), JobState::Scheduled);
}

#[test]
fn skipped_steps_satisfy_and_a_build_of_nothing_else_is_not_run() {
    let mut bench = Bench::new("steps: [{label: a, command: x, skip: later}, wait, {label: b, command: x}]");
    assert_eq!((bench.state("a"), bench.state("b")), (JobState::Skipped, JobState::Scheduled));
    bench.run("b", 0);
    assert_eq!(bench.build.state, BuildState::Passed);
    assert_eq!(Bench::new("steps: [{command: x, skip: true}]").build.state, BuildState::NotRun);
}

#[test]
fn jobs_marked_so_are_cancelled_when_the_build_fails() {
    let mut bench =
        Bench::new("steps: [{label: a, command: x}, {label: b, command: x, cancel_on_build_failing: true}]");
    bench.run("a", 1);
    assert_eq!(bench.state("b"), JobState::Canceled);
}
