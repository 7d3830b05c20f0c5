//! Applying events to builds, and what one build makes happen in others. All of it is one transaction.

use std::collections::VecDeque;

use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::row::millis;
use super::super::{data, jobs, loaded, pipelines};
use super::{BuildRow, NewBuild, TriggeredFrom, creation, get, keep, step, take};
use crate::build::{Build, Context, Effect, Event, Job, JobState, Policy, advance, concurrency};
use crate::pipeline::step::{Env, Kind, Step};
use crate::pipeline::trigger::Trigger;
use crate::problem::Problem;

/// How many triggers may follow one another.
const MAX_DEPTH: u32 = 10;
/// How many builds one build may start, with those that these start.
const MAX_TRIGGERED: i64 = 250;

/// What is still to be carried out, each with the build that it comes from.
pub(super) type Effects = VecDeque<(Uuid, Effect)>;

/// Applies an event to a build, and everything that follows from it there and elsewhere.
pub(crate) fn apply(
    transaction: &Transaction<'_>,
    build: Uuid,
    event: &Event,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let effects = apply_alone(transaction, build, event, policy, now)?;
    carry_out(transaction, effects, policy, now)
}

fn apply_alone(
    transaction: &Transaction<'_>,
    build: Uuid,
    event: &Event,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let row = get(transaction, build)?;
    let (mut build, taken) = take(transaction, &row)?;
    let effects = run(transaction, &mut build, event, policy, now)?;
    keep(build, &taken);
    Ok(effects)
}

/// Applies an event to a loaded build and writes what it changed. What it means for others is returned.
pub(super) fn run(
    transaction: &Transaction<'_>,
    build: &mut Build,
    event: &Event,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let advanced = advance(build, event, &mut Context { now, new_id: &mut Uuid::now_v7 })?;
    for job in build.jobs.iter().filter(|job| advanced.changed.contains(&job.id)) {
        jobs::save(transaction, build.id, job, policy)?;
    }
    transaction
        .prepare_cached(
            "UPDATE builds SET state = ?2, cancel_requested = ?3, started_at = ?4, finished_at = ?5 WHERE id = ?1",
        )?
        .execute((
            build.id.to_string(),
            build.state.as_str(),
            build.cancel_requested,
            build.started_at.map(millis),
            build.finished_at.map(millis),
        ))?;
    Ok(advanced.effects.into_iter().map(|effect| (build.id, effect)).collect())
}

/// Carries effects out, and those that they have in turn, until there are none. They come to an end: a chain of
/// triggers is bounded, and each job is let into its concurrency group once.
pub(super) fn carry_out(
    transaction: &Transaction<'_>,
    mut open: Effects,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    while let Some((build, effect)) = open.pop_front() {
        let more = match effect {
            Effect::StartChild { job } => start_child(transaction, job, policy, now)?,
            Effect::CancelChild { build } => cancel_child(transaction, build, policy, now)?,
            Effect::Reconsider { group } => reconsider(transaction, &group, policy, now)?,
            Effect::Ended { passed } => tell_parent(transaction, build, passed, policy, now)?,
        };
        open.extend(more);
    }
    Ok(())
}

/// Creates the build that a trigger job asks for. When that cannot be, the job fails and its timeline says why.
fn start_child(
    transaction: &Transaction<'_>,
    job: Uuid,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let owned = jobs::get(transaction, job)?;
    let parent = get(transaction, owned.build)?;
    let (step, _) = step(transaction, owned.job.step)?;
    let Kind::Trigger(trigger) = &step.kind else {
        return Err(Problem::Corrupt(format!("job {job} is not of a trigger step")));
    };
    transaction.execute_batch("SAVEPOINT child")?;
    let created = create_child(transaction, &parent, &owned.job, &step, trigger, policy, now);
    let (event, mut effects) = match created {
        Ok((child, effects)) => {
            transaction.execute_batch("RELEASE child")?;
            (Event::ChildStarted { job, child }, effects)
        }
        Err(problem @ (Problem::NotFound(_) | Problem::Refused(_) | Problem::Pipeline(_))) => {
            transaction.execute_batch("ROLLBACK TO child; RELEASE child")?;
            loaded::clear();
            let detail = format!("cannot start a build of {}: {problem}", trigger.pipeline);
            tracing::warn!(%job, detail, "trigger failed");
            jobs::add_event(transaction, job, now, "trigger_failed", &detail)?;
            (Event::ChildEnded { job, passed: false }, Effects::new())
        }
        Err(problem) => return Err(problem),
    };
    effects.extend(apply_alone(transaction, owned.build, &event, policy, now)?);
    Ok(effects)
}

fn create_child(
    transaction: &Transaction<'_>,
    parent: &BuildRow,
    job: &Job,
    step: &Step,
    trigger: &Trigger,
    policy: &Policy,
    now: Timestamp,
) -> Result<(Uuid, Effects), Problem> {
    let pipeline = pipelines::get(transaction, &trigger.pipeline)?;
    let parent_pipeline = pipelines::by_id(transaction, parent.pipeline)?;
    let (root, depth) = parent.triggered_from.as_ref().map_or((parent.id, 0), |from| (from.root, from.depth));
    check_chain(transaction, root, depth + 1)?;
    let asked = trigger.build.clone();
    let from = TriggeredFrom {
        job: job.id,
        build: parent.id,
        number: parent.number,
        pipeline: parent_pipeline.slug,
        root,
        depth: depth + 1,
    };
    let new = NewBuild {
        branch: asked.branch.unwrap_or_else(|| pipeline.default_branch.clone()),
        commit: asked.commit.unwrap_or_else(|| "HEAD".to_owned()),
        message: asked.message.or_else(|| step.label.clone()).unwrap_or_default(),
        source: "trigger_job".to_owned(),
        author: parent.author.clone(),
        triggered_from: Some(from),
        env: asked.env,
        meta_data: asked.meta_data,
        ..NewBuild::default()
    };
    creation::start(transaction, &pipeline, &new, policy, now)
}

/// Keeps pipelines that trigger themselves, or one another, from going on for ever.
fn check_chain(transaction: &Transaction<'_>, root: Uuid, depth: u32) -> Result<(), Problem> {
    if depth > MAX_DEPTH {
        let text = format!("{MAX_DEPTH} builds have triggered one another in a row; no more are allowed");
        return Err(Problem::Refused(text));
    }
    let sql = "SELECT count(*) FROM builds WHERE root = ?1";
    let count: i64 = transaction.prepare_cached(sql)?.query_row([root.to_string()], |row| row.get(0))?;
    if count >= MAX_TRIGGERED {
        let text = format!("{MAX_TRIGGERED} builds have come of one; no more are allowed");
        return Err(Problem::Refused(text));
    }
    Ok(())
}

fn cancel_child(
    transaction: &Transaction<'_>,
    child: Uuid,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    match get(transaction, child) {
        Ok(row) if row.finished_at.is_none() => {
            apply_alone(transaction, child, &Event::CancelBuild, policy, now)
        }
        // It has ended, or was removed.
        Ok(_) | Err(Problem::NotFound(_)) => Ok(Effects::new()),
        Err(problem) => Err(problem),
    }
}

/// The trigger job that follows the build ends with it, if it still does.
fn tell_parent(
    transaction: &Transaction<'_>,
    child: Uuid,
    passed: bool,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let Some(from) = get(transaction, child)?.triggered_from else { return Ok(Effects::new()) };
    end_follower(transaction, from.job, passed, policy, now)
}

/// A trigger job ends as the build that it follows did, or as if that had.
pub(super) fn end_follower(
    transaction: &Transaction<'_>,
    job: Uuid,
    passed: bool,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let owned = match jobs::get(transaction, job) {
        Ok(owned) => owned,
        Err(Problem::NotFound(_)) => return Ok(Effects::new()),
        Err(problem) => return Err(problem),
    };
    if !owned.job.state.has_agent() {
        return Ok(Effects::new());
    }
    apply_alone(transaction, owned.build, &Event::ChildEnded { job, passed }, policy, now)
}

/// Lets those into a concurrency group for whom there is room.
fn reconsider(
    transaction: &Transaction<'_>,
    group: &str,
    policy: &Policy,
    now: Timestamp,
) -> Result<Effects, Problem> {
    let members = jobs::of_group(transaction, group)?;
    let admitted = concurrency::admit(&members);
    let mut effects = Effects::new();
    for member in &members {
        if admitted.contains(&member.job) {
            let event = Event::Admitted { job: member.job };
            effects.extend(apply_alone(transaction, member.build, &event, policy, now)?);
        } else if member.state == JobState::Limiting {
            jobs::set_state(transaction, member.job, JobState::Limited)?;
            let reason = concurrency::reason(&members, member);
            jobs::add_event(transaction, member.job, now, "limited", &reason)?;
        }
    }
    Ok(effects)
}

/// Answers a block or input step: its fields are checked and become meta-data of the build.
pub(crate) fn unblock(
    transaction: &Transaction<'_>,
    gate: &jobs::OwnedJob,
    answers: &Env,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let (step, _) = step(transaction, gate.job.step)?;
    if let (Kind::Block(asked) | Kind::Input(asked), JobState::Blocked) = (&step.kind, gate.job.state) {
        let answers = asked.check(answers).map_err(Problem::Refused)?;
        for (key, value) in &answers {
            data::set(transaction, gate.build, key, value)?;
        }
    }
    apply(transaction, gate.build, &Event::Unblock { job: gate.job.id }, policy, now)
}
