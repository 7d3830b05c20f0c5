//! Directories that are served over git, as rows.

use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use crate::problem::Problem;

/// Keeps the directory under a key that cannot be guessed; a known one keeps its key.
pub(crate) fn register(transaction: &Transaction<'_>, path: &str) -> Result<String, Problem> {
    transaction
        .prepare_cached("INSERT OR IGNORE INTO repositories (key, path) VALUES (?1, ?2)")?
        .execute((Uuid::new_v4().simple().to_string(), path))?;
    Ok(transaction
        .prepare_cached("SELECT key FROM repositories WHERE path = ?1")?
        .query_row([path], |row| row.get(0))?)
}

/// The directory behind a key.
pub(crate) fn path(transaction: &Transaction<'_>, key: &str) -> Result<Option<String>, Problem> {
    Ok(transaction
        .prepare_cached("SELECT path FROM repositories WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?)
}
