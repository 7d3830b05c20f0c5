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
    let jobs: Vec<Job> =
        laid.iter().flat_map(|laid| laid.jobs.iter().map(|job| new_job(laid, job, place))).collect();
    let placed = laid.into_iter().map(|laid| PlacedStep {
        id: laid.id,
        group: laid.group.or_else(|| outer.filter(|_| !matches!(laid.step.kind, Kind::Group))),
        uploader: place.uploader,
        step: laid.step,
    });
    build.steps.change().splice(at..at, placed.collect::<Vec<_>>());
    build.jobs.extend(jobs.iter().cloned());
    jobs
}

fn new_job(laid: &LaidStep, own: &LaidJob, place: Place) -> Job {
    let step = laid.step.permuted(own.matrix.as_ref());
    let mut job = Job::new(own.id, laid.id, kind_of(&step), place.now);
    job.scheduled_at = place.scheduled_at;
    job.parallel = own.parallel;
    job.matrix.clone_from(&own.matrix);
    if laid.unwanted {
        job.state = JobState::Broken;
    } else if step.skip.is_some() || own.skipped {
        job.state = JobState::Skipped;
    }
    if let Kind::Command(command) = &step.kind {
        let queue = command.agents.iter().find_map(|rule| rule.strip_prefix("queue="));
        queue.unwrap_or(DEFAULT_QUEUE).clone_into(&mut job.queue);
        job.rules.clone_from(&command.agents);
        job.priority = command.priority;
        job.timeout_in_minutes = command.timeout_in_minutes;
        job.concurrency.clone_from(&command.concurrency);
    }
    job
}

fn kind_of(step: &Step) -> JobKind {
    match &step.kind {
        Kind::Command(_) => JobKind::Command,
        Kind::Wait { .. } | Kind::Group => JobKind::Waiter,
        Kind::Block(_) | Kind::Input(_) => JobKind::Manual,
        Kind::Trigger(_) => JobKind::Trigger,
    }
}

/// Takes out the steps of which nothing has begun. Returns their ids.
pub(crate) fn drop_unstarted(build: &mut Build) -> Vec<Uuid> {
    let begun: BTreeSet<Uuid> =
        build.jobs.iter().filter(|job| !job.state.waits()).map(|job| job.step).collect();
    let groups: BTreeSet<Uuid> = build
        .steps
        .iter()
        .filter(|placed| begun.contains(&placed.id))
        .filter_map(|placed| placed.group)
        .collect();
    let keeps = |placed: &PlacedStep| begun.contains(&placed.id) || groups.contains(&placed.id);
    let dropped = build.steps.iter().filter(|placed| !keeps(placed)).map(|placed| placed.id).collect();
    build.steps.change().retain(keeps);
    build.jobs.retain(|job| begun.contains(&job.step));
    dropped
}
