//! Artifacts as rows. Their bytes are in the depot, under the same ids.

use std::collections::HashSet;

use bk_buildkite::artifacts::{ArtifactBatch, NewArtifact};
use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, named_params};
use uuid::Uuid;

use super::row::{Columns, millis};
use crate::artifact::Received;
use crate::artifact::search::Origin;
use crate::problem::Problem;

/// An artifact that was announced, and may have come.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactRow {
    pub(crate) id: Uuid,
    pub(crate) job: Uuid,
    pub(crate) path: String,
    pub(crate) absolute_path: String,
    pub(crate) glob_path: String,
    pub(crate) file_size: u64,
    pub(crate) sha1sum: String,
    pub(crate) sha256sum: String,
    pub(crate) content_type: String,
    /// Where it is, when it is not in the depot.
    pub(crate) url: String,
    /// The bucket, when it is not in the depot.
    pub(crate) upload_destination: String,
    /// How many parts it is sent in; `None` for one form.
    pub(crate) parts: Option<u32>,
    pub(crate) state: ArtifactState,
    pub(crate) created_at: Timestamp,
}

/// Where an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArtifactState {
    /// Announced; the client has not said how the upload ended.
    New,
    /// Complete.
    Finished,
    /// The client gave up.
    Error,
}

impl ArtifactRow {
    /// Whether this is the file that was promised.
    pub(crate) fn verify(&self, received: &Received) -> Result<(), Problem> {
        received
            .verify(&self.path, self.file_size, &self.sha1sum, &self.sha256sum)
            .map_err(|mismatch| Problem::Refused(mismatch.to_string()))
    }
}

impl ArtifactState {
    const ALL: [Self; 3] = [Self::New, Self::Finished, Self::Error];

    /// The state's name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Finished => "finished",
            Self::Error => "error",
        }
    }

    /// The state that the wire calls so.
    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

fn read(row: &Row<'_>) -> Result<ArtifactRow, Problem> {
    let state: String = row.column("state")?;
    Ok(ArtifactRow {
        id: row.id("id")?,
        job: row.id("job")?,
        path: row.column("path")?,
        absolute_path: row.column("absolute_path")?,
        glob_path: row.column("glob_path")?,
        file_size: u64::try_from(row.column::<i64>("file_size")?).unwrap_or_default(),
        sha1sum: row.column("sha1sum")?,
        sha256sum: row.column("sha256sum")?,
        content_type: row.column("content_type")?,
        url: row.column("url")?,
        upload_destination: row.column("upload_destination")?,
        parts: row.column("parts")?,
        state: ArtifactState::named(&state)
            .ok_or_else(|| Problem::Corrupt(format!("artifact state {state:?}")))?,
        created_at: row.at("created_at")?,
    })
}

/// Keeps a checked batch. A batch that is known already is answered as the first time. `parts` says how many
/// parts an artifact is to be sent in.
pub(crate) fn create(
    transaction: &Transaction<'_>,
    (build, job): (Uuid, Uuid),
    batch: &ArtifactBatch,
    parts: impl Fn(&NewArtifact) -> Option<u32>,
    now: Timestamp,
) -> Result<Vec<ArtifactRow>, Problem> {
    let known = of_batch(transaction, job, &batch.id)?;
    if !known.is_empty() {
        return Ok(known);
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO artifacts (id, build, job, batch, path, absolute_path, glob_path, file_size, sha1sum, sha256sum,
             content_type, url, upload_destination, parts, state, created_at)
         VALUES (:id, :build, :job, :batch, :path, :absolute_path, :glob_path, :file_size, :sha1sum, :sha256sum,
             :content_type, :url, :upload_destination, :parts, 'new', :created_at)",
    )?;
    for artifact in &batch.artifacts {
        statement.execute(named_params! {
            ":id": Uuid::now_v7().to_string(),
            ":build": build.to_string(),
            ":job": job.to_string(),
            ":batch": batch.id,
            ":path": artifact.path,
            ":absolute_path": artifact.absolute_path,
            ":glob_path": artifact.glob_path,
            ":file_size": artifact.file_size,
            ":sha1sum": artifact.sha1sum,
            ":sha256sum": artifact.sha256sum,
            ":content_type": artifact.content_type,
            ":url": artifact.url,
            ":upload_destination": batch.upload_destination,
            ":parts": parts(artifact),
            ":created_at": millis(now),
        })?;
    }
    of_batch(transaction, job, &batch.id)
}

fn list(
    transaction: &Transaction<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<ArtifactRow>, Problem> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut artifacts = Vec::new();
    while let Some(row) = rows.next()? {
        artifacts.push(read(row)?);
    }
    Ok(artifacts)
}

fn of_batch(transaction: &Transaction<'_>, job: Uuid, batch: &str) -> Result<Vec<ArtifactRow>, Problem> {
    let sql = "SELECT * FROM artifacts WHERE job = ?1 AND batch = ?2 ORDER BY seq";
    list(transaction, sql, (job.to_string(), batch))
}

/// The artifact with this id.
pub(crate) fn get(transaction: &Transaction<'_>, id: Uuid) -> Result<ArtifactRow, Problem> {
    transaction
        .prepare_cached("SELECT * FROM artifacts WHERE id = ?1")?
        .query_row([id.to_string()], |row| Ok(read(row)))
        .optional()?
        .ok_or_else(|| Problem::not_found("artifact", id))?
}

/// The artifacts of a build with where each comes from, oldest first; only those in `state`, when given.
pub(crate) fn of_build(
    transaction: &Transaction<'_>,
    build: Uuid,
    state: Option<ArtifactState>,
) -> Result<Vec<(ArtifactRow, Origin)>, Problem> {
    let mut statement = transaction.prepare_cached(
        "SELECT artifacts.*, jobs.step AS step, jobs.retried_in AS retried_in, steps.key AS step_key,
             json_extract(steps.definition, '$.label') AS step_label
         FROM artifacts JOIN jobs ON jobs.id = artifacts.job JOIN steps ON steps.id = jobs.step
         WHERE artifacts.build = ?1 AND (?2 IS NULL OR artifacts.state = ?2) ORDER BY artifacts.seq",
    )?;
    let mut rows = statement.query((build.to_string(), state.map(ArtifactState::as_str)))?;
    let mut artifacts = Vec::new();
    while let Some(row) = rows.next()? {
        let artifact = read(row)?;
        let origin = Origin {
            path: artifact.path.clone(),
            job: artifact.job,
            retried: row.maybe_id("retried_in")?.is_some(),
            step: row.id("step")?,
            step_key: row.column("step_key")?,
            step_label: row.column("step_label")?,
        };
        artifacts.push((artifact, origin));
    }
    Ok(artifacts)
}

/// Forgets an artifact. Its bytes are for the caller to remove.
pub(crate) fn delete(transaction: &Transaction<'_>, id: Uuid) -> Result<(), Problem> {
    transaction.prepare_cached("DELETE FROM artifacts WHERE id = ?1")?.execute([id.to_string()])?;
    Ok(())
}

/// Says how an upload ended.
pub(crate) fn set_state(
    transaction: &Transaction<'_>,
    id: Uuid,
    state: ArtifactState,
) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE artifacts SET state = ?2 WHERE id = ?1")?
        .execute((id.to_string(), state.as_str()))?;
    Ok(())
}

/// A part has come.
pub(crate) fn set_part(
    transaction: &Transaction<'_>,
    artifact: Uuid,
    part: u32,
    etag: &str,
) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO artifact_parts (artifact, part, etag) VALUES (?1, ?2, ?3)")?
        .execute((artifact.to_string(), part, etag))?;
    Ok(())
}

/// A part is about to come again.
pub(crate) fn forget_part(transaction: &Transaction<'_>, artifact: Uuid, part: u32) -> Result<(), Problem> {
    transaction
        .prepare_cached("DELETE FROM artifact_parts WHERE artifact = ?1 AND part = ?2")?
        .execute((artifact.to_string(), part))?;
    Ok(())
}

/// The parts that have come, with their tags, in order.
pub(crate) fn parts(transaction: &Transaction<'_>, artifact: Uuid) -> Result<Vec<(u32, String)>, Problem> {
    let mut statement = transaction
        .prepare_cached("SELECT part, etag FROM artifact_parts WHERE artifact = ?1 ORDER BY part")?;
    let parts = statement.query_map([artifact.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(parts.collect::<Result<_, _>>()?)
}

/// Those of `ids` that the database does not know, or not any more: their builds were pruned.
pub(crate) fn orphans(transaction: &Transaction<'_>, ids: HashSet<Uuid>) -> Result<HashSet<Uuid>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT 1 FROM artifacts WHERE id = ?1")?;
    let mut orphans = HashSet::new();
    for id in ids {
        if !statement.exists([id.to_string()])? {
            orphans.insert(id);
        }
    }
    Ok(orphans)
}
