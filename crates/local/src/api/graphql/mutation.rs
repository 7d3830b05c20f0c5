//! What can be changed.

use async_graphql::{Context, ID, InputObject, Json, Object, Result, SimpleObject};
use jiff::Timestamp;
use rusqlite::Transaction;

use super::super::Shared;
use super::super::rest::builds::{self as asked, Author, Request};
use super::super::rest::pipelines::{self as asked_pipelines, Fields};
use super::build::Build;
use super::ids::{transact, uuid};
use super::job::{JobTypeBlock, JobTypeCommand, Loaded};
use super::pipeline::Pipeline;
use crate::build::{Event, Policy};
use crate::pipeline::step::Env;
use crate::problem::Problem;
use crate::store::{builds, jobs, pipelines};

/// The root of mutations.
pub(super) struct Mutation;

/// Whose commit a build is of.
#[derive(InputObject)]
struct BuildAuthorInput {
    name: String,
    email: String,
}

/// A piece of meta-data.
#[derive(InputObject)]
struct BuildMetaDataInput {
    key: String,
    value: String,
}

#[derive(InputObject)]
struct BuildCreateInput {
    client_mutation_id: Option<String>,
    #[graphql(name = "pipelineID")]
    pipeline: ID,
    commit: Option<String>,
    branch: Option<String>,
    message: Option<String>,
    author: Option<BuildAuthorInput>,
    /// `KEY=value` each.
    env: Option<Vec<String>>,
    meta_data: Option<Vec<BuildMetaDataInput>>,
}

impl BuildCreateInput {
    fn request(self) -> Result<Request> {
        let mut env = Env::new();
        for line in self.env.unwrap_or_default() {
            let (name, value) =
                line.split_once('=').ok_or_else(|| format!("env {line:?} is not KEY=value"))?;
            env.insert(name.to_owned(), value.to_owned());
        }
        let meta_data = self.meta_data.unwrap_or_default();
        Ok(Request {
            commit: self.commit.unwrap_or_default(),
            branch: self.branch.unwrap_or_default(),
            message: self.message.unwrap_or_default(),
            author: self.author.map(|author| Author { name: author.name, email: author.email }),
            env,
            meta_data: meta_data.into_iter().map(|one| (one.key, one.value)).collect(),
            ..Request::default()
        })
    }
}

/// Names what is to be changed.
#[derive(InputObject)]
struct TargetInput {
    client_mutation_id: Option<String>,
    id: ID,
}

#[derive(SimpleObject)]
struct BuildPayload {
    client_mutation_id: Option<String>,
    build: Build,
}

#[derive(InputObject)]
struct PipelineRepositoryInput {
    url: String,
}

#[derive(InputObject)]
struct PipelineStepsInput {
    yaml: String,
}

#[derive(InputObject)]
struct PipelineCreateInput {
    client_mutation_id: Option<String>,
    /// There is but one.
    organization_id: Option<ID>,
    name: String,
    repository: PipelineRepositoryInput,
    steps: PipelineStepsInput,
    default_branch: Option<String>,
}

#[derive(SimpleObject)]
struct PipelineCreatePayload {
    client_mutation_id: Option<String>,
    pipeline: Pipeline,
}

#[derive(SimpleObject)]
struct PipelineDeletePayload {
    client_mutation_id: Option<String>,
    #[graphql(name = "deletedPipelineID")]
    deleted: ID,
}

#[derive(SimpleObject)]
struct CommandPayload {
    client_mutation_id: Option<String>,
    job_type_command: JobTypeCommand,
}

#[derive(InputObject)]
struct JobTypeBlockUnblockInput {
    client_mutation_id: Option<String>,
    id: ID,
    /// The answers to the step's fields.
    fields: Option<Json<Env>>,
}

#[derive(SimpleObject)]
struct BlockPayload {
    client_mutation_id: Option<String>,
    job_type_block: JobTypeBlock,
}

fn policy(context: &Context<'_>) -> Result<Policy> {
    Ok(context.data::<Shared>()?.policy)
}

/// Clients look for these words to tell that there is nothing left to cancel.
fn cancel(transaction: &Transaction<'_>, id: uuid::Uuid, policy: &Policy) -> Result<Build, Problem> {
    let row = builds::get(transaction, id).map_err(|problem| match problem {
        Problem::NotFound(_) => Problem::NotFound("No build found".to_owned()),
        other => other,
    })?;
    if row.finished_at.is_some() {
        return Err(Problem::Refused(format!(
            "Build can't be canceled because it's already finished: it is {}",
            row.state
        )));
    }
    let row = asked::stop(transaction, &row, policy)?;
    Build::of(transaction, row)
}

/// Applies an event to a job; returns the job, or the one that took its place.
fn change(
    transaction: &Transaction<'_>,
    event: &Event,
    id: uuid::Uuid,
    policy: &Policy,
) -> Result<Loaded, Problem> {
    let owned = jobs::get(transaction, id)?;
    builds::apply(transaction, owned.build, event, policy, Timestamp::now())?;
    let changed = Loaded::get(transaction, id)?;
    match changed.job.retried_in {
        Some(next) if owned.job.retried_in.is_none() => Loaded::get(transaction, next),
        _ => Ok(changed),
    }
}

#[Object]
impl Mutation {
    async fn build_create(&self, context: &Context<'_>, mut input: BuildCreateInput) -> Result<BuildPayload> {
        let policy = policy(context)?;
        let client_mutation_id = input.client_mutation_id.take();
        let pipeline = uuid("Pipeline", &input.pipeline)?;
        let request = input.request()?;
        let build = transact(context, move |transaction| {
            let pipeline = pipelines::by_id(transaction, pipeline)?;
            let row = asked::start(transaction, &pipeline, request, &policy)?;
            Ok(Build { row, pipeline })
        })
        .await?;
        Ok(BuildPayload { client_mutation_id, build })
    }

    async fn build_cancel(&self, context: &Context<'_>, input: TargetInput) -> Result<BuildPayload> {
        let policy = policy(context)?;
        let id = uuid("Build", &input.id)?;
        let build = transact(context, move |transaction| cancel(transaction, id, &policy)).await?;
        Ok(BuildPayload { client_mutation_id: input.client_mutation_id, build })
    }

    async fn build_rebuild(&self, context: &Context<'_>, input: TargetInput) -> Result<BuildPayload> {
        let policy = policy(context)?;
        let id = uuid("Build", &input.id)?;
        let build = transact(context, move |transaction| {
            let old = Build::load(transaction, id)?;
            let row = asked::repeat(transaction, &old.pipeline, old.row, &policy)?;
            Ok(Build { row, pipeline: old.pipeline })
        })
        .await?;
        Ok(BuildPayload { client_mutation_id: input.client_mutation_id, build })
    }

    async fn pipeline_create(
        &self,
        context: &Context<'_>,
        input: PipelineCreateInput,
    ) -> Result<PipelineCreatePayload> {
        if let Some(organization) = &input.organization_id {
            uuid("Organization", organization)?;
        }
        let fields = Fields {
            name: Some(input.name),
            repository: Some(input.repository.url),
            configuration: Some(input.steps.yaml),
            default_branch: input.default_branch,
            ..Fields::default()
        };
        let row = fields.new_pipeline().map_err(|error| async_graphql::Error::new(error.message()))?;
        let saved = row.clone();
        transact(context, move |transaction| asked_pipelines::add(transaction, &saved)).await?;
        Ok(PipelineCreatePayload { client_mutation_id: input.client_mutation_id, pipeline: Pipeline(row) })
    }

    async fn pipeline_delete(
        &self,
        context: &Context<'_>,
        input: TargetInput,
    ) -> Result<PipelineDeletePayload> {
        let id = uuid("Pipeline", &input.id)?;
        let policy = policy(context)?;
        transact(context, move |transaction| {
            let row = pipelines::by_id(transaction, id)?;
            builds::remove_pipeline(transaction, row.id, &policy, Timestamp::now())
        })
        .await?;
        Ok(PipelineDeletePayload { client_mutation_id: input.client_mutation_id, deleted: input.id })
    }

    async fn job_type_command_retry(
        &self,
        context: &Context<'_>,
        input: TargetInput,
    ) -> Result<CommandPayload> {
        let policy = policy(context)?;
        let job = uuid("Job", &input.id)?;
        let event = Event::Retry { job };
        let loaded = transact(context, move |transaction| change(transaction, &event, job, &policy)).await?;
        Ok(CommandPayload {
            client_mutation_id: input.client_mutation_id,
            job_type_command: JobTypeCommand(loaded),
        })
    }

    async fn job_type_command_cancel(
        &self,
        context: &Context<'_>,
        input: TargetInput,
    ) -> Result<CommandPayload> {
        let policy = policy(context)?;
        let job = uuid("Job", &input.id)?;
        let event = Event::CancelJob { job };
        let loaded = transact(context, move |transaction| change(transaction, &event, job, &policy)).await?;
        Ok(CommandPayload {
            client_mutation_id: input.client_mutation_id,
            job_type_command: JobTypeCommand(loaded),
        })
    }

    async fn job_type_block_unblock(
        &self,
        context: &Context<'_>,
        input: JobTypeBlockUnblockInput,
    ) -> Result<BlockPayload> {
        let policy = policy(context)?;
        let job = uuid("Job", &input.id)?;
        let answers = input.fields.map(|Json(fields)| fields).unwrap_or_default();
        let loaded = transact(context, move |transaction| {
            let owned = jobs::get(transaction, job)?;
            builds::unblock(transaction, &owned, &answers, &policy, Timestamp::now())?;
            Loaded::get(transaction, job)
        })
        .await?;
        Ok(BlockPayload {
            client_mutation_id: input.client_mutation_id,
            job_type_block: JobTypeBlock(loaded),
        })
    }
}
