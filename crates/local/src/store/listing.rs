//! Builds by what people search for.

use std::fmt::Write;

use jiff::Timestamp;
use rusqlite::Transaction;
use rusqlite::types::Value;
use uuid::Uuid;

use super::builds::{self, BuildRow};
use super::row::millis;
use crate::build::BuildState;
use crate::problem::Problem;

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) limit: u32,
    pub(crate) offset: u64,
}

/// Which builds are meant: those that all given conditions hold for. An empty list is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BuildFilter {
    pub(crate) pipeline: Option<Uuid>,
    pub(crate) number: Option<i64>,
    pub(crate) states: Vec<BuildState>,
    pub(crate) branches: Vec<String>,
    pub(crate) commits: Vec<String>,
    pub(crate) meta_data: Vec<(String, String)>,
    pub(crate) created_from: Option<Timestamp>,
    pub(crate) created_to: Option<Timestamp>,
    pub(crate) finished_from: Option<Timestamp>,
}

impl BuildFilter {
    /// The conditions in SQL, with their values.
    fn condition(&self) -> (String, Vec<Value>) {
        let mut sql = "1".to_owned();
        let mut values: Vec<Value> = Vec::new();
        let mut any_of = |column: &str, wanted: Vec<String>| {
            if !wanted.is_empty() {
                let marks = vec!["?"; wanted.len()].join(", ");
                let _infallible = write!(sql, " AND {column} IN ({marks})");
                values.extend(wanted.into_iter().map(Value::from));
            }
        };
        any_of("pipeline", self.pipeline.iter().map(Uuid::to_string).collect());
        any_of("state", self.states.iter().map(|state| state.as_str().to_owned()).collect());
        any_of("branch", self.branches.clone());
        any_of("commit_sha", self.commits.clone());
        for (key, value) in &self.meta_data {
            sql.push_str(
                " AND EXISTS (SELECT 1 FROM meta_data
                      WHERE meta_data.build = builds.id AND meta_data.key = ? AND meta_data.value = ?)",
            );
            values.extend([Value::from(key.clone()), Value::from(value.clone())]);
        }
        let bounds = [
            ("number =", self.number),
            ("created_at >=", self.created_from.map(millis)),
            ("created_at <", self.created_to.map(millis)),
            ("finished_at >=", self.finished_from.map(millis)),
        ];
        for (bound, value) in bounds {
            if let Some(value) = value {
                let _infallible = write!(sql, " AND {bound} ?");
                values.push(Value::from(value));
            }
        }
        (sql, values)
    }
}

/// A part of the builds that are meant, newest first, and how many there are in all.
pub(crate) fn builds(
    transaction: &Transaction<'_>,
    filter: &BuildFilter,
    slice: Slice,
) -> Result<(Vec<BuildRow>, u64), Problem> {
    let (condition, mut values) = filter.condition();
    let total: i64 = transaction
        .prepare_cached(&format!("SELECT COUNT(*) FROM builds WHERE {condition}"))?
        .query_row(rusqlite::params_from_iter(&values), |row| row.get(0))?;
    let sql =
        format!("SELECT * FROM builds WHERE {condition} ORDER BY created_at DESC, id DESC LIMIT ? OFFSET ?");
    values.push(Value::from(i64::from(slice.limit)));
    values.push(Value::from(i64::try_from(slice.offset).unwrap_or(i64::MAX)));
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(&values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(builds::read(row)?);
    }
    Ok((found, u64::try_from(total).unwrap_or_default()))
}
