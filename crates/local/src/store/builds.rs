//! Builds as rows. How they begin, grow and change is told by the modules below.

mod creation;
mod effects;
mod removal;
mod upload;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::jobs;
use super::loaded::{self, Parts, Taken};
use super::row::{Columns, json, millis};
use crate::build::verdict::PlacedStep;
use crate::build::{Build, BuildState, Job, Policy};
use crate::pipeline::step::{Env, Step};
use crate::problem::Problem;

pub(crate) use creation::create;
pub(crate) use effects::{apply, unblock};
pub(crate) use removal::remove_pipeline;
pub(crate) use upload::{Upload, has_upload, upload};

/// A build without its steps.
#[derive(Debug, Clone)]
pub(crate) struct BuildRow {
    pub(crate) id: Uuid,
    pub(crate) pipeline: Uuid,
    pub(crate) number: i64,
    pub(crate) state: BuildState,
    pub(crate) cancel_requested: bool,
    pub(crate) branch: String,
    pub(crate) commit: String,
    pub(crate) message: String,
    pub(crate) source: String,
    pub(crate) author: Option<(String, String)>,
    pub(crate) tag: Option<String>,
    pub(crate) pull_request: Option<PullRequest>,
    pub(crate) triggered_from: Option<TriggeredFrom>,
    /// Id and number of the build that this one repeats.
    pub(crate) rebuilt_from: Option<(Uuid, i64)>,
    /// `env` of the stored pipeline.
    pub(crate) pipeline_env: Env,
    /// `env` given with the build, and by uploads since.
    pub(crate) env: Env,
    /// `notify` of the stored pipeline and of uploads since, as written. Nobody is notified from a laptop.
    pub(crate) notify: Vec<serde_json::Value>,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// The pull request that a build is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PullRequest {
    /// Its number.
    pub(crate) id: String,
    pub(crate) base_branch: String,
    /// Where its branch is kept, when that is another repository.
    pub(crate) repository: String,
    pub(crate) labels: Vec<String>,
    pub(crate) draft: bool,
}

/// The trigger job that started a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TriggeredFrom {
    pub(crate) job: Uuid,
    pub(crate) build: Uuid,
    pub(crate) number: i64,
    pub(crate) pipeline: String,
    /// The build at the beginning of the chain.
    pub(crate) root: Uuid,
    /// How many triggers lie between that build and this one.
    pub(crate) depth: u32,
}

/// What a new build is made of.
#[derive(Debug, Clone)]
pub(crate) struct NewBuild {
    pub(crate) branch: String,
    pub(crate) commit: String,
    pub(crate) message: String,
    /// `ui`, `api`, `webhook`, `schedule` or `trigger_job`.
    pub(crate) source: String,
    pub(crate) author: Option<(String, String)>,
    pub(crate) tag: Option<String>,
    pub(crate) pull_request: Option<PullRequest>,
    pub(crate) triggered_from: Option<TriggeredFrom>,
    pub(crate) rebuilt_from: Option<(Uuid, i64)>,
    pub(crate) env: Env,
    pub(crate) meta_data: Env,
}

impl Default for NewBuild {
    /// The newest commit, asked for through the API. The branch is for the caller to choose.
    fn default() -> Self {
        Self {
            branch: String::new(),
            commit: "HEAD".to_owned(),
            message: String::new(),
            source: "api".to_owned(),
            author: None,
            tag: None,
            pull_request: None,
            triggered_from: None,
            rebuilt_from: None,
            env: Env::new(),
            meta_data: Env::new(),
        }
    }
}

pub(super) fn read(row: &Row<'_>) -> Result<BuildRow, Problem> {
    Ok(BuildRow {
        id: row.id("id")?,
        pipeline: row.id("pipeline")?,
        number: row.column("number")?,
        state: row.column::<String>("state")?.parse()?,
        cancel_requested: row.column("cancel_requested")?,
        branch: row.column("branch")?,
        commit: row.column("commit_sha")?,
        message: row.column("message")?,
        source: row.column("source")?,
        author: row.maybe_json("author")?,
        tag: row.column("tag")?,
        pull_request: row.maybe_json("pull_request")?,
        triggered_from: row.maybe_json("triggered_from")?,
        rebuilt_from: row.maybe_json("rebuilt_from")?,
        pipeline_env: row.json("pipeline_env")?,
        env: row.json("env")?,
        notify: row.json("notify")?,
        created_at: row.at("created_at")?,
        started_at: row.maybe_at("started_at")?,
        finished_at: row.maybe_at("finished_at")?,
    })
}

/// The build with this id.
pub(crate) fn get(transaction: &Transaction<'_>, id: Uuid) -> Result<BuildRow, Problem> {
    transaction
        .prepare_cached("SELECT * FROM builds WHERE id = ?1")?
        .query_row([id.to_string()], |row| Ok(read(row)))
        .optional()?
        .ok_or_else(|| Problem::not_found("build", id))?
}

/// The build at the beginning of the chain of triggers that a build belongs to; itself, mostly. None for a
/// build that does not exist.
pub(crate) fn root(transaction: &Transaction<'_>, id: Uuid) -> Result<Option<String>, Problem> {
    Ok(transaction
        .prepare_cached("SELECT COALESCE(root, id) FROM builds WHERE id = ?1")?
        .query_row([id.to_string()], |row| row.get(0))
        .optional()?)
}

/// A pipeline's build by its number.
pub(crate) fn by_number(
    transaction: &Transaction<'_>,
    pipeline: Uuid,
    number: i64,
) -> Result<BuildRow, Problem> {
    transaction
        .prepare_cached("SELECT * FROM builds WHERE pipeline = ?1 AND number = ?2")?
        .query_row((pipeline.to_string(), number), |row| Ok(read(row)))
        .optional()?
        .ok_or_else(|| Problem::not_found("build", number))?
}

/// A pipeline's newest builds.
pub(crate) fn recent(
    transaction: &Transaction<'_>,
    pipeline: Uuid,
    limit: u32,
) -> Result<Vec<BuildRow>, Problem> {
    let mut statement = transaction
        .prepare_cached("SELECT * FROM builds WHERE pipeline = ?1 ORDER BY number DESC LIMIT ?2")?;
    let mut rows = statement.query((pipeline.to_string(), limit))?;
    let mut builds = Vec::new();
    while let Some(row) = rows.next()? {
        builds.push(read(row)?);
    }
    Ok(builds)
}

/// The build with its steps and jobs.
pub(crate) fn load(transaction: &Transaction<'_>, row: &BuildRow) -> Result<Build, Problem> {
    let (build, taken) = take(transaction, row)?;
    keep(build.clone(), &taken);
    Ok(build)
}

/// The build with its steps and jobs, to be changed and handed to [`keep`].
fn take(transaction: &Transaction<'_>, row: &BuildRow) -> Result<(Build, Taken), Problem> {
    let mut taken = loaded::take(row.id);
    let (steps, jobs) = match taken.found.take() {
        Some((Parts { steps, mut jobs }, stale)) => {
            for job in jobs.iter_mut().filter(|job| stale.contains(&job.id)) {
                *job = jobs::get(transaction, job.id)?.job;
            }
            (steps, jobs)
        }
        None => (steps(transaction, row.id)?.into(), jobs::of_build(transaction, row.id)?),
    };
    let build = Build {
        id: row.id,
        state: row.state,
        cancel_requested: row.cancel_requested,
        started_at: row.started_at,
        finished_at: row.finished_at,
        steps,
        jobs,
    };
    Ok((build, taken))
}

fn keep(build: Build, taken: &Taken) {
    loaded::keep(build.id, taken, Parts { steps: build.steps, jobs: build.jobs });
}

fn steps(transaction: &Transaction<'_>, build: Uuid) -> Result<Vec<PlacedStep>, Problem> {
    let mut statement =
        transaction.prepare_cached("SELECT * FROM steps WHERE build = ?1 ORDER BY position")?;
    let mut rows = statement.query([build.to_string()])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(PlacedStep {
            id: row.id("id")?,
            group: row.maybe_id("step_group")?,
            uploader: row.maybe_id("uploader")?,
            step: row.json("definition")?,
        });
    }
    Ok(steps)
}

/// One step of a build.
pub(crate) fn step(transaction: &Transaction<'_>, id: Uuid) -> Result<(Step, Option<Uuid>), Problem> {
    transaction
        .prepare_cached("SELECT definition, step_group FROM steps WHERE id = ?1")?
        .query_row([id.to_string()], |row| {
            Ok((|| Ok((row.json("definition")?, row.maybe_id("step_group")?)))())
        })
        .optional()?
        .ok_or_else(|| Problem::not_found("step", id))?
}

/// Whether somebody has answered a block or input step of the build.
pub(crate) fn was_unblocked(transaction: &Transaction<'_>, build: Uuid) -> Result<bool, Problem> {
    Ok(transaction
        .prepare_cached("SELECT 1 FROM jobs WHERE build = ?1 AND state = 'unblocked' LIMIT 1")?
        .exists([build.to_string()])?)
}

/// A job of the build has started: the build has, too.
pub(crate) fn note_start(transaction: &Transaction<'_>, build: Uuid, at: Timestamp) -> Result<(), Problem> {
    transaction
        .prepare_cached(
            "UPDATE builds SET started_at = COALESCE(started_at, ?2),
                 state = CASE state WHEN 'scheduled' THEN 'running' ELSE state END
             WHERE id = ?1",
        )?
        .execute((build.to_string(), millis(at)))?;
    Ok(())
}

/// Writes new jobs, and all steps: those behind new ones have moved.
fn save_new(
    transaction: &Transaction<'_>,
    build: &Build,
    new_jobs: &[Job],
    policy: &Policy,
) -> Result<(), Problem> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO steps (id, build, position, step_group, uploader, key, definition)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET position = ?3",
    )?;
    for (position, placed) in build.steps.iter().enumerate() {
        statement.execute((
            placed.id.to_string(),
            build.id.to_string(),
            i64::try_from(position).expect("a build has few steps"),
            placed.group.map(|id| id.to_string()),
            placed.uploader.map(|id| id.to_string()),
            &placed.step.key,
            json(&placed.step)?,
        ))?;
    }
    new_jobs.iter().try_for_each(|job| jobs::save(transaction, build.id, job, policy))
}
