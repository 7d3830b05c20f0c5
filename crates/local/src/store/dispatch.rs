//! Finding the next job for an agent that asks for work.

use rusqlite::{OptionalExtension, Transaction};
use uuid::Uuid;

use super::row::Columns;
use crate::dispatch;
use crate::problem::Problem;

/// The queue of jobs that any queue may run.
const ANY_QUEUE: &str = "*";

/// The job that an agent of `queue` with these tags should run next: by priority, then by age, then in order of
/// upload.
///
/// Thousands of jobs may wait for other agents, and hundreds of agents ask every second. Jobs of one queue share
/// few sets of rules, so the index is asked for these sets, and for the first job of each that fits.
pub(crate) fn next(
    transaction: &Transaction<'_>,
    queue: &str,
    tags: &[String],
) -> Result<Option<Uuid>, Problem> {
    let mut best: Option<(Rank, Uuid)> = None;
    for queue in [queue, ANY_QUEUE] {
        for rules in rule_sets(transaction, queue)? {
            if !dispatch::matches(&serde_json::from_str::<Vec<String>>(&rules)?, tags) {
                continue;
            }
            let first = first(transaction, queue, &rules)?;
            if let Some(first) = first.filter(|(rank, _)| best.is_none_or(|(known, _)| *rank < known)) {
                best = Some(first);
            }
        }
    }
    Ok(best.map(|(_, id)| id))
}

/// Smaller goes first: priority downwards, then `scheduled_at`, then the order of creation.
type Rank = (std::cmp::Reverse<i64>, i64, i64);

fn rule_sets(transaction: &Transaction<'_>, queue: &str) -> Result<Vec<String>, Problem> {
    // Steps through the distinct values of an index; SELECT DISTINCT would read every row.
    let sql = "
WITH RECURSIVE sets (rules) AS (
    SELECT MIN(rules) FROM jobs WHERE state = 'scheduled' AND queue = ?1
    UNION ALL
    SELECT (SELECT MIN(rules) FROM jobs WHERE state = 'scheduled' AND queue = ?1 AND rules > sets.rules)
    FROM sets WHERE sets.rules IS NOT NULL
)
SELECT rules FROM sets WHERE rules IS NOT NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    let sets = statement.query_map([queue], |row| row.get(0))?;
    Ok(sets.collect::<Result<_, _>>()?)
}

fn first(transaction: &Transaction<'_>, queue: &str, rules: &str) -> Result<Option<(Rank, Uuid)>, Problem> {
    let sql = "
SELECT id, priority, scheduled_at, seq FROM jobs WHERE state = 'scheduled' AND queue = ?1 AND rules = ?2
ORDER BY priority DESC, scheduled_at, seq LIMIT 1";
    transaction
        .prepare_cached(sql)?
        .query_row([queue, rules], |row| {
            Ok((|| {
                let rank = (
                    std::cmp::Reverse(row.column("priority")?),
                    row.column("scheduled_at")?,
                    row.column("seq")?,
                );
                Ok((rank, row.id("id")?))
            })())
        })
        .optional()?
        .transpose()
}
