//! Steps that a running job adds to its own build.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::row::json;
use super::super::{jobs, pipelines};
use super::{BuildRow, creation, effects, get, load, save_new};
use crate::build::layout::{self, Place};
use crate::build::{Build, Effect, Event, JobState, Policy};
use crate::pipeline::expand::Setting;
use crate::pipeline::step::Document;
use crate::pipeline::{self, PipelineProblem};
use crate::problem::Problem;

/// The most jobs of one build.
const MAX_JOBS: usize = 4000;
/// The most uploads of one build.
const MAX_UPLOADS: i64 = 500;

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
    let mut row = get(transaction, uploader.build)?;
    if row.cancel_requested || !job.state.has_agent() || job.state == JobState::Canceling {
        return Err(Problem::Refused("steps can only be added while the uploading job runs".to_owned()));
    }
    check_count(transaction, row.id)?;
    creation::check_triggers(transaction, &upload.document)?;
    let mut build = load(transaction, &row)?;
    let mut effects = Vec::new();
    if upload.replace {
        effects.extend(drop_unstarted(transaction, &mut build)?);
    }
    add_to_build(transaction, &mut row, &upload.document)?;
    let pipeline = pipelines::by_id(transaction, row.pipeline)?;
    let facts = creation::condition_facts(transaction, &pipeline, &row)?;
    let taken = build.steps.iter().filter_map(|placed| placed.step.key.clone()).collect();
    let setting = Setting { taken: &taken, branch: &row.branch, facts: &facts };
    let laid = pipeline::expand(&upload.document, setting, &mut Uuid::now_v7)?;
    let place = Place { uploader: Some(job.step), now, scheduled_at: job.scheduled_at };
    let new_jobs = layout::insert(&mut build, laid, place);
    if build.jobs.len() > MAX_JOBS {
        let text = format!("the build would have {} jobs; at most {MAX_JOBS} are allowed", build.jobs.len());
        return Err(PipelineProblem::whole(text).into());
    }
    save_new(transaction, &build, &new_jobs, policy)?;
    let mut followed = effects::run(transaction, &mut build, &Event::Laid, policy, now)?;
    followed.extend(effects.into_iter().map(|effect| (row.id, effect)));
    effects::carry_out(transaction, followed, policy, now)
}

/// Refuses an upload beyond the most that a build may have; this one is counted already.
fn check_count(transaction: &Transaction<'_>, build: Uuid) -> Result<(), Problem> {
    let sql = "SELECT count(*) FROM uploads JOIN jobs ON jobs.id = uploads.job WHERE jobs.build = ?1";
    let count: i64 = transaction.prepare_cached(sql)?.query_row([build.to_string()], |row| row.get(0))?;
    if count > MAX_UPLOADS {
        let text = format!("the build has had {MAX_UPLOADS} uploads; no more are allowed");
        return Err(PipelineProblem::whole(text).into());
    }
    Ok(())
}

/// Takes out the steps that have not begun. Their places in concurrency groups become free.
fn drop_unstarted(transaction: &Transaction<'_>, build: &mut Build) -> Result<Vec<Effect>, Problem> {
    let groups: BTreeSet<String> = build
        .jobs
        .iter()
        .filter(|job| !job.state.is_terminal())
        .filter_map(|job| job.concurrency.as_ref().map(|concurrency| concurrency.group.clone()))
        .collect();
    for step in layout::drop_unstarted(build) {
        let step = step.to_string();
        transaction.prepare_cached("DELETE FROM jobs WHERE step = ?1")?.execute([&step])?;
        transaction.prepare_cached("DELETE FROM steps WHERE id = ?1")?.execute([&step])?;
    }
    Ok(groups.into_iter().map(|group| Effect::Reconsider { group }).collect())
}

/// The upload's `env` is the build's from now on, for every job that has not started; and so is its `notify`.
fn add_to_build(
    transaction: &Transaction<'_>,
    row: &mut BuildRow,
    document: &Document,
) -> Result<(), Problem> {
    if !document.env.is_empty() || !document.notify.is_empty() {
        row.env.extend(document.env.clone());
        row.notify.extend(document.notify.iter().cloned());
        let sql = "UPDATE builds SET env = ?2, notify = ?3 WHERE id = ?1";
        let values = (row.id.to_string(), json(&row.env)?, json(&row.notify)?);
        transaction.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

/// Whether this upload of the job has been applied.
pub(crate) fn has_upload(transaction: &Transaction<'_>, job: Uuid, uuid: &str) -> Result<bool, Problem> {
    Ok(transaction
        .prepare_cached("SELECT 1 FROM uploads WHERE job = ?1 AND uuid = ?2")?
        .exists((job.to_string(), uuid))?)
}
