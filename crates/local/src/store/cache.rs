//! Cache entries as rows.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction};
use serde_json::Value;
use uuid::Uuid;

use super::row::{Columns, json, millis};
use crate::cache::{Address, NewEntry};
use crate::problem::Problem;

/// An archive that can be restored.
#[derive(Debug, Clone)]
pub(crate) struct CacheEntry {
    id: Uuid,
    pub(crate) address: Address,
    pub(crate) blobs: Vec<Value>,
    pub(crate) expires_at: Timestamp,
}

/// Notes an entry whose archive is about to be uploaded, and forgets what has expired. It is found once it is
/// committed.
pub(crate) fn announce(
    transaction: &Transaction<'_>,
    entry: &NewEntry,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<Uuid, Problem> {
    transaction.prepare_cached("DELETE FROM cache_entries WHERE expires_at <= ?1")?.execute([millis(now)])?;
    let id = Uuid::now_v7();
    transaction
        .prepare_cached(
            "INSERT INTO cache_entries (id, target_paths, cache_key, blobs, platform, committed, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
        )?
        .execute((
            id.to_string(),
            json(&entry.address.target_paths)?,
            json(&entry.address.cache_key)?,
            json(&entry.blobs)?,
            &entry.platform,
            millis(expires_at),
        ))?;
    Ok(id)
}

/// The archive has been uploaded: the entry holds from now on, instead of an earlier one of the same key. Says
/// whether there is such an upload.
pub(crate) fn commit(transaction: &Transaction<'_>, id: Uuid) -> Result<bool, Problem> {
    let found: Option<(String, String)> = transaction
        .prepare_cached("SELECT target_paths, cache_key FROM cache_entries WHERE id = ?1")?
        .query_row([id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((target_paths, cache_key)) = found else { return Ok(false) };
    transaction
        .prepare_cached(
            "DELETE FROM cache_entries WHERE committed AND target_paths = ?1 AND cache_key = ?2 AND id <> ?3",
        )?
        .execute((target_paths, cache_key, id.to_string()))?;
    transaction
        .prepare_cached("UPDATE cache_entries SET committed = 1 WHERE id = ?1")?
        .execute([id.to_string()])?;
    Ok(true)
}

/// The entries for these paths that hold, newest first.
pub(crate) fn entries(
    transaction: &Transaction<'_>,
    target_paths: &[String],
    now: Timestamp,
) -> Result<Vec<CacheEntry>, Problem> {
    let mut statement = transaction.prepare_cached(
        "SELECT * FROM cache_entries WHERE committed AND target_paths = ?1 AND expires_at > ?2 ORDER BY id DESC",
    )?;
    let mut rows = statement.query((json(&target_paths)?, millis(now)))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(CacheEntry {
            id: row.id("id")?,
            address: Address { target_paths: row.json("target_paths")?, cache_key: row.json("cache_key")? },
            blobs: row.json("blobs")?,
            expires_at: row.at("expires_at")?,
        });
    }
    Ok(entries)
}

/// Forgets an entry.
pub(crate) fn remove(transaction: &Transaction<'_>, entry: &CacheEntry) -> Result<(), Problem> {
    transaction.prepare_cached("DELETE FROM cache_entries WHERE id = ?1")?.execute([entry.id.to_string()])?;
    Ok(())
}
