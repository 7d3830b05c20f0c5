//! Jobs as rows.

use rusqlite::{OptionalExtension, Row, Transaction, named_params};
use uuid::Uuid;

use super::row::{Columns, json, millis};
use crate::build::concurrency::Member;
use crate::build::{Job, JobKind, JobState, Policy};
use crate::problem::Problem;

/// A job with the build it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct OwnedJob {
    pub(crate) build: Uuid,
    pub(crate) job: Job,
}

/// The job with this id.
pub(crate) fn get(transaction: &Transaction<'_>, id: Uuid) -> Result<OwnedJob, Problem> {
    find(transaction, "SELECT * FROM jobs WHERE id = ?1", &id.to_string())?
        .ok_or_else(|| Problem::not_found("job", id))
}

/// The state of the job with this id.
pub(crate) fn state(transaction: &Transaction<'_>, id: Uuid) -> Result<JobState, Problem> {
    let text: Option<String> = transaction
        .prepare_cached("SELECT state FROM jobs WHERE id = ?1")?
        .query_row([id.to_string()], |row| row.get(0))
        .optional()?;
    Ok(text.ok_or_else(|| Problem::not_found("job", id))?.parse()?)
}

/// The job that this job token belongs to.
pub(crate) fn by_token(transaction: &Transaction<'_>, token: &str) -> Result<Option<OwnedJob>, Problem> {
    find(transaction, "SELECT * FROM jobs WHERE token = ?1", token)
}

/// A job that this agent has now. It has one at most, unless it names several itself.
pub(crate) fn of_agent(transaction: &Transaction<'_>, agent: Uuid) -> Result<Option<OwnedJob>, Problem> {
    let sql = "SELECT * FROM jobs WHERE agent = ?1 \
               AND state IN ('assigned', 'accepted', 'running', 'canceling', 'timing_out')";
    find(transaction, sql, &agent.to_string())
}

fn find(transaction: &Transaction<'_>, sql: &str, value: &str) -> Result<Option<OwnedJob>, Problem> {
    let mut statement = transaction.prepare_cached(sql)?;
    let found = statement.query_row([value], |row| Ok(read(row))).optional()?;
    found.transpose()
}

/// The jobs of a build in order of creation.
pub(crate) fn of_build(transaction: &Transaction<'_>, build: Uuid) -> Result<Vec<Job>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT * FROM jobs WHERE build = ?1 ORDER BY seq")?;
    let mut rows = statement.query([build.to_string()])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(read(row)?.job);
    }
    Ok(jobs)
}

/// The jobs of a concurrency group that have not ended, oldest first. Uploaded jobs are as old as their uploader.
pub(crate) fn of_group(transaction: &Transaction<'_>, group: &str) -> Result<Vec<Member>, Problem> {
    let sql = "SELECT id, build, state, priority, concurrency FROM jobs
         WHERE concurrency_group = ?1 AND finished_at IS NULL ORDER BY scheduled_at, seq";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([group])?;
    let mut members = Vec::new();
    while let Some(row) = rows.next()? {
        members.push(Member {
            job: row.id("id")?,
            build: row.id("build")?,
            state: row.column::<String>("state")?.parse()?,
            priority: row.column("priority")?,
            concurrency: row.json("concurrency")?,
        });
    }
    Ok(members)
}

/// Puts a job into another state that has the same deadline: none.
pub(crate) fn set_state(transaction: &Transaction<'_>, job: Uuid, state: JobState) -> Result<(), Problem> {
    transaction
        .prepare_cached("UPDATE jobs SET state = ?2 WHERE id = ?1")?
        .execute((job.to_string(), state.as_str()))?;
    Ok(())
}

/// Every job that has not ended, in order of creation.
pub(crate) fn unfinished(transaction: &Transaction<'_>) -> Result<Vec<OwnedJob>, Problem> {
    let sql = "SELECT * FROM jobs WHERE finished_at IS NULL ORDER BY seq";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(read(row)?);
    }
    Ok(jobs)
}

/// The jobs whose deadline has passed, with their builds.
pub(crate) fn overdue(transaction: &Transaction<'_>, now: jiff::Timestamp) -> Result<Vec<OwnedJob>, Problem> {
    let sql = "SELECT * FROM jobs WHERE deadline IS NOT NULL AND deadline <= ?1 ORDER BY deadline LIMIT 500";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([millis(now)])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(read(row)?);
    }
    Ok(jobs)
}

/// The jobs that stacks have reserved.
pub(crate) fn reserved(transaction: &Transaction<'_>) -> Result<Vec<OwnedJob>, Problem> {
    let mut statement =
        transaction.prepare_cached("SELECT * FROM jobs WHERE state = 'reserved' ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(read(row)?);
    }
    Ok(jobs)
}

fn read(row: &Row<'_>) -> Result<OwnedJob, Problem> {
    let parallel = match (row.column("parallel_index")?, row.column("parallel_count")?) {
        (Some(index), Some(count)) => Some((index, count)),
        _ => None,
    };
    let job = Job {
        id: row.id("id")?,
        step: row.id("step")?,
        kind: kind(&row.column::<String>("kind")?)?,
        state: row.column::<String>("state")?.parse()?,
        priority: row.column("priority")?,
        queue: row.column("queue")?,
        rules: row.json("rules")?,
        parallel,
        matrix: row.maybe_json("matrix")?,
        concurrency: row.maybe_json("concurrency")?,
        child: row.maybe_id("child")?,
        retry_count: row.column("retry_count")?,
        rule_uses: row.json("rule_uses")?,
        retried_in: row.maybe_id("retried_in")?,
        timeout_in_minutes: row.column("timeout_in_minutes")?,
        exit_status: row.column("exit_status")?,
        signal: row.column("signal")?,
        signal_reason: row.column("signal_reason")?,
        soft_failed: row.column("soft_failed")?,
        stack: row.maybe_id("stack")?,
        reserved_until: row.maybe_at("reserved_until")?,
        agent: row.maybe_id("agent")?,
        token: row.column("token")?,
        created_at: row.at("created_at")?,
        scheduled_at: row.at("scheduled_at")?,
        runnable_at: row.maybe_at("runnable_at")?,
        assigned_at: row.maybe_at("assigned_at")?,
        accepted_at: row.maybe_at("accepted_at")?,
        started_at: row.maybe_at("started_at")?,
        stopping_at: row.maybe_at("stopping_at")?,
        stop_by: row.maybe_at("stop_by")?,
        promised_exit: row.column("promised_exit")?,
        finished_at: row.maybe_at("finished_at")?,
    };
    Ok(OwnedJob { build: row.id("build")?, job })
}

const KINDS: [(JobKind, &str); 4] = [
    (JobKind::Command, "script"),
    (JobKind::Waiter, "waiter"),
    (JobKind::Manual, "manual"),
    (JobKind::Trigger, "trigger"),
];

fn kind(text: &str) -> Result<JobKind, Problem> {
    KINDS
        .iter()
        .find(|(_, name)| *name == text)
        .map(|(kind, _)| *kind)
        .ok_or_else(|| Problem::Corrupt(format!("job kind {text:?}")))
}

/// The name of a kind in the database and in REST answers.
pub(crate) fn kind_name(kind: JobKind) -> &'static str {
    KINDS.iter().find(|(one, _)| *one == kind).map_or("script", |(_, name)| name)
}

/// Writes a job, new or changed, with the deadline that follows from its state.
pub(crate) fn save(
    transaction: &Transaction<'_>,
    build: Uuid,
    job: &Job,
    policy: &Policy,
) -> Result<(), Problem> {
    let sql = "
INSERT INTO jobs (id, build, step, kind, state, priority, queue, rules, parallel_index, parallel_count,
    matrix, concurrency_group, concurrency, child, retry_count, rule_uses, retried_in, timeout_in_minutes, exit_status, signal, signal_reason,
    soft_failed, stack, reserved_until, agent, token, created_at, scheduled_at, runnable_at, assigned_at, accepted_at,
    started_at, stopping_at, stop_by, promised_exit, finished_at, deadline)
VALUES (:id, :build, :step, :kind, :state, :priority, :queue, :rules, :parallel_index, :parallel_count,
    :matrix, :concurrency_group, :concurrency, :child, :retry_count, :rule_uses, :retried_in, :timeout_in_minutes, :exit_status, :signal, :signal_reason,
    :soft_failed, :stack, :reserved_until, :agent, :token, :created_at, :scheduled_at, :runnable_at,
    :assigned_at, :accepted_at, :started_at, :stopping_at, :stop_by, :promised_exit, :finished_at, :deadline)
ON CONFLICT (id) DO UPDATE SET state = :state, priority = :priority, rule_uses = :rule_uses,
    child = :child, retried_in = :retried_in, timeout_in_minutes = :timeout_in_minutes, exit_status = :exit_status,
    signal = :signal, signal_reason = :signal_reason, soft_failed = :soft_failed, stack = :stack,
    reserved_until = :reserved_until, agent = :agent, token = :token, runnable_at = :runnable_at,
    assigned_at = :assigned_at, accepted_at = :accepted_at, started_at = :started_at,
    stopping_at = :stopping_at, stop_by = :stop_by, promised_exit = :promised_exit, finished_at = :finished_at, deadline = :deadline";
    transaction.prepare_cached(sql)?.execute(named_params! {
        ":id": job.id.to_string(),
        ":build": build.to_string(),
        ":step": job.step.to_string(),
        ":kind": kind_name(job.kind),
        ":state": job.state.as_str(),
        ":priority": job.priority,
        ":queue": job.queue,
        ":rules": json(&job.rules)?,
        ":parallel_index": job.parallel.map(|(index, _)| index),
        ":parallel_count": job.parallel.map(|(_, count)| count),
        ":matrix": job.matrix.as_ref().map(json).transpose()?,
        ":concurrency_group": job.concurrency.as_ref().map(|concurrency| &concurrency.group),
        ":concurrency": job.concurrency.as_ref().map(json).transpose()?,
        ":child": job.child.map(|id| id.to_string()),
        ":retry_count": job.retry_count,
        ":rule_uses": json(&job.rule_uses)?,
        ":retried_in": job.retried_in.map(|id| id.to_string()),
        ":timeout_in_minutes": job.timeout_in_minutes,
        ":exit_status": job.exit_status,
        ":signal": job.signal,
        ":signal_reason": job.signal_reason,
        ":soft_failed": job.soft_failed,
        ":stack": job.stack.map(|id| id.to_string()),
        ":reserved_until": job.reserved_until.map(millis),
        ":agent": job.agent.map(|id| id.to_string()),
        ":token": job.token,
        ":created_at": millis(job.created_at),
        ":scheduled_at": millis(job.scheduled_at),
        ":runnable_at": job.runnable_at.map(millis),
        ":assigned_at": job.assigned_at.map(millis),
        ":accepted_at": job.accepted_at.map(millis),
        ":started_at": job.started_at.map(millis),
        ":stopping_at": job.stopping_at.map(millis),
        ":stop_by": job.stop_by.map(millis),
        ":promised_exit": job.promised_exit,
        ":finished_at": job.finished_at.map(millis),
        ":deadline": job.deadline(policy).map(millis),
    })?;
    Ok(())
}

/// Writes a line on the job's timeline.
pub(crate) fn add_event(
    transaction: &Transaction<'_>,
    job: Uuid,
    at: jiff::Timestamp,
    kind: &str,
    detail: &str,
) -> Result<(), Problem> {
    transaction
        .prepare_cached("INSERT INTO job_events (job, at, kind, detail) VALUES (?1, ?2, ?3, ?4)")?
        .execute((job.to_string(), millis(at), kind, detail))?;
    Ok(())
}

/// How many lines of one kind the job's timeline has.
pub(crate) fn count_events(transaction: &Transaction<'_>, job: Uuid, kind: &str) -> Result<i64, Problem> {
    Ok(transaction
        .prepare_cached("SELECT COUNT(*) FROM job_events WHERE job = ?1 AND kind = ?2")?
        .query_row((job.to_string(), kind), |row| row.get(0))?)
}

/// A line on a job's timeline.
#[derive(Debug, Clone)]
pub(crate) struct JobEvent {
    pub(crate) at: jiff::Timestamp,
    pub(crate) kind: String,
    pub(crate) detail: String,
}

/// The timeline of a job.
pub(crate) fn events(transaction: &Transaction<'_>, job: Uuid) -> Result<Vec<JobEvent>, Problem> {
    let mut statement = transaction
        .prepare_cached("SELECT at, kind, detail FROM job_events WHERE job = ?1 ORDER BY at, seq")?;
    let mut rows = statement.query([job.to_string()])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(JobEvent { at: row.at("at")?, kind: row.column("kind")?, detail: row.column("detail")? });
    }
    Ok(events)
}
