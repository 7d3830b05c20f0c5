//! Removing a pipeline, and what that means for the builds of others.

use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::pipelines;
use super::super::row::Columns;
use super::TriggeredFrom;
use super::effects::{self, Effects};
use crate::build::{Effect, Policy};
use crate::problem::Problem;

/// Removes a pipeline with all of its builds. Whoever waited for one of these goes on: the next in its
/// concurrency groups; and trigger jobs that followed it, which have failed.
pub(crate) fn remove_pipeline(
    transaction: &Transaction<'_>,
    pipeline: Uuid,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let groups = groups(transaction, pipeline)?;
    let followers = followers(transaction, pipeline)?;
    pipelines::delete(transaction, pipeline)?;
    let reconsider = |group| (pipeline, Effect::Reconsider { group });
    let mut effects: Effects = groups.into_iter().map(reconsider).collect();
    for job in followers {
        effects.extend(effects::end_follower(transaction, job, false, policy, now)?);
    }
    effects::carry_out(transaction, effects, policy, now)
}

/// The concurrency groups in which jobs of the pipeline are.
fn groups(transaction: &Transaction<'_>, pipeline: Uuid) -> Result<Vec<String>, Problem> {
    let sql = "SELECT DISTINCT concurrency_group FROM jobs JOIN builds ON builds.id = jobs.build
         WHERE builds.pipeline = ?1 AND jobs.finished_at IS NULL AND concurrency_group IS NOT NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    let groups = statement.query_map([pipeline.to_string()], |row| row.get(0))?;
    Ok(groups.collect::<Result<_, _>>()?)
}

/// The trigger jobs that started builds of the pipeline which have not ended.
fn followers(transaction: &Transaction<'_>, pipeline: Uuid) -> Result<Vec<Uuid>, Problem> {
    let sql = "SELECT triggered_from FROM builds
         WHERE pipeline = ?1 AND finished_at IS NULL AND triggered_from IS NOT NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([pipeline.to_string()])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(row.json::<TriggeredFrom>("triggered_from")?.job);
    }
    Ok(jobs)
}
