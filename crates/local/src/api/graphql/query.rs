//! What can be asked.

use async_graphql::{Context, ID, Object, Result};

use super::super::Shared;
use super::build::Build;
use super::ids::{find, uuid};
use super::job::{Job, Loaded};
use super::pipeline::{Organization, Pipeline};
use crate::problem::Problem;
use crate::store::{builds, pipelines};

/// The root of queries.
pub(super) struct Query;

/// The parts of `organization/rest`; another organisation has nothing here.
fn below<'a>(context: &Context<'_>, slug: &'a str) -> Result<Option<&'a str>> {
    let organization = &context.data::<Shared>()?.config.organization;
    Ok(slug.strip_prefix(organization.as_str()).and_then(|rest| rest.strip_prefix('/')))
}

#[Object]
impl Query {
    /// A build by its UUID, or by `organization/pipeline/number`.
    async fn build(
        &self,
        context: &Context<'_>,
        uuid: Option<ID>,
        slug: Option<ID>,
    ) -> Result<Option<Build>> {
        match (uuid, slug) {
            (Some(id), _) => {
                let Ok(id) = self::uuid("Build", &id) else { return Ok(None) };
                find(context, move |transaction| Build::load(transaction, id)).await
            }
            (None, Some(slug)) => {
                let Some((pipeline, number)) = below(context, &slug)?.and_then(|rest| rest.split_once('/'))
                else {
                    return Ok(None);
                };
                let (pipeline, number) = (pipeline.to_owned(), number.to_owned());
                find(context, move |transaction| {
                    let pipeline = pipelines::get(transaction, &pipeline)?;
                    let number = number.parse().map_err(|_| Problem::not_found("build", &number))?;
                    let row = builds::by_number(transaction, pipeline.id, number)?;
                    Ok(Build { row, pipeline })
                })
                .await
            }
            (None, None) => Err("uuid or slug is needed".into()),
        }
    }

    /// A pipeline by `organization/pipeline`, or by its UUID.
    async fn pipeline(
        &self,
        context: &Context<'_>,
        slug: Option<ID>,
        uuid: Option<ID>,
    ) -> Result<Option<Pipeline>> {
        if let Some(id) = uuid {
            let Ok(id) = self::uuid("Pipeline", &id) else { return Ok(None) };
            return Ok(find(context, move |transaction| pipelines::by_id(transaction, id))
                .await?
                .map(Pipeline));
        }
        let slug = slug.ok_or("slug or uuid is needed")?;
        let Some(slug) = below(context, &slug)?.map(str::to_owned) else { return Ok(None) };
        Ok(find(context, move |transaction| pipelines::get(transaction, &slug)).await?.map(Pipeline))
    }

    async fn job(&self, context: &Context<'_>, uuid: ID) -> Result<Option<Job>> {
        let Ok(id) = self::uuid("Job", &uuid) else { return Ok(None) };
        Ok(find(context, move |transaction| Loaded::get(transaction, id)).await?.map(Job::from))
    }

    async fn organization(&self, context: &Context<'_>, slug: ID) -> Result<Option<Organization>> {
        let own = Organization::load(context).await?;
        Ok((*slug == context.data::<Shared>()?.config.organization).then_some(own))
    }
}
