//! Removing what is old: builds with all that belongs to them, agents and stacks that have left.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::{Columns, millis};
use crate::problem::Problem;

/// How many rows go in one transaction, so that requests beside it hardly wait.
const ROWS: i64 = 200;

/// What is kept; `None` keeps all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// The newest finished builds of each pipeline.
    pub(crate) builds: Option<u32>,
    /// Builds that finished after this.
    pub(crate) since: Option<Timestamp>,
}

/// A finished build that need not be kept. One that a job of another build started stays as long as that job.
pub(crate) fn next_build(transaction: &Transaction<'_>, keep: Keep) -> Result<Option<Uuid>, Problem> {
    let sql = "
WITH dropped AS MATERIALIZED (
    SELECT id AS pipeline, (
        SELECT number FROM builds WHERE pipeline = pipelines.id AND finished_at IS NOT NULL
        ORDER BY number DESC LIMIT 1 OFFSET ?1) AS newest
    FROM pipelines
)
SELECT builds.id FROM dropped JOIN builds ON builds.pipeline = dropped.pipeline
WHERE builds.finished_at IS NOT NULL AND (builds.finished_at < ?2 OR builds.number <= dropped.newest)
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.child = builds.id)
LIMIT 1";
    // No pipeline has so many builds, and none finished before then.
    let builds = keep.builds.map_or(i64::MAX, i64::from);
    let since = keep.since.map_or(i64::MIN, millis);
    transaction
        .prepare_cached(sql)?
        .query_row((builds, since), |row| Ok(row.id("id")))
        .optional()?
        .transpose()
}

/// Removes a part of a build, its logs first and itself last. Says whether it is gone.
pub(crate) fn remove_some(transaction: &Transaction<'_>, build: Uuid) -> Result<bool, Problem> {
    let build = build.to_string();
    let mut first =
        transaction.prepare_cached("SELECT seq, id FROM jobs WHERE build = ?1 ORDER BY seq LIMIT 1")?;
    let mut chunks = transaction.prepare_cached(
        "DELETE FROM log_chunks WHERE seq IN (SELECT seq FROM log_chunks WHERE job = ?1 LIMIT ?2)",
    )?;
    let mut removed = 0;
    while removed < ROWS {
        let job: Option<(i64, String)> =
            first.query_row([&build], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((seq, id)) = job else {
            transaction.prepare_cached("DELETE FROM builds WHERE id = ?1")?.execute([&build])?;
            return Ok(true);
        };
        removed += i64::try_from(chunks.execute((id, ROWS - removed))?).unwrap_or(ROWS) + 1;
        if removed < ROWS {
            transaction.prepare_cached("DELETE FROM jobs WHERE seq = ?1")?.execute([seq])?;
        }
    }
    Ok(false)
}

/// Removes some agents and stacks that left before `then`; agents only when no job tells of them any more.
/// Says how many.
pub(crate) fn remove_gone(transaction: &Transaction<'_>, then: Timestamp) -> Result<usize, Problem> {
    let agents = "
DELETE FROM agents WHERE id IN (
    SELECT id FROM agents WHERE state IN ('disconnected', 'lost') AND last_seen < ?1
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.agent = agents.id)
    LIMIT ?2)";
    let stacks = "DELETE FROM stacks WHERE NOT registered AND last_seen < ?1";
    let agents = transaction.prepare_cached(agents)?.execute((millis(then), ROWS))?;
    Ok(agents + transaction.prepare_cached(stacks)?.execute([millis(then)])?)
}

#[cfg(test)]
mod tests;
