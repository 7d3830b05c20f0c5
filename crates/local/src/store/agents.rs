//! Agents as rows.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction};
use uuid::Uuid;

use super::row::{Columns, json, millis};
use crate::problem::Problem;

/// An agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentRow {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) access_token: String,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) tags: Vec<String>,
    /// `connected`, `disconnected` or `lost`.
    pub(crate) state: String,
    pub(crate) created_at: Timestamp,
}

fn read(row: &Row<'_>) -> Result<AgentRow, Problem> {
    Ok(AgentRow {
        id: row.id("id")?,
        name: row.column("name")?,
        access_token: row.column("access_token")?,
        hostname: row.column("hostname")?,
        version: row.column("version")?,
        tags: row.json("tags")?,
        state: row.column("state")?,
        created_at: row.at("created_at")?,
    })
}

fn find(transaction: &Transaction<'_>, sql: &str, value: &str) -> Result<Option<AgentRow>, Problem> {
    transaction.prepare_cached(sql)?.query_row([value], |row| Ok(read(row))).optional()?.transpose()
}

/// The agent with this id.
pub(crate) fn get(transaction: &Transaction<'_>, id: Uuid) -> Result<Option<AgentRow>, Problem> {
    find(transaction, "SELECT * FROM agents WHERE id = ?1", &id.to_string())
}

/// The agent that this access token belongs to.
pub(crate) fn by_token(transaction: &Transaction<'_>, token: &str) -> Result<Option<AgentRow>, Problem> {
    find(transaction, "SELECT * FROM agents WHERE access_token = ?1", token)
}

/// How many agents have registered so far, for names.
pub(crate) fn count(transaction: &Transaction<'_>) -> Result<i64, Problem> {
    Ok(transaction.prepare_cached("SELECT COUNT(*) FROM agents")?.query_row([], |row| row.get(0))?)
}

/// Writes a new agent, to be given up when it stays silent until `lost_at`.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    agent: &AgentRow,
    lost_at: Timestamp,
) -> Result<(), Problem> {
    transaction
        .prepare_cached(
            "INSERT INTO agents (id, name, access_token, hostname, version, tags, state, lost_at, created_at, last_seen)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)",
        )?
        .execute((
            agent.id.to_string(),
            &agent.name,
            &agent.access_token,
            &agent.hostname,
            &agent.version,
            json(&agent.tags)?,
            &agent.state,
            millis(lost_at),
            millis(agent.created_at),
        ))?;
    Ok(())
}

/// The agent has been heard of.
pub(crate) fn seen(
    transaction: &Transaction<'_>,
    id: Uuid,
    now: Timestamp,
    lost_at: Timestamp,
) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE agents SET state = 'connected', last_seen = ?2, lost_at = ?3 WHERE id = ?1")?
        .execute((id.to_string(), millis(now), millis(lost_at)))?;
    Ok(())
}

/// The agent has left (`disconnected`) or has been given up (`lost`).
pub(crate) fn gone(transaction: &Transaction<'_>, id: Uuid, state: &str) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE agents SET state = ?2, lost_at = NULL WHERE id = ?1")?
        .execute((id.to_string(), state))?;
    Ok(())
}

/// After a start: agents could not be heard while the server was down, so each gets its time again.
pub(crate) fn forgive(transaction: &Transaction<'_>, lost_at: Timestamp) -> Result<(), Problem> {
    transaction.execute(
        "UPDATE agents SET lost_at = MAX(lost_at, ?1) WHERE lost_at IS NOT NULL",
        [millis(lost_at)],
    )?;
    Ok(())
}

/// The agents that have been silent for too long.
pub(crate) fn silent(transaction: &Transaction<'_>, now: Timestamp) -> Result<Vec<AgentRow>, Problem> {
    let mut statement = transaction
        .prepare_cached("SELECT * FROM agents WHERE lost_at IS NOT NULL AND lost_at <= ?1 LIMIT 500")?;
    let mut rows = statement.query([millis(now)])?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        agents.push(read(row)?);
    }
    Ok(agents)
}
