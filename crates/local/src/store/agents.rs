//! Agents as rows.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, Transaction};
use uuid::Uuid;

use super::row::{Columns, json, millis};
use super::{builds, jobs, quietly};
use crate::build::{Event, Policy};
use crate::problem::Problem;

/// The longest pause of an agent: a week.
const MAX_PAUSE_MINUTES: i64 = 7 * 24 * 60;

/// An agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentRow {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) access_token: String,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) tags: Vec<String>,
    /// The queue that its tags name.
    pub(crate) queue: String,
    /// Takes no jobs by ping: it names its job itself, or leaves after the one it has.
    pub(crate) ignored: bool,
    /// `connected`, `disconnected` or `lost`.
    pub(crate) state: String,
    /// Somebody asked it to stop: its next ping tells it to leave.
    pub(crate) stopping: bool,
    pub(crate) pause: Option<Pause>,
    pub(crate) created_at: Timestamp,
    pub(crate) last_seen: Timestamp,
}

/// Somebody asked the agent to stay, but to take no jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) note: String,
    /// When it resumes by itself.
    pub(crate) until: Timestamp,
}

impl Pause {
    /// A pause of so many minutes: 5 when nobody says, and at most a week.
    pub(crate) fn lasting(note: String, minutes: Option<i64>, now: Timestamp) -> Result<Self, Problem> {
        let minutes = minutes.unwrap_or(5);
        if !(1..=MAX_PAUSE_MINUTES).contains(&minutes) {
            let text = format!("timeout_in_minutes must be between 1 and {MAX_PAUSE_MINUTES}, not {minutes}");
            return Err(Problem::Refused(text));
        }
        let until = now.saturating_add(SignedDuration::from_mins(minutes)).unwrap_or(Timestamp::MAX);
        Ok(Self { note, until })
    }
}

fn read(row: &Row<'_>) -> Result<AgentRow, Problem> {
    let pause = match (row.maybe_at("paused_until")?, row.column("pause_note")?) {
        (Some(until), note) => Some(Pause { note, until }),
        _ => None,
    };
    Ok(AgentRow {
        id: row.id("id")?,
        name: row.column("name")?,
        access_token: row.column("access_token")?,
        hostname: row.column("hostname")?,
        version: row.column("version")?,
        tags: row.json("tags")?,
        queue: row.column("queue")?,
        ignored: row.column("ignored")?,
        state: row.column("state")?,
        stopping: row.column("stopping")?,
        pause,
        created_at: row.at("created_at")?,
        last_seen: row.at("last_seen")?,
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
            "INSERT INTO agents (id, name, access_token, hostname, version, tags, queue, ignored, state, lost_at,
                 created_at, last_seen)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)",
        )?
        .execute((
            agent.id.to_string(),
            &agent.name,
            &agent.access_token,
            &agent.hostname,
            &agent.version,
            json(&agent.tags)?,
            &agent.queue,
            agent.ignored,
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
    let (id, now, lost_at) = (id.to_string(), millis(now), millis(lost_at));
    let still_here = transaction
        .prepare_cached(
            "UPDATE agents SET last_seen = ?2, lost_at = ?3 WHERE id = ?1 AND state = 'connected'",
        )?
        .execute((&id, now, lost_at))?;
    if still_here == 1 {
        quietly(still_here);
        return Ok(());
    }
    transaction
        .prepare_cached("UPDATE agents SET state = 'connected', last_seen = ?2, lost_at = ?3 WHERE id = ?1")?
        .execute((&id, now, lost_at))?;
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

/// The agents that are connected, by name.
pub(crate) fn connected(transaction: &Transaction<'_>) -> Result<Vec<AgentRow>, Problem> {
    let mut statement = transaction
        .prepare_cached("SELECT * FROM agents WHERE state = 'connected' ORDER BY name, created_at")?;
    let mut rows = statement.query([])?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        agents.push(read(row)?);
    }
    Ok(agents)
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

/// Asks the agent to leave at its next ping, after the job that it has. With `force`, that job is cancelled.
pub(crate) fn stop(
    transaction: &Transaction<'_>,
    id: Uuid,
    force: bool,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    transaction.prepare_cached("UPDATE agents SET stopping = 1 WHERE id = ?1")?.execute([id.to_string()])?;
    match jobs::of_agent(transaction, id)? {
        Some(owned) if force => {
            let event = Event::CancelJob { job: owned.job.id };
            builds::apply(transaction, owned.build, &event, policy, now)
        }
        _ => Ok(()),
    }
}

/// Asks the agent to take no jobs until then; `None` lets it go on.
pub(crate) fn set_pause(
    transaction: &Transaction<'_>,
    id: Uuid,
    pause: Option<&Pause>,
) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE agents SET paused_until = ?2, pause_note = ?3 WHERE id = ?1")?
        .execute((
            id.to_string(),
            pause.map(|pause| millis(pause.until)),
            pause.map_or("", |pause| pause.note.as_str()),
        ))?;
    Ok(())
}

/// The agent takes no further jobs by ping.
pub(crate) fn ignore(transaction: &Transaction<'_>, id: Uuid) -> Result<(), Problem> {
    transaction.prepare_cached("UPDATE agents SET ignored = 1 WHERE id = ?1")?.execute([id.to_string()])?;
    Ok(())
}
