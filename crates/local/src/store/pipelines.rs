//! Pipelines and queues as rows.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction};
use uuid::Uuid;

use super::row::{Columns, millis};
use crate::problem::Problem;

/// A pipeline.
#[derive(Debug, Clone)]
pub(crate) struct PipelineRow {
    pub(crate) id: Uuid,
    pub(crate) slug: String,
    pub(crate) name: String,
    pub(crate) repository: String,
    pub(crate) configuration: String,
    pub(crate) default_branch: String,
    pub(crate) created_at: Timestamp,
}

fn read(row: &Row<'_>) -> Result<PipelineRow, Problem> {
    Ok(PipelineRow {
        id: row.id("id")?,
        slug: row.column("slug")?,
        name: row.column("name")?,
        repository: row.column("repository")?,
        configuration: row.column("configuration")?,
        default_branch: row.column("default_branch")?,
        created_at: row.at("created_at")?,
    })
}

/// The pipeline with this slug.
pub(crate) fn get(transaction: &Transaction<'_>, slug: &str) -> Result<PipelineRow, Problem> {
    transaction
        .prepare_cached("SELECT * FROM pipelines WHERE slug = ?1")?
        .query_row([slug], |row| Ok(read(row)))
        .optional()?
        .ok_or_else(|| Problem::not_found("pipeline", slug))?
}

/// The pipeline with this id.
pub(crate) fn by_id(transaction: &Transaction<'_>, id: Uuid) -> Result<PipelineRow, Problem> {
    transaction
        .prepare_cached("SELECT * FROM pipelines WHERE id = ?1")?
        .query_row([id.to_string()], |row| Ok(read(row)))
        .optional()?
        .ok_or_else(|| Problem::not_found("pipeline", id))?
}

/// Every pipeline by name.
pub(crate) fn all(transaction: &Transaction<'_>) -> Result<Vec<PipelineRow>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT * FROM pipelines ORDER BY name, slug")?;
    let mut rows = statement.query([])?;
    let mut pipelines = Vec::new();
    while let Some(row) = rows.next()? {
        pipelines.push(read(row)?);
    }
    Ok(pipelines)
}

/// Creates a pipeline, or replaces what can be changed of the one with its slug.
pub(crate) fn save(transaction: &Transaction<'_>, pipeline: &PipelineRow) -> Result<(), Problem> {
    transaction
        .prepare_cached(
            "INSERT INTO pipelines (id, slug, name, repository, configuration, default_branch, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (slug) DO UPDATE SET name = ?3, repository = ?4, configuration = ?5, default_branch = ?6",
        )?
        .execute((
            pipeline.id.to_string(),
            &pipeline.slug,
            &pipeline.name,
            &pipeline.repository,
            &pipeline.configuration,
            &pipeline.default_branch,
            millis(pipeline.created_at),
        ))?;
    Ok(())
}

/// Removes a pipeline with its builds.
pub(crate) fn delete(transaction: &Transaction<'_>, id: Uuid) -> Result<(), Problem> {
    transaction.prepare_cached("DELETE FROM pipelines WHERE id = ?1")?.execute([id.to_string()])?;
    Ok(())
}

/// The next build number of a pipeline.
pub(crate) fn next_number(transaction: &Transaction<'_>, pipeline: Uuid) -> Result<i64, Problem> {
    Ok(transaction
        .prepare_cached("UPDATE pipelines SET builds = builds + 1 WHERE id = ?1 RETURNING builds")?
        .query_row([pipeline.to_string()], |row| row.get(0))?)
}

/// A queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueRow {
    pub(crate) id: Uuid,
    pub(crate) key: String,
    pub(crate) paused: bool,
}

/// The queue with this key, if there is one.
pub(crate) fn queue(transaction: &Transaction<'_>, key: &str) -> Result<Option<QueueRow>, Problem> {
    transaction
        .prepare_cached("SELECT * FROM queues WHERE key = ?1")?
        .query_row([key], |row| Ok(read_queue(row)))
        .optional()?
        .transpose()
}

fn read_queue(row: &Row<'_>) -> Result<QueueRow, Problem> {
    Ok(QueueRow { id: row.id("id")?, key: row.column("key")?, paused: row.column("paused")? })
}

/// Every queue by key.
pub(crate) fn queues(transaction: &Transaction<'_>) -> Result<Vec<QueueRow>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT * FROM queues ORDER BY key")?;
    let mut rows = statement.query([])?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next()? {
        queues.push(read_queue(row)?);
    }
    Ok(queues)
}

/// Removes a queue. One with jobs that have not ended must stay.
pub(crate) fn delete_queue(transaction: &Transaction<'_>, queue: &QueueRow) -> Result<(), Problem> {
    let waiting: bool = transaction
        .prepare_cached("SELECT 1 FROM jobs WHERE queue = ?1 AND kind = 'script' AND finished_at IS NULL")?
        .exists([&queue.key])?;
    if waiting {
        return Err(Problem::Refused(format!("queue {} has jobs that have not ended", queue.key)));
    }
    transaction.prepare_cached("DELETE FROM queues WHERE id = ?1")?.execute([queue.id.to_string()])?;
    Ok(())
}

/// Makes sure that the queue exists.
pub(crate) fn create_queue(transaction: &Transaction<'_>, key: &str) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT OR IGNORE INTO queues (id, key) VALUES (?1, ?2)")?
        .execute((Uuid::now_v7().to_string(), key))?;
    Ok(())
}

/// Stops or resumes handing out the jobs of a queue.
pub(crate) fn pause_queue(transaction: &Transaction<'_>, key: &str, paused: bool) -> Result<(), Problem> {
    let changed =
        transaction.prepare_cached("UPDATE queues SET paused = ?2 WHERE key = ?1")?.execute((key, paused))?;
    if changed == 0 { Err(Problem::not_found("queue", key)) } else { Ok(()) }
}
