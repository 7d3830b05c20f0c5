//! How many agents and jobs there are, for those who scale agents.

use std::collections::BTreeMap;

use rusqlite::Transaction;
use serde::Serialize;

use crate::problem::Problem;

/// Agents that are connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AgentCount {
    pub(crate) idle: u32,
    pub(crate) busy: u32,
    pub(crate) total: u32,
}

/// Command jobs that have not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct JobCount {
    /// Somebody can take them, or has reserved them.
    pub(crate) scheduled: u32,
    /// An agent has them.
    pub(crate) running: u32,
    /// Others come first.
    pub(crate) waiting: u32,
    pub(crate) total: u32,
}

/// Connected agents by queue.
pub(crate) fn agents(transaction: &Transaction<'_>) -> Result<BTreeMap<String, AgentCount>, Problem> {
    let sql = "
SELECT queue, COUNT(*), COUNT(*) FILTER (WHERE EXISTS (
    SELECT 1 FROM jobs WHERE jobs.agent = agents.id
        AND jobs.state IN ('assigned', 'accepted', 'running', 'canceling', 'timing_out')))
FROM agents WHERE state = 'connected' GROUP BY queue";
    let mut statement = transaction.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        let (total, busy): (u32, u32) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, AgentCount { idle: total - busy, busy, total }))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Unfinished command jobs by queue.
pub(crate) fn jobs(transaction: &Transaction<'_>) -> Result<BTreeMap<String, JobCount>, Problem> {
    let sql = "
SELECT queue, state, COUNT(*) FROM jobs WHERE finished_at IS NULL AND kind = 'script' GROUP BY queue, state";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut queues: BTreeMap<String, JobCount> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (queue, state, count): (String, String, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let known = queues.entry(queue).or_default();
        match state.as_str() {
            "scheduled" | "reserved" => known.scheduled += count,
            "assigned" | "accepted" | "running" | "canceling" | "timing_out" => known.running += count,
            "waiting" | "limiting" | "limited" => known.waiting += count,
            _ => continue,
        }
        known.total += count;
    }
    queues.retain(|_, count| count.total > 0);
    Ok(queues)
}
