//! Single steps of a build, by id or key.

use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::Columns;
use crate::problem::Problem;

/// The step of this build with this id or key. No key looks like an id.
pub(crate) fn find(transaction: &Transaction<'_>, build: Uuid, id_or_key: &str) -> Result<Uuid, Problem> {
    let id = Uuid::parse_str(id_or_key).map_or_else(|_| id_or_key.to_owned(), |id| id.to_string());
    transaction
        .prepare_cached("SELECT id FROM steps WHERE build = ?1 AND (id = ?2 OR key = ?3)")?
        .query_row((build.to_string(), id, id_or_key), |row| Ok(row.id("id")))
        .optional()?
        .ok_or_else(|| Problem::NotFound(format!("no step {id_or_key:?} in this build")))?
}
