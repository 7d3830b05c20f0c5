//! What an event makes of a build.

use std::collections::BTreeSet;

use jiff::Timestamp;
use uuid::Uuid;

use super::dependencies::{Graph, Readiness};
use super::job::Ending;
use super::verdict::PlacedStep;
use super::{Build, Effect, Job, JobKind, JobState, Refusal, effect, retry};
use crate::pipeline::step::{Command, Kind, SoftFail};
use crate::pipeline::trigger::Trigger;

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Steps and jobs were laid out, at creation or by an upload.
    Laid,
    /// The agent reported the end of its job.
    Finished { job: Uuid, ending: Ending, at: Timestamp },
    /// A stack gave up on a job.
    StackFinished { job: Uuid, stack: Uuid, exit_status: i64 },
    /// The agent of a job left or was lost.
    AgentGone { job: Uuid, signal_reason: Option<&'static str> },
    /// The server acts by itself.
    DeadlinePassed { job: Uuid },
    /// Somebody cancels one job.
    CancelJob { job: Uuid },
    /// Somebody cancels what has not ended of a step, or of a group. Agents are not waited for beyond `stop_by`.
    CancelStep { step: Uuid, stop_by: Option<Timestamp> },
    /// Somebody cancels the build.
    CancelBuild,
    /// A running job announces that it will fail.
    Promised { job: Uuid, exit_status: i64 },
    /// Somebody retries a job.
    Retry { job: Uuid },
    /// Somebody answers a block or input step.
    Unblock { job: Uuid },
    /// The concurrency group of a job lets it pass.
    Admitted { job: Uuid },
    /// The build of a trigger job was created.
    ChildStarted { job: Uuid, child: Uuid },
    /// The build that a trigger job follows has ended, or could not be created.
    ChildEnded { job: Uuid, passed: bool },
}

/// What a decision needs from outside.
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    pub(crate) new_id: &'a mut dyn FnMut() -> Uuid,
}

/// What an event did.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// The jobs that changed or are new.
    pub(crate) changed: BTreeSet<Uuid>,
    /// What must happen outside of the build.
    pub(crate) effects: Vec<Effect>,
}

/// Applies an event and everything in the build that follows from it.
pub(crate) fn advance(
    build: &mut Build,
    event: &Event,
    context: &mut Context<'_>,
) -> Result<Advanced, Refusal> {
    let was_over = build.finished_at.is_some();
    let mut changed = BTreeSet::new();
    apply(build, event, context, &mut changed)?;
    settle(build, context, &mut changed);
    let effects = effect::effects(build, &changed, was_over);
    Ok(Advanced { changed, effects })
}

fn apply(
    build: &mut Build,
    event: &Event,
    context: &mut Context<'_>,
    changed: &mut BTreeSet<Uuid>,
) -> Result<(), Refusal> {
    let now = context.now;
    match event {
        Event::Laid => {}
        Event::Finished { job, ending, at } => {
            change(build, *job, changed, |job| job.finish(ending.clone(), *at))?;
            ended(build, *job, context, changed);
        }
        Event::StackFinished { job, stack, exit_status } => {
            change(build, *job, changed, |job| job.stack_finish(*stack, *exit_status, now))?;
            ended(build, *job, context, changed);
        }
        Event::AgentGone { job, signal_reason } => {
            change(build, *job, changed, |job| {
                job.lose_agent(*signal_reason, now);
                Ok(())
            })?;
            ended(build, *job, context, changed);
        }
        Event::DeadlinePassed { job } => {
            change(build, *job, changed, |job| {
                job.pass_deadline(now);
                Ok(())
            })?;
            ended(build, *job, context, changed);
        }
        Event::CancelJob { job } => {
            change(build, *job, changed, |job| job.cancel(now))?;
            ended(build, *job, context, changed);
        }
        Event::CancelStep { step, stop_by } => cancel_step(build, *step, *stop_by, context, changed),
        Event::Promised { job, exit_status } => {
            change(build, *job, changed, |job| job.promise(*exit_status))?;
        }
        Event::CancelBuild => {
            build.cancel_requested = true;
            cancel_all(build, now, changed, |_| true);
        }
        Event::Retry { job } => manual_retry(build, *job, context, changed)?,
        Event::Unblock { job } => change(build, *job, changed, |job| {
            if job.state != JobState::Blocked {
                return Err(Refusal::WrongState { id: job.id, state: job.state, change: "unblocked" });
            }
            job.settle(JobState::Unblocked, now);
            Ok(())
        })?,
        Event::Admitted { job } => change(build, *job, changed, |job| {
            job.admit(now);
            Ok(())
        })?,
        Event::ChildStarted { job, child } => {
            let follows = !trigger_of(build, *job).is_some_and(|trigger| trigger.is_async);
            change(build, *job, changed, |job| {
                job.child = Some(*child);
                if follows { Ok(()) } else { job.finish(Ending::default(), now) }
            })?;
        }
        Event::ChildEnded { job, passed } => {
            let ending = Ending { exit_status: i64::from(!passed), ..Ending::default() };
            change(build, *job, changed, |job| job.finish(ending, now))?;
            ended(build, *job, context, changed);
        }
    }
    Ok(())
}

fn change(
    build: &mut Build,
    id: Uuid,
    changed: &mut BTreeSet<Uuid>,
    with: impl FnOnce(&mut Job) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let job = build.jobs.iter_mut().find(|job| job.id == id).ok_or(Refusal::Unknown(id))?;
    with(job)?;
    changed.insert(id);
    Ok(())
}

/// After a job may have ended: soft failure and automatic retry.
fn ended(build: &mut Build, id: Uuid, context: &mut Context<'_>, changed: &mut BTreeSet<Uuid>) {
    let Some(index) = build.jobs.iter().position(|job| job.id == id) else { return };
    let soft_fail = soft_fail_of(build, &build.jobs[index]);
    build.jobs[index].keep_promise(&soft_fail);
    let job = &build.jobs[index];
    if !job.state.is_terminal() || job.exit_status == Some(0) {
        return;
    }
    let rule = command_of(build, job.step)
        .filter(|_| !build.cancel_requested)
        .and_then(|command| retry::granting_rule(job, &command.retry));
    if let Some(rule) = rule {
        let next = retry::successor(job, (context.new_id)(), Some(rule), context.now);
        build.jobs[index].retried_in = Some(next.id);
        changed.insert(next.id);
        build.jobs.push(next);
    } else {
        build.jobs[index].soft_failed = soft_fail.matches(job.exit_status);
    }
}

/// Which failures of a job its step does not mind.
fn soft_fail_of(build: &Build, job: &Job) -> SoftFail {
    match kind_of(build, job.step) {
        Some(Kind::Command(command)) => command.soft_fail_of(job.matrix.as_ref()).clone(),
        Some(Kind::Trigger(trigger)) => trigger.soft_fail.clone(),
        _ => SoftFail::Never,
    }
}

fn manual_retry(
    build: &mut Build,
    id: Uuid,
    context: &mut Context<'_>,
    changed: &mut BTreeSet<Uuid>,
) -> Result<(), Refusal> {
    let job = build.jobs.iter().find(|job| job.id == id).ok_or(Refusal::Unknown(id))?;
    let refuse = |reason: &str| Err(Refusal::NoRetry { id, reason: reason.to_owned() });
    let Some(command) = command_of(build, job.step) else { return refuse("only command jobs can be") };
    let manual = &command.retry.manual;
    let passed = job.state == JobState::Finished && job.exit_status == Some(0);
    let ended =
        matches!(job.state, JobState::Finished | JobState::Canceled | JobState::TimedOut | JobState::Expired);
    match () {
        () if job.retried_in.is_some() => return refuse("it has been retried already"),
        () if !ended => return refuse(&format!("it is {}", job.state)),
        () if !manual.allowed => {
            return refuse(manual.reason.as_deref().unwrap_or("its step does not allow manual retries"));
        }
        () if passed && !manual.permit_on_passed => return refuse("it has passed"),
        () => {}
    }
    let next = retry::successor(job, (context.new_id)(), None, context.now);
    build.cancel_requested = false;
    for job in &mut build.jobs {
        if job.id == id {
            job.retried_in = Some(next.id);
            changed.insert(id);
        } else if matches!(job.state, JobState::WaitingFailed | JobState::BlockedFailed) {
            // They failed only because of others; another try may let them run.
            job.state = JobState::Waiting;
            job.finished_at = None;
            changed.insert(job.id);
        }
    }
    changed.insert(next.id);
    build.jobs.push(next);
    Ok(())
}

fn kind_of(build: &Build, step: Uuid) -> Option<&Kind> {
    build.steps.iter().find(|placed| placed.id == step).map(|placed| &placed.step.kind)
}

fn command_of(build: &Build, step: Uuid) -> Option<&Command> {
    match kind_of(build, step) {
        Some(Kind::Command(command)) => Some(command),
        _ => None,
    }
}

fn trigger_of(build: &Build, job: Uuid) -> Option<&Trigger> {
    let job = build.jobs.iter().find(|one| one.id == job)?;
    match kind_of(build, job.step) {
        Some(Kind::Trigger(trigger)) => Some(trigger),
        _ => None,
    }
}

/// Cancels those that are chosen and have not ended. Says whether any was left to cancel.
fn cancel_all(
    build: &mut Build,
    now: Timestamp,
    changed: &mut BTreeSet<Uuid>,
    which: impl Fn(&Job) -> bool,
) -> bool {
    let mut moved = false;
    for index in 0..build.jobs.len() {
        let job = &mut build.jobs[index];
        if job.state.is_terminal() || job.state == JobState::Canceling || !which(job) {
            continue;
        }
        if job.cancel(now).is_ok() {
            moved = true;
            changed.insert(job.id);
            let ended = job.state.is_terminal();
            build.jobs[index].soft_failed = ended && soft_fail_of(build, &build.jobs[index]).matches(None);
        }
    }
    moved
}

fn cancel_step(
    build: &mut Build,
    step: Uuid,
    stop_by: Option<Timestamp>,
    context: &mut Context<'_>,
    changed: &mut BTreeSet<Uuid>,
) {
    let member = |placed: &&PlacedStep| placed.id == step || placed.group == Some(step);
    let steps: BTreeSet<Uuid> = build.steps.iter().filter(member).map(|placed| placed.id).collect();
    let open = |job: &&Job| !job.state.is_terminal() && steps.contains(&job.step);
    let jobs: Vec<Uuid> = build.jobs.iter().filter(open).map(|job| job.id).collect();
    for id in jobs {
        let canceled = change(build, id, changed, |job| {
            job.cancel(context.now)?;
            job.stop_by = [job.stop_by, stop_by].into_iter().flatten().min();
            Ok(())
        });
        canceled.expect("what has not ended can be cancelled");
        ended(build, id, context, changed);
    }
}

/// Lets waiting jobs go on or fail until nothing moves, then derives the build's state.
fn settle(build: &mut Build, context: &Context<'_>, changed: &mut BTreeSet<Uuid>) {
    let graph = build.steps.graph();
    loop {
        let moved = open_ready(build, &graph, context.now, changed)
            || cancel_when_failing(build, context.now, changed)
            || give_up_stuck(build, &graph, context.now, changed);
        if !moved {
            break;
        }
    }
    // A trigger job starts without an agent.
    let begun =
        build.jobs.iter().filter(|job| job.kind == JobKind::Trigger).filter_map(|job| job.started_at).min();
    build.started_at = build.started_at.or(begun);
    let was = build.state;
    build.state = build.derived_state();
    if build.is_over() {
        build.finished_at.get_or_insert(context.now);
    } else {
        build.finished_at = None;
    }
    tracing::debug!(build = %build.id, %was, now = %build.state, jobs = changed.len(), "build advanced");
}

/// One pass over the waiting jobs.
fn open_ready(build: &mut Build, graph: &Graph, now: Timestamp, changed: &mut BTreeSet<Uuid>) -> bool {
    let outcomes = build.own_outcomes();
    let mut moved = false;
    for job in build.jobs.iter_mut().filter(|job| job.state == JobState::Waiting) {
        match graph.readiness(job.step, &outcomes) {
            Readiness::Waiting => continue,
            Readiness::Ready => open(job, now),
            Readiness::Hopeless => fail_waiting(job, now),
        }
        changed.insert(job.id);
        moved = true;
    }
    moved
}

fn open(job: &mut Job, now: Timestamp) {
    match job.kind {
        JobKind::Command => job.become_runnable(now),
        JobKind::Waiter => job.settle(JobState::Finished, now),
        JobKind::Manual => job.state = JobState::Blocked,
        JobKind::Trigger => {
            job.state = JobState::Running;
            job.runnable_at = Some(now);
            job.started_at = Some(now);
        }
    }
}

fn fail_waiting(job: &mut Job, now: Timestamp) {
    let state = if job.kind == JobKind::Manual { JobState::BlockedFailed } else { JobState::WaitingFailed };
    job.settle(state, now);
}

/// Nothing runs and nobody is asked, yet jobs wait: for a key that no step has, or for each other.
fn give_up_stuck(build: &mut Build, graph: &Graph, now: Timestamp, changed: &mut BTreeSet<Uuid>) -> bool {
    if build.jobs.iter().any(|job| job.state.is_active() || job.state == JobState::Blocked) {
        return false;
    }
    let waiting = |job: &&mut Job| job.state == JobState::Waiting;
    let any_missing =
        build.jobs.iter().any(|job| job.state == JobState::Waiting && graph.misses_a_key(job.step));
    let mut moved = false;
    for job in build.jobs.iter_mut().filter(waiting) {
        if !any_missing || graph.misses_a_key(job.step) {
            fail_waiting(job, now);
            changed.insert(job.id);
            moved = true;
        }
    }
    moved
}

fn cancel_when_failing(build: &mut Build, now: Timestamp, changed: &mut BTreeSet<Uuid>) -> bool {
    if !build.has_failed() {
        return false;
    }
    let steps: BTreeSet<Uuid> = build
        .steps
        .iter()
        .filter(
            |placed| matches!(&placed.step.kind, Kind::Command(command) if command.cancel_on_build_failing),
        )
        .map(|placed| placed.id)
        .collect();
    // A job that has promised to fail is left to end by itself.
    cancel_all(build, now, changed, |job| steps.contains(&job.step) && job.promised_exit.is_none())
}

#[cfg(test)]
mod tests;
