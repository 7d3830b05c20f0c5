//! What the page shows across tables. Reads only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Row, Transaction};
use uuid::Uuid;

use super::row::Columns;
use super::stacks::StackRow;
use crate::pipeline::step::{Permutation, Step};
use crate::problem::Problem;

/// The most agents that are listed: all that are here, then those that left last.
const AGENTS_LISTED: u32 = 200;

/// A job by the place where people find it.
#[derive(Debug, Clone)]
pub(crate) struct JobPlace {
    pub(crate) job: Uuid,
    pub(crate) step: Step,
    pub(crate) matrix: Option<Permutation>,
    pub(crate) parallel: Option<(u32, u32)>,
    pub(crate) pipeline: String,
    pub(crate) number: i64,
}

/// An agent without its secrets, and what it runs.
#[derive(Debug, Clone)]
pub(crate) struct AgentLine {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) tags: Vec<String>,
    pub(crate) state: String,
    pub(crate) stopping: bool,
    pub(crate) paused: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) last_seen: Timestamp,
    pub(crate) job: Option<JobPlace>,
}

/// A queue, and how many jobs are where in it.
#[derive(Debug, Clone)]
pub(crate) struct QueueLine {
    /// None of one that jobs name and that nobody has created.
    pub(crate) id: Option<Uuid>,
    pub(crate) key: String,
    pub(crate) paused: bool,
    pub(crate) scheduled: i64,
    pub(crate) reserved: i64,
    pub(crate) running: i64,
}

fn collect<T>(
    transaction: &Transaction<'_>,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T, Problem>,
) -> Result<Vec<T>, Problem> {
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The agents: those that are here first, then by when they were last heard of.
pub(crate) fn agents(transaction: &Transaction<'_>) -> Result<Vec<AgentLine>, Problem> {
    let sql = "
SELECT agents.id, agents.name, agents.hostname, agents.version, agents.tags, agents.state, agents.created_at,
    agents.stopping, agents.paused_until IS NOT NULL AS paused, agents.last_seen, jobs.id AS job, steps.definition, jobs.matrix,
    jobs.parallel_index, jobs.parallel_count, builds.number, pipelines.slug
FROM agents
    LEFT JOIN jobs ON jobs.agent = agents.id
        AND jobs.state IN ('assigned', 'accepted', 'running', 'canceling', 'timing_out')
    LEFT JOIN steps ON steps.id = jobs.step
    LEFT JOIN builds ON builds.id = jobs.build
    LEFT JOIN pipelines ON pipelines.id = builds.pipeline
ORDER BY agents.lost_at IS NULL, CASE WHEN agents.lost_at IS NULL THEN -agents.last_seen END, agents.name
LIMIT ?1";
    collect(transaction, sql, [AGENTS_LISTED], |row| {
        let job = match row.maybe_id("job")? {
            Some(job) => Some(JobPlace {
                job,
                step: row.json("definition")?,
                matrix: row.maybe_json("matrix")?,
                parallel: Option::zip(row.column("parallel_index")?, row.column("parallel_count")?),
                pipeline: row.column("slug")?,
                number: row.column("number")?,
            }),
            None => None,
        };
        Ok(AgentLine {
            id: row.id("id")?,
            name: row.column("name")?,
            hostname: row.column("hostname")?,
            version: row.column("version")?,
            tags: row.json("tags")?,
            state: row.column("state")?,
            stopping: row.column("stopping")?,
            paused: row.column("paused")?,
            created_at: row.at("created_at")?,
            last_seen: row.at("last_seen")?,
            job,
        })
    })
}

/// The stacks by key, each with how many jobs it has reserved.
pub(crate) fn stacks(transaction: &Transaction<'_>) -> Result<Vec<(StackRow, i64)>, Problem> {
    let sql = "
SELECT stacks.*,
    (SELECT count(*) FROM jobs WHERE jobs.stack = stacks.id AND jobs.state = 'reserved') AS reserved
FROM stacks ORDER BY key";
    collect(transaction, sql, [], |row| Ok((super::stacks::read(row)?, row.column("reserved")?)))
}

/// The queues by key, with those that only jobs name.
pub(crate) fn queues(transaction: &Transaction<'_>) -> Result<Vec<QueueLine>, Problem> {
    let sql = "
WITH named AS (SELECT key FROM queues UNION SELECT queue FROM jobs WHERE state = 'scheduled')
SELECT queues.id, named.key, coalesce(queues.paused, FALSE) AS paused,
    count(CASE WHEN jobs.state = 'scheduled' THEN 1 END) AS scheduled,
    count(CASE WHEN jobs.state = 'reserved' THEN 1 END) AS reserved,
    count(CASE WHEN jobs.state IN ('assigned', 'accepted', 'running', 'canceling', 'timing_out') THEN 1 END)
        AS running
FROM named LEFT JOIN queues ON queues.key = named.key LEFT JOIN jobs ON jobs.queue = named.key
    AND jobs.state IN ('scheduled', 'reserved', 'assigned', 'accepted', 'running', 'canceling', 'timing_out')
GROUP BY named.key ORDER BY named.key";
    collect(transaction, sql, [], |row| {
        Ok(QueueLine {
            id: row.maybe_id("id")?,
            key: row.column("key")?,
            paused: row.column("paused")?,
            scheduled: row.column("scheduled")?,
            reserved: row.column("reserved")?,
            running: row.column("running")?,
        })
    })
}

/// The names of the agents and the keys of the stacks that have had jobs of this build, by id.
pub(crate) fn runners(transaction: &Transaction<'_>, build: Uuid) -> Result<BTreeMap<Uuid, String>, Problem> {
    let sql = "
SELECT id, name FROM agents WHERE id IN (SELECT agent FROM jobs WHERE build = ?1)
UNION ALL SELECT id, key FROM stacks WHERE id IN (SELECT stack FROM jobs WHERE build = ?1)";
    let named =
        collect(transaction, sql, [build.to_string()], |row| Ok((row.id("id")?, row.column("name")?)))?;
    Ok(named.into_iter().collect())
}

/// The jobs of a build whose timeline holds something other than what their state says.
pub(crate) fn told_by_stacks(
    transaction: &Transaction<'_>,
    build: Uuid,
) -> Result<BTreeMap<Uuid, String>, Problem> {
    let sql = "
SELECT job_events.job, job_events.detail FROM job_events JOIN jobs ON jobs.id = job_events.job
WHERE jobs.build = ?1 AND job_events.detail != '' AND (job_events.kind != 'limited' OR jobs.state = 'limited')
ORDER BY job_events.at, job_events.seq";
    // Later ones replace earlier ones.
    let told =
        collect(transaction, sql, [build.to_string()], |row| Ok((row.id("job")?, row.column("detail")?)))?;
    Ok(told.into_iter().collect())
}

/// A build that a trigger job started.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) pipeline: String,
    pub(crate) number: i64,
    pub(crate) state: String,
}

/// The builds that trigger jobs of this build started, by job.
pub(crate) fn children(transaction: &Transaction<'_>, build: Uuid) -> Result<BTreeMap<Uuid, Child>, Problem> {
    let sql = "
SELECT jobs.id, pipelines.slug, builds.number, builds.state
FROM jobs JOIN builds ON builds.id = jobs.child JOIN pipelines ON pipelines.id = builds.pipeline
WHERE jobs.build = ?1";
    let found = collect(transaction, sql, [build.to_string()], |row| {
        let child = Child {
            pipeline: row.column("slug")?,
            number: row.column("number")?,
            state: row.column("state")?,
        };
        Ok((row.id("id")?, child))
    })?;
    Ok(found.into_iter().collect())
}

/// The meta-data of a build.
pub(crate) fn meta_data(
    transaction: &Transaction<'_>,
    build: Uuid,
) -> Result<BTreeMap<String, String>, Problem> {
    let sql = "SELECT key, value FROM meta_data WHERE build = ?1";
    let pairs =
        collect(transaction, sql, [build.to_string()], |row| Ok((row.column("key")?, row.column("value")?)))?;
    Ok(pairs.into_iter().collect())
}

/// How many builds of a pipeline have not ended.
pub(crate) fn unfinished(transaction: &Transaction<'_>, pipeline: Uuid) -> Result<i64, Problem> {
    let sql = "SELECT count(*) FROM builds WHERE pipeline = ?1 AND finished_at IS NULL";
    Ok(transaction.prepare_cached(sql)?.query_row([pipeline.to_string()], |row| row.get(0))?)
}
