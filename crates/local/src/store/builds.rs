//! Builds as rows, and applying events to them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, named_params};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::loaded::{self, Parts, Taken};
use super::row::{Columns, json, millis};
use super::{data, jobs, pipelines};
use crate::build::layout::{self, Place};
use crate::build::verdict::PlacedStep;
use crate::build::{Build, BuildState, Context, Event, Job, JobState, Policy, advance};
use crate::pipeline::step::{Document, Env, Kind, Step};
use crate::pipeline::{self, PipelineProblem};
use crate::problem::Problem;

/// The most jobs of one build.
const MAX_JOBS: usize = 4000;

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
        None => (steps(transaction, row.id)?, jobs::of_build(transaction, row.id)?),
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

/// Creates a build of the pipeline's stored configuration and starts it.
pub(crate) fn create(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    new: &NewBuild,
    policy: &Policy,
    now: Timestamp,
) -> Result<BuildRow, Problem> {
    let document = pipeline::from_stored(&pipeline.configuration, &known_variables(pipeline, new))?;
    let laid = pipeline::expand(&document, &BTreeSet::new(), &mut Uuid::now_v7)?;
    let id = Uuid::now_v7();
    let number = pipelines::next_number(transaction, pipeline.id)?;
    insert(transaction, id, number, pipeline.id, new, &document.env, now)?;
    for (key, value) in &new.meta_data {
        data::set(transaction, id, key, value)?;
    }
    let row = get(transaction, id)?;
    let mut build = load(transaction, &row)?;
    let place = Place { uploader: None, now, scheduled_at: now };
    let new_jobs = layout::insert(&mut build, laid, place);
    save_new(transaction, &build, &new_jobs, policy)?;
    run(transaction, &mut build, &Event::Laid, policy, now)?;
    get(transaction, id)
}

fn insert(
    transaction: &Transaction<'_>,
    id: Uuid,
    number: i64,
    pipeline: Uuid,
    new: &NewBuild,
    pipeline_env: &Env,
    now: Timestamp,
) -> Result<(), Problem> {
    let sql = "
INSERT INTO builds (id, pipeline, number, state, branch, commit_sha, message, source, author, tag, pull_request,
    triggered_from, root, rebuilt_from, pipeline_env, env, created_at)
VALUES (:id, :pipeline, :number, 'scheduled', :branch, :commit, :message, :source, :author, :tag, :pull_request,
    :triggered_from, :root, :rebuilt_from, :pipeline_env, :env, :created_at)";
    transaction.prepare_cached(sql)?.execute(named_params! {
        ":id": id.to_string(),
        ":pipeline": pipeline.to_string(),
        ":number": number,
        ":branch": new.branch,
        ":commit": new.commit,
        ":message": new.message,
        ":source": new.source,
        ":author": new.author.as_ref().map(json).transpose()?,
        ":tag": new.tag,
        ":pull_request": new.pull_request.as_ref().map(json).transpose()?,
        ":triggered_from": new.triggered_from.as_ref().map(json).transpose()?,
        ":root": new.triggered_from.as_ref().map(|from| from.root.to_string()),
        ":rebuilt_from": new.rebuilt_from.as_ref().map(json).transpose()?,
        ":pipeline_env": json(pipeline_env)?,
        ":env": json(&new.env)?,
        ":created_at": millis(now),
    })?;
    Ok(())
}

/// What stored pipelines may refer to: the build as it was asked for.
fn known_variables(pipeline: &pipelines::PipelineRow, new: &NewBuild) -> Env {
    let variables = [
        ("BRANCH", &new.branch),
        ("COMMIT", &new.commit),
        ("MESSAGE", &new.message),
        ("REPO", &pipeline.repository),
        ("PIPELINE_SLUG", &pipeline.slug),
        ("PIPELINE_NAME", &pipeline.name),
        ("PIPELINE_DEFAULT_BRANCH", &pipeline.default_branch),
    ];
    variables.into_iter().map(|(name, value)| (format!("BUILDKITE_{name}"), value.clone())).collect()
}

/// Applies an event to a build and writes what it changed.
pub(crate) fn apply(
    transaction: &Transaction<'_>,
    build: Uuid,
    event: &Event,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let row = get(transaction, build)?;
    let (mut build, taken) = take(transaction, &row)?;
    run(transaction, &mut build, event, policy, now)?;
    keep(build, &taken);
    Ok(())
}

fn run(
    transaction: &Transaction<'_>,
    build: &mut Build,
    event: &Event,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let changed = advance(build, event, &mut Context { now, new_id: &mut Uuid::now_v7 })?;
    for job in build.jobs.iter().filter(|job| changed.contains(&job.id)) {
        jobs::save(transaction, build.id, job, policy)?;
    }
    transaction
        .prepare_cached(
            "UPDATE builds SET state = ?2, cancel_requested = ?3, started_at = ?4, finished_at = ?5 WHERE id = ?1",
        )?
        .execute((
            build.id.to_string(),
            build.state.as_str(),
            build.cancel_requested,
            build.started_at.map(millis),
            build.finished_at.map(millis),
        ))?;
    Ok(())
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

/// Steps that a running job adds to its own build.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) uuid: String,
    pub(crate) document: Document,
    pub(crate) replace: bool,
}

/// Inserts uploaded steps directly after the step of the uploading job. Repeating an upload is harmless.
pub(crate) fn upload(
    transaction: &Transaction<'_>,
    uploader: &jobs::OwnedJob,
    upload: &Upload,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let job = &uploader.job;
    let new = transaction
        .prepare_cached("INSERT OR IGNORE INTO uploads (job, uuid) VALUES (?1, ?2)")?
        .execute((job.id.to_string(), &upload.uuid))?;
    if new == 0 {
        return Ok(());
    }
    let row = get(transaction, uploader.build)?;
    if row.cancel_requested || !job.state.has_agent() || job.state == JobState::Canceling {
        return Err(Problem::Refused("steps can only be added while the uploading job runs".to_owned()));
    }
    let mut build = load(transaction, &row)?;
    if upload.replace {
        for step in layout::drop_unstarted(&mut build) {
            let step = step.to_string();
            transaction.prepare_cached("DELETE FROM jobs WHERE step = ?1")?.execute([&step])?;
            transaction.prepare_cached("DELETE FROM steps WHERE id = ?1")?.execute([&step])?;
        }
    }
    let taken = build.steps.iter().filter_map(|placed| placed.step.key.clone()).collect();
    let laid = pipeline::expand(&upload.document, &taken, &mut Uuid::now_v7)?;
    let place = Place { uploader: Some(job.step), now, scheduled_at: job.scheduled_at };
    let new_jobs = layout::insert(&mut build, laid, place);
    if build.jobs.len() > MAX_JOBS {
        let text = format!("the build would have more than {MAX_JOBS} jobs");
        return Err(PipelineProblem::whole(text).into());
    }
    save_new(transaction, &build, &new_jobs, policy)?;
    if !upload.document.env.is_empty() {
        let mut env = row.env;
        env.extend(upload.document.env.clone());
        transaction.execute("UPDATE builds SET env = ?2 WHERE id = ?1", (row.id.to_string(), json(&env)?))?;
    }
    run(transaction, &mut build, &Event::Laid, policy, now)
}

/// Answers a block or input step: its fields are checked and become meta-data of the build.
pub(crate) fn unblock(
    transaction: &Transaction<'_>,
    gate: &jobs::OwnedJob,
    answers: &Env,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    let (step, _) = step(transaction, gate.job.step)?;
    apply(transaction, gate.build, &Event::Unblock { job: gate.job.id }, policy, now)?;
    if let Kind::Block(asked) | Kind::Input(asked) = &step.kind {
        let answers = asked.check(answers).map_err(Problem::Refused)?;
        for (key, value) in &answers {
            data::set(transaction, gate.build, key, value)?;
        }
    }
    Ok(())
}

/// Whether this upload of the job has been applied.
pub(crate) fn has_upload(transaction: &Transaction<'_>, job: Uuid, uuid: &str) -> Result<bool, Problem> {
    Ok(transaction
        .prepare_cached("SELECT 1 FROM uploads WHERE job = ?1 AND uuid = ?2")?
        .exists((job.to_string(), uuid))?)
}
