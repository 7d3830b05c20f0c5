//! Agents.

use async_graphql::{Context, ID, Object, Result};

use super::super::rest::render::stamp;
use super::ids::{id, transact};
use super::job::{Job, Loaded};
use crate::store::agents::AgentRow;
use crate::store::jobs;

/// An agent.
pub(super) struct Agent(pub(super) AgentRow);

#[Object]
impl Agent {
    async fn id(&self) -> ID {
        id("Agent", self.0.id)
    }

    async fn uuid(&self) -> ID {
        self.0.id.into()
    }

    async fn name(&self) -> &str {
        &self.0.name
    }

    async fn hostname(&self) -> &str {
        &self.0.hostname
    }

    async fn version(&self) -> &str {
        &self.0.version
    }

    async fn connection_state(&self) -> &str {
        if self.0.stopping { "stopping" } else { &self.0.state }
    }

    /// Its tags.
    async fn meta_data(&self) -> &[String] {
        &self.0.tags
    }

    async fn paused(&self) -> bool {
        self.0.pause.is_some()
    }

    async fn created_at(&self) -> String {
        stamp(self.0.created_at)
    }

    async fn is_running_job(&self, context: &Context<'_>) -> Result<bool> {
        Ok(self.current(context).await?.is_some())
    }

    async fn job(&self, context: &Context<'_>) -> Result<Option<Job>> {
        self.current(context).await
    }
}

impl Agent {
    async fn current(&self, context: &Context<'_>) -> Result<Option<Job>> {
        let id = self.0.id;
        let owned = transact(context, move |transaction| jobs::of_agent(transaction, id)).await?;
        Ok(owned.map(|owned| Loaded { build: owned.build, job: owned.job }.into()))
    }
}
