//! Log chunks as rows.

use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::Columns;
use crate::log::{Chunk, Excerpt, MAX_CHUNK};
use crate::problem::Problem;

/// Keeps a chunk as it came. A sequence number that is known already is left alone, and what lies beyond
/// `limit` bytes of the job's log is discarded.
pub(crate) fn add(
    transaction: &Transaction<'_>,
    job: Uuid,
    sequence: i64,
    chunk: &Chunk,
    limit: i64,
) -> Result<(), Problem> {
    let job = job.to_string();
    let end = chunk.offset.saturating_add(chunk.size);
    let weight = chunk.size.max(i64::try_from(chunk.gzip.len()).unwrap_or(i64::MAX));
    transaction
        .prepare_cached(
            "INSERT INTO logs (job, length, stored) VALUES (?1, ?2, 0)
             ON CONFLICT (job) DO UPDATE SET length = MAX(length, ?2)",
        )?
        .execute((&job, end))?;
    let kept = transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO log_chunks (job, sequence, offset, size, gzip)
             SELECT ?1, ?2, ?3, ?4, ?5 FROM logs
             WHERE job = ?1 AND stored + ?6 <= ?7 AND ?3 + ?4 <= ?7",
        )?
        .execute((&job, sequence, chunk.offset, chunk.size, &chunk.gzip, weight, limit))?;
    if kept > 0 {
        transaction
            .prepare_cached("UPDATE logs SET stored = stored + ?2 WHERE job = ?1")?
            .execute((&job, weight))?;
    }
    Ok(())
}

/// Whether a chunk with this number has been kept.
pub(crate) fn has(transaction: &Transaction<'_>, job: Uuid, sequence: i64) -> Result<bool, Problem> {
    Ok(transaction
        .prepare_cached("SELECT 1 FROM log_chunks WHERE job = ?1 AND sequence = ?2")?
        .exists((job.to_string(), sequence))?)
}

/// How many bytes the log has, those included that are missing or were discarded.
pub(crate) fn length(transaction: &Transaction<'_>, job: Uuid) -> Result<i64, Problem> {
    let sql = "SELECT length FROM logs WHERE job = ?1";
    let found = transaction.prepare_cached(sql)?.query_row([job.to_string()], |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(0))
}

/// The part of the log that begins at byte `from` and has at most `max` bytes. Only its own chunks are
/// fetched, however long the log is; [`crate::log::read`] unpacks them, best outside the transaction.
pub(crate) fn read_from(
    transaction: &Transaction<'_>,
    job: Uuid,
    from: i64,
    max: usize,
) -> Result<Excerpt, Problem> {
    let mut excerpt = Excerpt { from, max, length: length(transaction, job)?, chunks: Vec::new() };
    let mut statement = transaction.prepare_cached(
        "SELECT offset, size, gzip FROM log_chunks WHERE job = ?1 AND offset > ?2 AND offset + size > ?3
         ORDER BY offset, size DESC",
    )?;
    let mut rows = statement.query((job.to_string(), from.saturating_sub(MAX_CHUNK), from))?;
    let (mut at, mut room) = (from, i64::try_from(max).unwrap_or(i64::MAX));
    while let Some(row) = rows.next()? {
        let (offset, size): (i64, i64) = (row.column("offset")?, row.column("size")?);
        let end = offset.saturating_add(size);
        if end <= at {
            continue;
        }
        // One chunk more than fits tells that there is more.
        let full = room <= 0;
        excerpt.chunks.push(Chunk { offset, size, gzip: row.column("gzip")? });
        if full {
            break;
        }
        room -= end - offset.max(at);
        at = end;
    }
    Ok(excerpt)
}

#[cfg(test)]
mod tests;
