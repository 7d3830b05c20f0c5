//! Single steps of a build, by id or key.

use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::{Columns, json};
use crate::pipeline::step::{Kind, Step};
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

/// Notes an update of a step. Says whether it is the first time that this one is asked for.
pub(crate) fn is_new_update(transaction: &Transaction<'_>, build: Uuid, uuid: &str) -> Result<bool, Problem> {
    let new = transaction
        .prepare_cached("INSERT OR IGNORE INTO step_updates (build, uuid) VALUES (?1, ?2)")?
        .execute((build.to_string(), uuid))?;
    Ok(new == 1)
}

/// Writes a changed step. Its priority is also that of its jobs that nobody has taken yet.
pub(crate) fn save(transaction: &Transaction<'_>, id: Uuid, step: &Step) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE steps SET definition = ?2 WHERE id = ?1")?
        .execute((id.to_string(), json(step)?))?;
    if let Kind::Command(command) = &step.kind {
        transaction
            .prepare_cached(
                "UPDATE jobs SET priority = ?2 WHERE step = ?1 AND finished_at IS NULL AND agent IS NULL
                 AND priority != ?2",
            )?
            .execute((id.to_string(), command.priority))?;
    }
    Ok(())
}
