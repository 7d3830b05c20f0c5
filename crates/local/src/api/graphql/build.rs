//! Builds.

use async_graphql::{Context, ID, Object, Result, SimpleObject};
use rusqlite::Transaction;
use uuid::Uuid;

use super::super::rest::render::{Links, stamp};
use super::ids::{id, transact};
use super::job::{self, Job, Loaded};
use super::page::{Page, Part};
use super::pipeline::Pipeline;
use super::states::{BuildStates, JobStates, JobTypes};
use crate::problem::Problem;
use crate::store::builds::{self, BuildRow};
use crate::store::pipelines::{self, PipelineRow};
use crate::store::{data, jobs};

/// A build.
#[derive(Clone)]
pub(super) struct Build {
    pub(super) row: BuildRow,
    pub(super) pipeline: PipelineRow,
}

impl Build {
    pub(super) fn load(transaction: &Transaction<'_>, id: Uuid) -> Result<Self, Problem> {
        Self::of(transaction, builds::get(transaction, id)?)
    }

    pub(super) fn of(transaction: &Transaction<'_>, row: BuildRow) -> Result<Self, Problem> {
        let pipeline = pipelines::by_id(transaction, row.pipeline)?;
        Ok(Self { row, pipeline })
    }
}

/// A piece of a build's meta-data.
#[derive(SimpleObject)]
#[graphql(name = "BuildMetaData")]
pub(super) struct MetaData {
    key: String,
    value: String,
}

#[Object]
impl Build {
    async fn id(&self) -> ID {
        id("Build", self.row.id)
    }

    async fn uuid(&self) -> ID {
        self.row.id.into()
    }

    async fn number(&self) -> i64 {
        self.row.number
    }

    async fn state(&self) -> BuildStates {
        self.row.state.into()
    }

    async fn branch(&self) -> &str {
        &self.row.branch
    }

    async fn commit(&self) -> &str {
        &self.row.commit
    }

    async fn message(&self) -> &str {
        &self.row.message
    }

    async fn tag(&self) -> Option<&String> {
        self.row.tag.as_ref()
    }

    /// `KEY=value` each.
    async fn env(&self) -> Vec<String> {
        self.row.env.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    async fn created_at(&self) -> String {
        stamp(self.row.created_at)
    }

    async fn scheduled_at(&self) -> String {
        stamp(self.row.created_at)
    }

    async fn started_at(&self) -> Option<String> {
        self.row.started_at.map(stamp)
    }

    async fn finished_at(&self) -> Option<String> {
        self.row.finished_at.map(stamp)
    }

    async fn url(&self, context: &Context<'_>) -> Result<String> {
        let links = context.data::<Links>()?;
        Ok(links.page(&format!("{}/builds/{}", self.pipeline.slug, self.row.number)))
    }

    async fn pipeline(&self) -> Pipeline {
        Pipeline(self.pipeline.clone())
    }

    async fn meta_data(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
    ) -> Result<Page<MetaData>> {
        let build = self.row.id;
        let all = transact(context, move |transaction| data::all(transaction, build)).await?;
        let all = all.into_iter().map(|(key, value)| MetaData { key, value }).collect();
        Part { first, after, last: None }.of(all)
    }

    async fn jobs(
        &self,
        context: &Context<'_>,
        first: Option<i32>,
        last: Option<i32>,
        after: Option<String>,
        #[graphql(name = "type")] types: Option<Vec<JobTypes>>,
        state: Option<Vec<JobStates>>,
    ) -> Result<Page<Job>> {
        let build = self.clone();
        let all = transact(context, move |transaction| {
            let jobs = jobs::of_build(transaction, build.row.id)?;
            let wanted = job::Filter { types, states: state, rules: None };
            Ok(jobs
                .into_iter()
                .filter(|job| wanted.holds(job))
                .map(|job| Job::from(Loaded { build: build.row.id, job }))
                .collect())
        })
        .await?;
        Part { first, last, after }.of(all)
    }
}
