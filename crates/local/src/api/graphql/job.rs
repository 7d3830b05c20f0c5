//! Jobs: one type for each kind.

use async_graphql::{Context, ID, Object, Result, SimpleObject, Union};
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::Shared;
use super::super::extract::BaseUrl;
use super::super::rest::render::{Links, stamp};
use super::agent::Agent;
use super::build::Build;
use super::events::{self, JobEvent};
use super::ids::{find, id, transact};
use super::page::{Page, Part};
use super::states::{JobStates, JobTypes};
use crate::build::{self, JobKind};
use crate::pipeline::env;
use crate::pipeline::step::{Kind, Step};
use crate::problem::Problem;
use crate::store::{agents, builds, facts, jobs};

/// A job with the build it belongs to; the rest is read when it is asked for.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) build: Uuid,
    pub(super) job: build::Job,
}

/// A job of any kind.
#[derive(Union)]
pub(super) enum Job {
    Command(JobTypeCommand),
    Wait(JobTypeWait),
    Block(JobTypeBlock),
    Trigger(JobTypeTrigger),
}

impl From<Loaded> for Job {
    fn from(loaded: Loaded) -> Self {
        match loaded.job.kind {
            JobKind::Command => Self::Command(JobTypeCommand(loaded)),
            JobKind::Waiter => Self::Wait(JobTypeWait(loaded)),
            JobKind::Manual => Self::Block(JobTypeBlock(loaded)),
            JobKind::Trigger => Self::Trigger(JobTypeTrigger(loaded)),
        }
    }
}

impl Loaded {
    pub(super) fn get(transaction: &Transaction<'_>, id: Uuid) -> Result<Self, Problem> {
        let owned = jobs::get(transaction, id)?;
        Ok(Self { build: owned.build, job: owned.job })
    }

    async fn step(&self, context: &Context<'_>) -> Result<Step> {
        let id = self.job.step;
        transact(context, move |transaction| Ok(builds::step(transaction, id)?.0)).await
    }

    async fn build(&self, context: &Context<'_>) -> Result<Build> {
        let id = self.build;
        transact(context, move |transaction| Build::load(transaction, id)).await
    }
}

/// Which jobs are meant.
pub(super) struct Filter {
    pub(super) types: Option<Vec<JobTypes>>,
    pub(super) states: Option<Vec<JobStates>>,
    /// Every one of these rules is among the job's.
    pub(super) rules: Option<Vec<String>>,
}

impl Filter {
    pub(super) fn holds(&self, job: &build::Job) -> bool {
        let type_fits = self.types.as_ref().is_none_or(|types| types.contains(&job.kind.into()));
        let state_fits = self.states.as_ref().is_none_or(|states| states.contains(&job.state.into()));
        let rules_fit =
            self.rules.as_ref().is_none_or(|rules| rules.iter().all(|rule| job.rules.contains(rule)));
        type_fits && state_fits && rules_fit
    }
}

/// How important a job is.
#[derive(SimpleObject)]
pub(super) struct JobPriority {
    number: i64,
}

/// The step of a job.
#[derive(SimpleObject)]
pub(super) struct StepCommand {
    uuid: ID,
    key: Option<String>,
    label: Option<String>,
}

/// A job that runs on an agent.
pub(super) struct JobTypeCommand(pub(super) Loaded);

#[Object]
impl JobTypeCommand {
    async fn id(&self) -> ID {
        id("Job", self.0.job.id)
    }

    async fn uuid(&self) -> ID {
        self.0.job.id.into()
    }

    async fn state(&self) -> JobStates {
        self.0.job.state.into()
    }

    async fn label(&self, context: &Context<'_>) -> Result<Option<String>> {
        Ok(self.0.step(context).await?.label)
    }

    async fn command(&self, context: &Context<'_>) -> Result<Option<String>> {
        Ok(match self.0.step(context).await?.kind {
            Kind::Command(command) => Some(command.script),
            _ => None,
        })
    }

    /// The job's variables, `KEY=value` each, without those that only an agent gets.
    async fn env(&self, context: &Context<'_>) -> Result<Vec<String>> {
        let slug = context.data::<Shared>()?.config.organization.clone();
        let base = context.data::<BaseUrl>()?.0.clone();
        let owned = jobs::OwnedJob { build: self.0.build, job: self.0.job.clone() };
        transact(context, move |transaction| {
            let organization = facts::organization(transaction, &slug, &base)?;
            let facts = facts::of_job(transaction, organization, &owned, None)?;
            Ok(match &facts.step.kind {
                Kind::Command(command) => {
                    let variables = env::environment(&facts, command);
                    variables.iter().map(|(name, value)| format!("{name}={value}")).collect()
                }
                _ => Vec::new(),
            })
        })
        .await
    }

    async fn step(&self, context: &Context<'_>) -> Result<StepCommand> {
        let step = self.0.step(context).await?;
        Ok(StepCommand { uuid: self.0.job.step.into(), key: step.key, label: step.label })
    }

    async fn agent_query_rules(&self) -> &[String] {
        &self.0.job.rules
    }

    async fn priority(&self) -> JobPriority {
        JobPriority { number: self.0.job.priority }
    }

    /// As text, as the hosted service has it.
    async fn exit_status(&self) -> Option<String> {
        self.0.job.exit_status.map(|status| status.to_string())
    }

    async fn signal(&self) -> Option<&String> {
        self.0.job.signal.as_ref()
    }

    async fn signal_reason(&self) -> Option<&String> {
        self.0.job.signal_reason.as_ref()
    }

    async fn passed(&self) -> bool {
        self.0.job.is_good()
    }

    async fn soft_failed(&self) -> bool {
        self.0.job.soft_failed
    }

    async fn retried(&self) -> bool {
        self.0.job.retried_in.is_some()
    }

    async fn retries_count(&self) -> u32 {
        self.0.job.retry_count
    }

    async fn parallel_group_index(&self) -> Option<u32> {
        self.0.job.parallel.map(|(index, _)| index)
    }

    async fn parallel_group_total(&self) -> Option<u32> {
        self.0.job.parallel.map(|(_, total)| total)
    }

    async fn created_at(&self) -> String {
        stamp(self.0.job.created_at)
    }

    async fn scheduled_at(&self) -> String {
        stamp(self.0.job.scheduled_at)
    }

    async fn runnable_at(&self) -> Option<String> {
        self.0.job.runnable_at.map(stamp)
    }

    async fn started_at(&self) -> Option<String> {
        self.0.job.started_at.map(stamp)
    }

    async fn finished_at(&self) -> Option<String> {
        self.0.job.finished_at.map(stamp)
    }

    async fn url(&self, context: &Context<'_>) -> Result<String> {
        let build = self.0.build(context).await?;
        let links = context.data::<Links>()?;
        Ok(links.page(&format!("{}/builds/{}#{}", build.pipeline.slug, build.row.number, self.0.job.id)))
    }

    async fn build(&self, context: &Context<'_>) -> Result<Build> {
        self.0.build(context).await
    }

    async fn pipeline(&self, context: &Context<'_>) -> Result<super::pipeline::Pipeline> {
        Ok(super::pipeline::Pipeline(self.0.build(context).await?.pipeline))
    }

    async fn agent(&self, context: &Context<'_>) -> Result<Option<Agent>> {
        let Some(id) = self.0.job.agent else { return Ok(None) };
        let row = transact(context, move |transaction| agents::get(transaction, id)).await?;
        Ok(row.map(Agent))
    }

    /// What happened to the job besides running.
    async fn events(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        last: Option<i32>,
        after: Option<String>,
    ) -> Result<Page<JobEvent>> {
        let job = self.0.job.id;
        let all = transact(context, move |transaction| jobs::events(transaction, job)).await?;
        let all =
            all.into_iter().enumerate().map(|(index, event)| events::event(job, index, event)).collect();
        Part { first, last, after }.of(all)
    }
}

/// A barrier.
pub(super) struct JobTypeWait(Loaded);

#[Object]
impl JobTypeWait {
    async fn id(&self) -> ID {
        id("Job", self.0.job.id)
    }

    async fn uuid(&self) -> ID {
        self.0.job.id.into()
    }

    async fn state(&self) -> JobStates {
        self.0.job.state.into()
    }

    async fn build(&self, context: &Context<'_>) -> Result<Build> {
        self.0.build(context).await
    }
}

/// A job that waits for a person.
pub(super) struct JobTypeBlock(pub(super) Loaded);

#[Object]
impl JobTypeBlock {
    async fn id(&self) -> ID {
        id("Job", self.0.job.id)
    }

    async fn uuid(&self) -> ID {
        self.0.job.id.into()
    }

    async fn state(&self) -> JobStates {
        self.0.job.state.into()
    }

    async fn label(&self, context: &Context<'_>) -> Result<Option<String>> {
        Ok(self.0.step(context).await?.label)
    }

    async fn is_unblockable(&self) -> bool {
        self.0.job.state == build::JobState::Blocked
    }

    async fn build(&self, context: &Context<'_>) -> Result<Build> {
        self.0.build(context).await
    }
}

/// A job that starts a build of another pipeline.
pub(super) struct JobTypeTrigger(Loaded);

#[Object]
impl JobTypeTrigger {
    async fn id(&self) -> ID {
        id("Job", self.0.job.id)
    }

    async fn uuid(&self) -> ID {
        self.0.job.id.into()
    }

    async fn state(&self) -> JobStates {
        self.0.job.state.into()
    }

    async fn label(&self, context: &Context<'_>) -> Result<Option<String>> {
        Ok(self.0.step(context).await?.label)
    }

    async fn build(&self, context: &Context<'_>) -> Result<Build> {
        self.0.build(context).await
    }

    /// The build that it started, once it has.
    async fn triggered(&self, context: &Context<'_>) -> Result<Option<Build>> {
        let Some(id) = self.0.job.child else { return Ok(None) };
        find(context, move |transaction| Build::load(transaction, id)).await
    }
}
