//! Build meta-data and annotations as rows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::millis;
use crate::problem::Problem;

/// Sets meta-data; the last write wins.
pub(crate) fn set(transaction: &Transaction<'_>, build: Uuid, key: &str, value: &str) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO meta_data (build, key, value) VALUES (?1, ?2, ?3)")?
        .execute((build.to_string(), key, value))?;
    Ok(())
}

/// The value of a key, if it was set.
pub(crate) fn get(transaction: &Transaction<'_>, build: Uuid, key: &str) -> Result<Option<String>, Problem> {
    Ok(transaction
        .prepare_cached("SELECT value FROM meta_data WHERE build = ?1 AND key = ?2")?
        .query_row((build.to_string(), key), |row| row.get(0))
        .optional()?)
}

/// Every key that was set.
pub(crate) fn keys(transaction: &Transaction<'_>, build: Uuid) -> Result<Vec<String>, Problem> {
    let mut statement =
        transaction.prepare_cached("SELECT key FROM meta_data WHERE build = ?1 ORDER BY key")?;
    let keys = statement.query_map([build.to_string()], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// Every key with its value.
pub(crate) fn all(transaction: &Transaction<'_>, build: Uuid) -> Result<BTreeMap<String, String>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT key, value FROM meta_data WHERE build = ?1")?;
    let pairs = statement.query_map([build.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(pairs.collect::<Result<_, _>>()?)
}

/// An annotation of a build, or of one of its jobs.
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    /// The job, for annotations of job scope.
    pub(crate) job: Option<Uuid>,
    pub(crate) context: String,
    pub(crate) style: String,
    pub(crate) priority: i64,
    pub(crate) body: String,
}

impl Annotation {
    fn scope(job: Option<Uuid>) -> (&'static str, String) {
        job.map_or(("build", String::new()), |id| ("job", id.to_string()))
    }
}

/// Replaces the annotation of this context, or adds to its body. Says how many bytes the body has now.
pub(crate) fn annotate(
    transaction: &Transaction<'_>,
    build: Uuid,
    annotation: &Annotation,
    append: bool,
    now: Timestamp,
) -> Result<u32, Problem> {
    let (scope, job) = Annotation::scope(annotation.job);
    let size = transaction
        .prepare_cached(
            "INSERT INTO annotations (build, scope, job, context, style, priority, body, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (build, scope, job, context) DO UPDATE SET
                 style = CASE WHEN ?5 = '' THEN style ELSE ?5 END, priority = ?6,
                 body = CASE WHEN ?9 THEN body || ?7 ELSE ?7 END
             RETURNING length(CAST(body AS BLOB))",
        )?
        .query_row(
            (
                build.to_string(),
                scope,
                job,
                &annotation.context,
                &annotation.style,
                annotation.priority,
                &annotation.body,
                millis(now),
                append,
            ),
            |row| row.get(0),
        )?;
    Ok(size)
}

/// Removes an annotation. Says whether there was one.
pub(crate) fn remove_annotation(
    transaction: &Transaction<'_>,
    build: Uuid,
    job: Option<Uuid>,
    context: &str,
) -> Result<bool, Problem> {
    let (scope, job) = Annotation::scope(job);
    let removed = transaction
        .prepare_cached(
            "DELETE FROM annotations WHERE build = ?1 AND scope = ?2 AND job = ?3 AND context = ?4",
        )?
        .execute((build.to_string(), scope, job, context))?;
    Ok(removed > 0)
}

/// The annotations of a build, most important first.
pub(crate) fn annotations(transaction: &Transaction<'_>, build: Uuid) -> Result<Vec<Annotation>, Problem> {
    let mut statement = transaction.prepare_cached(
        "SELECT job, context, style, priority, body FROM annotations WHERE build = ?1
         ORDER BY priority DESC, created_at",
    )?;
    let found = statement.query_map([build.to_string()], |row| {
        Ok(Annotation {
            job: Uuid::parse_str(&row.get::<_, String>(0)?).ok(),
            context: row.get(1)?,
            style: row.get(2)?,
            priority: row.get(3)?,
            body: row.get(4)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
