//! Pipelines and the organisation.

use async_graphql::{Context, ID, Object, Result, SimpleObject};
use uuid::Uuid;

use super::super::Shared;
use super::super::rest::render::{Links, stamp};
use super::agent::Agent;
use super::build::Build;
use super::ids::{id, transact};
use super::job::{Filter, Job, Loaded};
use super::page::{Page, Part};
use super::states::{BuildStates, JobStates, JobTypes};
use crate::build::BuildState;
use crate::store::listing::{self, BuildFilter, Slice};
use crate::store::pipelines::{self, PipelineRow};
use crate::store::{agents, jobs};

/// The most builds that are looked through for one list.
const BUILDS: u32 = 500;

/// A pipeline.
pub(super) struct Pipeline(pub(super) PipelineRow);

/// Where a pipeline's code is.
#[derive(SimpleObject)]
pub(super) struct Repository {
    url: String,
}

/// What a pipeline does.
#[derive(SimpleObject)]
pub(super) struct PipelineSteps {
    yaml: String,
}

#[Object]
impl Pipeline {
    async fn id(&self) -> ID {
        id("Pipeline", self.0.id)
    }

    async fn uuid(&self) -> ID {
        self.0.id.into()
    }

    async fn slug(&self) -> &str {
        &self.0.slug
    }

    async fn name(&self) -> &str {
        &self.0.name
    }

    async fn default_branch(&self) -> &str {
        &self.0.default_branch
    }

    async fn repository(&self) -> Repository {
        Repository { url: self.0.repository.clone() }
    }

    async fn steps(&self) -> PipelineSteps {
        PipelineSteps { yaml: self.0.configuration.clone() }
    }

    async fn created_at(&self) -> String {
        stamp(self.0.created_at)
    }

    async fn url(&self, context: &Context<'_>) -> Result<String> {
        Ok(context.data::<Links>()?.page(&self.0.slug))
    }

    async fn organization(&self, context: &Context<'_>) -> Result<Organization> {
        Organization::load(context).await
    }

    /// Newest first.
    async fn builds(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
        state: Option<Vec<BuildStates>>,
        branch: Option<Vec<String>>,
        commit: Option<Vec<String>>,
    ) -> Result<Page<Build>> {
        let wanted = state.unwrap_or_default();
        let states = BuildState::ALL.iter().copied().filter(|state| wanted.contains(&(*state).into()));
        let filter = BuildFilter {
            pipeline: Some(self.0.id),
            states: states.collect(),
            branches: branch.unwrap_or_default(),
            commits: commit.unwrap_or_default(),
            ..BuildFilter::default()
        };
        let pipeline = self.0.clone();
        let all = transact(context, move |transaction| {
            let (rows, _) = listing::builds(transaction, &filter, Slice { limit: BUILDS, offset: 0 })?;
            Ok(rows.into_iter().map(|row| Build { row, pipeline: pipeline.clone() }).collect())
        })
        .await?;
        Part { first, after, last: None }.of(all)
    }
}

/// The one organisation.
pub(super) struct Organization {
    uuid: Uuid,
    slug: String,
}

impl Organization {
    pub(super) async fn load(context: &Context<'_>) -> Result<Self> {
        let slug = context.data::<Shared>()?.config.organization.clone();
        let uuid = transact(context, |transaction| crate::store::facts::id_of(transaction, "organization"));
        Ok(Self { uuid: uuid.await?, slug })
    }
}

/// The order of a list of jobs.
#[derive(async_graphql::Enum, Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobOrder {
    /// By priority, then by age.
    RecentlyAssigned,
    /// Newest first.
    RecentlyCreated,
}

#[Object]
impl Organization {
    async fn id(&self) -> ID {
        id("Organization", self.uuid)
    }

    async fn uuid(&self) -> ID {
        self.uuid.into()
    }

    async fn slug(&self) -> &str {
        &self.slug
    }

    async fn name(&self) -> &str {
        &self.slug
    }

    async fn pipelines(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
        search: Option<String>,
    ) -> Result<Page<Pipeline>> {
        let all = transact(context, pipelines::all).await?;
        let wanted = search.unwrap_or_default().to_lowercase();
        let fits =
            |row: &PipelineRow| row.name.to_lowercase().contains(&wanted) || row.slug.contains(&wanted);
        Part { first, after, last: None }.of(all.into_iter().filter(fits).map(Pipeline).collect())
    }

    /// Jobs that have not ended, of all builds. A job fits when all rules that are asked for are among its own.
    #[allow(clippy::too_many_arguments, reason = "each is an argument of the field")]
    async fn jobs(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
        #[graphql(name = "type")] types: Option<Vec<JobTypes>>,
        state: Option<Vec<JobStates>>,
        agent_query_rules: Option<Vec<String>>,
        #[graphql(desc = "Pass `false` to exclude jobs that belong to a cluster queue")] clustered: Option<
            bool,
        >,
        order: Option<JobOrder>,
    ) -> Result<Page<Job>> {
        if clustered == Some(false) && !context.data::<Shared>()?.config.unclustered {
            return Part { first, after, last: None }.of(Vec::new());
        }
        let filter = Filter { types, states: state, rules: agent_query_rules };
        let mut all = transact(context, move |transaction| {
            let all = jobs::unfinished(transaction)?;
            Ok(all.into_iter().filter(|owned| filter.holds(&owned.job)).collect::<Vec<_>>())
        })
        .await?;
        match order {
            Some(JobOrder::RecentlyAssigned) => {
                all.sort_by_key(|owned| (std::cmp::Reverse(owned.job.priority), owned.job.scheduled_at));
            }
            _ => all.reverse(),
        }
        let nodes = all.into_iter().map(|owned| Loaded { build: owned.build, job: owned.job }.into());
        Part { first, after, last: None }.of(nodes.collect())
    }

    /// Those that are connected.
    async fn agents(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
        search: Option<String>,
    ) -> Result<Page<Agent>> {
        let all = transact(context, agents::connected).await?;
        let wanted = search.unwrap_or_default();
        let fits = all.into_iter().filter(|row| row.name.contains(&wanted)).map(Agent);
        Part { first, after, last: None }.of(fits.collect())
    }
}
