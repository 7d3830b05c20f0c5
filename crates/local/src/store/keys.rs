//! Secrets of the server itself, made once and kept with the database.

use rusqlite::{OptionalExtension, Transaction};

use crate::problem::Problem;

/// The secret kept under this name, if there is one yet.
pub(crate) fn get(transaction: &Transaction<'_>, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    Ok(transaction
        .query_row("SELECT secret FROM keys WHERE name = ?1", [name], |row| row.get(0))
        .optional()?)
}

/// Keeps a secret, unless another was faster. Returns the one that is kept.
pub(crate) fn keep(transaction: &Transaction<'_>, name: &str, secret: &[u8]) -> Result<Vec<u8>, Problem> {
    transaction.execute("INSERT OR IGNORE INTO keys (name, secret) VALUES (?1, ?2)", (name, secret))?;
    get(transaction, name)?.ok_or_else(|| Problem::Corrupt(format!("the key {name} is not kept")))
}
