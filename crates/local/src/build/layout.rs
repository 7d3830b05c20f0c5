//! Placing steps and their jobs in a build: at creation, and when a job uploads more.

use std::collections::BTreeSet;

use jiff::Timestamp;
use uuid::Uuid;

use super::job::DEFAULT_QUEUE;
use super::verdict::{Build, PlacedStep};
use super::{Job, JobKind, JobState};
use crate::pipeline::expand::{LaidJob, LaidStep};
use crate::pipeline::step::{Kind, Step};

/// Where new steps go, and when their jobs count from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The step whose job uploads them; `None` puts them at the end.
    pub(crate) uploader: Option<Uuid>,
    pub(crate) now: Timestamp,
    /// Uploaded jobs queue where their uploader did.
    pub(crate) scheduled_at: Timestamp,
}

/// Puts steps directly after their uploader, or at the end, and creates their jobs. Returns the new jobs.
pub(crate) fn insert(build: &mut Build, laid: Vec<LaidStep>, place: Place) -> Vec<Job> {
    let uploader = place.uploader.and_then(|id| build.steps.iter().position(|placed| placed.id == id));
    let at = uploader.map_or(build.steps.len(), |index| index + 1);
    // What a member of a group uploads belongs to the group.
    let outer = uploader.and_then(|index| build.steps[index].group);
    let jobs: Vec<Job> = laid
        .iter()
        .flat_map(|laid| laid.jobs.iter().map(|job| new_job(laid.id, &laid.step, job, place)))
        .collect();
    let placed = laid.into_iter().map(|laid| PlacedStep {
        id: laid.id,
        group: laid.group.or_else(|| outer.filter(|_| !matches!(laid.step.kind, Kind::Group))),
        uploader: place.uploader,
        step: laid.step,
    });
    build.steps.splice(at..at, placed.collect::<Vec<_>>());
    build.jobs.extend(jobs.iter().cloned());
    jobs
}

fn new_job(step_id: Uuid, step: &Step, laid: &LaidJob, place: Place) -> Job {
    let (kind, rules, priority, timeout_in_minutes) = match &step.kind {
        Kind::Command(command) => {
            (JobKind::Command, command.agents.clone(), command.priority, command.timeout_in_minutes)
        }
        Kind::Wait { .. } | Kind::Group => (JobKind::Waiter, Vec::new(), 0, None),
        Kind::Block(_) | Kind::Input(_) => (JobKind::Manual, Vec::new(), 0, None),
    };
    let queue = rules.iter().find_map(|rule| rule.strip_prefix("queue=")).unwrap_or(DEFAULT_QUEUE);
    Job {
        id: laid.id,
        step: step_id,
        kind,
        state: if step.skip.is_some() { JobState::Skipped } else { JobState::Waiting },
        priority,
        queue: queue.to_owned(),
        rules,
        parallel: laid.parallel,
        retry_count: 0,
        rule_uses: Vec::new(),
        retried_in: None,
        timeout_in_minutes,
        exit_status: None,
        signal: None,
        signal_reason: None,
        soft_failed: false,
        stack: None,
        reserved_until: None,
        agent: None,
        token: None,
        created_at: place.now,
        scheduled_at: place.scheduled_at,
        runnable_at: None,
        assigned_at: None,
        accepted_at: None,
        started_at: None,
        stopping_at: None,
        stop_by: None,
        promised_exit: None,
        finished_at: None,
    }
}

/// Takes out the steps of which nothing has begun. Returns their ids.
pub(crate) fn drop_unstarted(build: &mut Build) -> Vec<Uuid> {
    let untouched = |state| matches!(state, JobState::Waiting | JobState::Blocked);
    let begun: BTreeSet<Uuid> =
        build.jobs.iter().filter(|job| !untouched(job.state)).map(|job| job.step).collect();
    let groups: BTreeSet<Uuid> = build
        .steps
        .iter()
        .filter(|placed| begun.contains(&placed.id))
        .filter_map(|placed| placed.group)
        .collect();
    let keeps = |placed: &PlacedStep| begun.contains(&placed.id) || groups.contains(&placed.id);
    let dropped = build.steps.iter().filter(|placed| !keeps(placed)).map(|placed| placed.id).collect();
    build.steps.retain(keeps);
    build.jobs.retain(|job| begun.contains(&job.step));
    dropped
}
