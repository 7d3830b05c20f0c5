//! What reasons are found in: read only when a job waits.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::{Runners, Waiting, Waits};
use crate::build::verdict::Build;
use crate::build::{Job, JobState};
use crate::problem::Problem;
use crate::store::{jobs, overview};

/// Why each job of a build that waits does so.
pub(in super::super) fn of_build(
    transaction: &Transaction<'_>,
    build: &Build,
) -> Result<BTreeMap<Uuid, Waits>, Problem> {
    let may_wait =
        |job: &&Job| matches!(job.state, JobState::Waiting | JobState::Scheduled) || job.state.is_limited();
    let waiting: Vec<&Job> = build.jobs.iter().filter(may_wait).collect();
    if waiting.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut groups = BTreeMap::new();
    for concurrency in waiting.iter().filter_map(|job| job.concurrency.as_ref()) {
        if !groups.contains_key(&concurrency.group) {
            groups.insert(concurrency.group.clone(), jobs::of_group(transaction, &concurrency.group)?);
        }
    }
    let runners = runners(transaction)?;
    let mut reasons = Waiting::new(build, &runners, &groups);
    Ok(waiting.into_iter().filter_map(|job| Some((job.id, reasons.of_job(job)?))).collect())
}

fn runners(transaction: &Transaction<'_>) -> Result<Runners, Problem> {
    let now = Timestamp::now();
    let mut agents = overview::agents(transaction)?;
    agents.retain(|agent| agent.state == "connected");
    let stacks = overview::stacks(transaction)?.into_iter().map(|(stack, _)| stack);
    let stacks = stacks.filter(|stack| stack.state(now) == "connected");
    let queues = overview::queues(transaction)?.into_iter().filter(|queue| queue.paused);
    Ok(Runners {
        agents,
        stacks: stacks.map(|stack| (stack.key, stack.queue)).collect(),
        paused_queues: queues.map(|queue| queue.key).collect(),
    })
}
