//! Creating builds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Transaction, named_params};
use uuid::Uuid;

use super::super::row::{json, millis};
use super::super::{data, facts, pipelines};
use super::effects::{self, Effects};
use super::{BuildRow, NewBuild, get, load, save_new};
use crate::build::layout::{self, Place};
use crate::build::{Event, Policy};
use crate::pipeline::condition::Facts;
use crate::pipeline::expand::Setting;
use crate::pipeline::facts as conditions;
use crate::pipeline::step::{Document, Env, Kind};
use crate::pipeline::{self, PipelineProblem};
use crate::problem::Problem;

/// Creates a build of the pipeline's stored configuration and starts it.
pub(crate) fn create(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    new: &NewBuild,
    policy: &Policy,
    now: Timestamp,
) -> Result<BuildRow, Problem> {
    let (id, effects) = start(transaction, pipeline, new, policy, now)?;
    effects::carry_out(transaction, effects, policy, now)?;
    get(transaction, id)
}

/// Creates a build and opens its first jobs; what that means for other builds is left to the caller.
pub(super) fn start(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    new: &NewBuild,
    policy: &Policy,
    now: Timestamp,
) -> Result<(Uuid, Effects), Problem> {
    let id = Uuid::now_v7();
    let number = pipelines::next_number(transaction, pipeline.id)?;
    insert(transaction, id, number, pipeline.id, new, now)?;
    for (key, value) in &new.meta_data {
        data::set(transaction, id, key, value)?;
    }
    let mut row = get(transaction, id)?;
    let known = known_variables(transaction, pipeline, &row)?;
    let document = pipeline::from_stored(&pipeline.configuration, &known)?;
    check_triggers(transaction, &document)?;
    row.pipeline_env.clone_from(&document.env);
    transaction
        .prepare_cached("UPDATE builds SET pipeline_env = ?2, notify = ?3 WHERE id = ?1")?
        .execute((id.to_string(), json(&row.pipeline_env)?, json(&document.notify)?))?;
    let facts = condition_facts(transaction, pipeline, &row)?;
    let setting = Setting { taken: &BTreeSet::new(), branch: &row.branch, facts: &facts };
    let laid = pipeline::expand(&document, setting, &mut Uuid::now_v7)?;
    let mut build = load(transaction, &row)?;
    let place = Place { uploader: None, now, scheduled_at: now };
    let new_jobs = layout::insert(&mut build, laid, place);
    save_new(transaction, &build, &new_jobs, policy)?;
    let effects = effects::run(transaction, &mut build, &Event::Laid, policy, now)?;
    Ok((id, effects))
}

/// What the conditions of a build's steps can ask about.
pub(super) fn condition_facts(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    row: &BuildRow,
) -> Result<Facts, Problem> {
    let (slug, id) = facts::organization_identity(transaction)?;
    let known = known_variables(transaction, pipeline, row)?;
    Ok(conditions::of_build((&slug, id), pipeline, row, &known))
}

/// Refuses trigger steps whose pipeline does not exist.
pub(super) fn check_triggers(transaction: &Transaction<'_>, document: &Document) -> Result<(), Problem> {
    for tree in document.steps.iter().flat_map(|tree| std::iter::once(tree).chain(&tree.members)) {
        let Kind::Trigger(trigger) = &tree.step.kind else { continue };
        match pipelines::get(transaction, &trigger.pipeline) {
            Ok(_) => {}
            Err(Problem::NotFound(_)) => {
                let reason =
                    format!("there is no pipeline {:?} to trigger; create it first", trigger.pipeline);
                let path = format!("{}.trigger", tree.path);
                return Err(PipelineProblem::on_path(tree.place, &path, reason).into());
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(())
}

fn insert(
    transaction: &Transaction<'_>,
    id: Uuid,
    number: i64,
    pipeline: Uuid,
    new: &NewBuild,
    now: Timestamp,
) -> Result<(), Problem> {
    let sql = "
INSERT INTO builds (id, pipeline, number, state, branch, commit_sha, message, source, author, tag, pull_request,
    triggered_from, root, rebuilt_from, pipeline_env, env, created_at)
VALUES (:id, :pipeline, :number, 'scheduled', :branch, :commit, :message, :source, :author, :tag, :pull_request,
    :triggered_from, :root, :rebuilt_from, '{}', :env, :created_at)";
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
        ":env": json(&new.env)?,
        ":created_at": millis(now),
    })?;
    Ok(())
}

/// What stored pipelines may refer to: the build as it was asked for.
fn known_variables(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    build: &BuildRow,
) -> Result<Env, Problem> {
    let (organization, _) = facts::organization_identity(transaction)?;
    let none = super::PullRequest::default();
    let request = build.pull_request.as_ref();
    let shown = request.unwrap_or(&none);
    let variables = [
        ("BRANCH", build.branch.clone()),
        ("TAG", build.tag.clone().unwrap_or_default()),
        ("COMMIT", build.commit.clone()),
        ("MESSAGE", build.message.clone()),
        ("SOURCE", build.source.clone()),
        ("REPO", pipeline.repository.clone()),
        ("ORGANIZATION_SLUG", organization),
        ("PIPELINE_ID", pipeline.id.to_string()),
        ("PIPELINE_SLUG", pipeline.slug.clone()),
        ("PIPELINE_NAME", pipeline.name.clone()),
        ("PIPELINE_DEFAULT_BRANCH", pipeline.default_branch.clone()),
        ("PULL_REQUEST", request.map_or_else(|| "false".to_owned(), |request| request.id.clone())),
        ("PULL_REQUEST_BASE_BRANCH", shown.base_branch.clone()),
        ("PULL_REQUEST_REPO", shown.repository.clone()),
        ("PULL_REQUEST_LABELS", shown.labels.join(",")),
    ];
    Ok(variables.into_iter().map(|(name, value)| (format!("BUILDKITE_{name}"), value)).collect())
}
