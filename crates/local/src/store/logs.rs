//! Log chunks as rows.

use rusqlite::Transaction;
use uuid::Uuid;

use super::row::Columns;
use crate::log::Chunk;
use crate::problem::Problem;

/// Keeps a chunk as it came. A sequence number that is known already is left alone.
pub(crate) fn add(
    transaction: &Transaction<'_>,
    job: Uuid,
    sequence: i64,
    chunk: &Chunk,
) -> Result<(), Problem> {
    transaction
        .prepare_cached(
            "INSERT OR IGNORE INTO log_chunks (job, sequence, offset, size, gzip) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((job.to_string(), sequence, chunk.offset, chunk.size, &chunk.gzip))?;
    Ok(())
}

/// Whether a chunk with this number has been kept.
pub(crate) fn has(transaction: &Transaction<'_>, job: Uuid, sequence: i64) -> Result<bool, Problem> {
    Ok(transaction
        .prepare_cached("SELECT 1 FROM log_chunks WHERE job = ?1 AND sequence = ?2")?
        .exists((job.to_string(), sequence))?)
}

/// The chunks that reach beyond `from`, by offset.
pub(crate) fn chunks(transaction: &Transaction<'_>, job: Uuid, from: i64) -> Result<Vec<Chunk>, Problem> {
    let mut statement = transaction.prepare_cached(
        "SELECT offset, size, gzip FROM log_chunks WHERE job = ?1 AND offset + size > ?2 ORDER BY offset, sequence",
    )?;
    let mut rows = statement.query((job.to_string(), from))?;
    let mut chunks = Vec::new();
    while let Some(row) = rows.next()? {
        chunks.push(Chunk {
            offset: row.column("offset")?,
            size: row.column("size")?,
            gzip: row.column("gzip")?,
        });
    }
    Ok(chunks)
}
