//! Every change in every state.

use rstest::rstest;

use super::*;
use JobState::{
    Accepted, Assigned, Canceled, Canceling, Expired, Finished, Limited, Limiting, Reserved, Running,
    Scheduled, TimedOut, TimingOut, Waiting,
};

const MINE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn second(number: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + number).unwrap()
}

fn policy() -> Policy {
    Policy {
        start_within: SignedDuration::from_secs(60),
        stop_within: SignedDuration::from_secs(30),
        expire_after: SignedDuration::from_hours(1),
    }
}

/// A job that came into this state in the usual way, in the hands of `MINE` where somebody has it.
fn job(state: JobState) -> Job {
    let mut job = Job::new(Uuid::from_u128(9), Uuid::from_u128(8), JobKind::Command, second(0));
    job.state = state;
    job.runnable_at = Some(second(1));
    if state == Reserved {
        job.stack = Some(MINE);
        job.reserved_until = Some(second(900));
    }
    if state.has_agent() {
        job.agent = Some(MINE);
        job.assigned_at = Some(second(2));
    }
    if state.has_agent() && state != Assigned {
        job.accepted_at = Some(second(3));
        job.token = Some("old".to_owned());
    }
    if matches!(state, Running | Canceling | TimingOut) {
        job.started_at = Some(second(4));
    }
    if matches!(state, Canceling | TimingOut) {
        job.stopping_at = Some(second(5));
    }
    job
}

type Change = fn(&mut Job) -> Result<(), Refusal>;

fn finish(job: &mut Job, exit_status: i64) -> Result<(), Refusal> {
    job.finish(Ending { exit_status, ..Ending::default() }, second(10))
}

/// The states that a change leads on to; in every other state it must be refused and alter nothing.
#[test]
fn a_stack_reserves_what_is_free_and_extends_what_is_its_own() {
    for state in JobState::ALL {
        let mine = may_reserve(*state, Some(MINE), MINE);
        let others = may_reserve(*state, Some(OTHER), MINE);
        assert_eq!((mine, others), (matches!(state, Scheduled | Reserved), *state == Scheduled), "{state}");
    }
}

#[rstest]
#[case::acquire(
    |job: &mut Job| job.acquire(MINE, "new".into(), second(10)),
    &[(Scheduled, Accepted), (Reserved, Accepted), (Assigned, Accepted), (Accepted, Accepted)]
)]
#[case::acquire_what_another_has(
    |job: &mut Job| job.acquire(OTHER, "new".into(), second(10)),
    &[(Scheduled, Accepted), (Reserved, Accepted)]
)]
#[case::accept(
    |job: &mut Job| job.accept(MINE, "new".into(), second(10)),
    &[(Assigned, Accepted), (Accepted, Accepted)]
)]
#[case::accept_what_another_has(|job: &mut Job| job.accept(OTHER, "new".into(), second(10)), &[])]
#[case::start(|job: &mut Job| job.start(second(10)), &[(Accepted, Running), (Running, Running)])]
#[case::finish_well(
    |job: &mut Job| finish(job, 0),
    &[(Accepted, Finished), (Running, Finished), (Canceling, Canceled), (TimingOut, Finished)]
)]
#[case::finish_badly(
    |job: &mut Job| finish(job, 1),
    &[(Accepted, Finished), (Running, Finished), (Canceling, Canceled), (TimingOut, TimedOut)]
)]
#[case::finish_by_its_stack(
    |job: &mut Job| job.stack_finish(MINE, -1, second(10)),
    &[(Scheduled, Finished), (Reserved, Finished)]
)]
#[case::finish_by_another_stack(|job: &mut Job| job.stack_finish(OTHER, -1, second(10)), &[(Scheduled, Finished)])]
#[case::promise(|job: &mut Job| job.promise(3), &[(Running, Running)])]
fn changes(#[case] change: Change, #[case] allowed: &[(JobState, JobState)]) {
    for state in JobState::ALL {
        let before = job(*state);
        let mut after = before.clone();
        let result = change(&mut after);
        match allowed.iter().find(|(from, _)| from == state) {
            Some((_, to)) => assert_eq!((&result, after.state), (&Ok(()), *to), "from {state}"),
            None => assert!(result.is_err() && after == before, "from {state}: {result:?}"),
        }
    }
}

#[test]
fn only_what_waits_is_locked_for_those_who_name_it() {
    for state in JobState::ALL {
        let locked = matches!(job(*state).acquire(OTHER, "t".into(), second(9)), Err(Refusal::Locked { .. }));
        assert_eq!(locked, matches!(state, Waiting | JobState::Blocked | Limiting | Limited), "{state}");
    }
}

#[test]
fn only_what_is_free_is_assigned() {
    for state in JobState::ALL {
        let mut one = job(*state);
        assert_eq!(one.assign(OTHER, second(9)), *state == Scheduled, "{state}");
    }
}

#[test]
fn a_repeated_acquire_keeps_the_token() {
    let mut one = job(Accepted);
    one.acquire(MINE, "new".into(), second(9)).unwrap();
    assert_eq!((one.token.as_deref(), one.accepted_at), (Some("old"), Some(second(3))));
}

#[test]
fn a_cancelled_job_ends_at_once_unless_an_agent_has_it() {
    for state in JobState::ALL {
        let mut one = job(*state);
        let result = one.cancel(second(9));
        let expected = match state {
            state if state.is_terminal() => *state,
            state if state.has_agent() => Canceling,
            _ => Canceled,
        };
        assert_eq!((result.is_ok(), one.state), (!state.is_terminal(), expected), "from {state}");
    }
}

/// What becomes of a job whose agent is lost, and of one whose time is up.
#[rstest]
#[case(Scheduled, Scheduled, Expired)]
#[case(Reserved, Reserved, Scheduled)]
#[case(Assigned, Scheduled, Scheduled)]
#[case(Accepted, Scheduled, Scheduled)]
#[case(Running, Finished, TimingOut)]
#[case(Canceling, Canceled, Canceled)]
#[case(TimingOut, TimedOut, TimedOut)]
#[case(Finished, Finished, Finished)]
fn losses_and_deadlines(#[case] state: JobState, #[case] lost: JobState, #[case] late: JobState) {
    let mut one = job(state);
    one.lose_agent(None, second(10));
    assert_eq!(one.state, lost);
    if lost == Scheduled {
        assert_eq!((one.agent, &one.token, one.assigned_at), (None, &None, None));
    }
    let mut one = job(state);
    one.pass_deadline(second(10));
    assert_eq!(one.state, late);
}

#[test]
fn a_lost_agent_leaves_minus_one_and_no_reason() {
    let mut one = job(Running);
    one.lose_agent(None, second(10));
    assert_eq!((one.exit_status, one.signal, one.signal_reason), (Some(-1), None, None));
}

#[rstest]
#[case(Waiting, None)]
#[case(Scheduled, Some(1 + 3600))]
#[case(Reserved, Some(900))]
#[case(Assigned, Some(2 + 60))]
#[case(Accepted, Some(3 + 60))]
#[case(Running, None)]
#[case(Canceling, Some(5 + 30))]
#[case(TimingOut, Some(5 + 30))]
#[case(Finished, None)]
fn deadlines(#[case] state: JobState, #[case] expected: Option<i64>) {
    assert_eq!(job(state).deadline(&policy()), expected.map(second));
}

#[test]
fn a_timeout_and_a_forced_cancel_bring_the_deadline_closer() {
    let running = Job { timeout_in_minutes: Some(2), ..job(Running) };
    assert_eq!(running.deadline(&policy()), Some(second(4 + 120)));
    let forced = Job { stop_by: Some(second(7)), ..job(Canceling) };
    assert_eq!(forced.deadline(&policy()), Some(second(7)));
    let patient = Job { stop_by: Some(second(70)), ..job(Canceling) };
    assert_eq!(patient.deadline(&policy()), Some(second(5 + 30)));
}

#[test]
fn the_first_promise_stands() {
    let mut one = job(Running);
    assert!(one.promise(3).is_ok() && one.promise(3).is_ok());
    assert!(matches!(one.promise(4), Err(Refusal::Promised { promised: 3, .. })));
    assert_eq!(one.promised_exit, Some(3));
}
