//! Introducing the operator to Buildkite, and saying goodbye.

use std::{collections::BTreeMap, time::Duration};

use bk_buildkite::stacks::RegisterStack;

use super::Spawner;
use crate::{VERSION, error::Error};

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(5);

impl Spawner {
    /// Makes the operator known for its queue, and returns the queue's key as Buildkite resolves it.
    pub(super) async fn register(&self) -> Result<String, Error> {
        let identity = self.buildkite.token_identity().await?;
        if identity.cluster_uuid.as_deref().unwrap_or_default().is_empty() {
            return Err(Error::Setup(
                "the agent token belongs to no Buildkite cluster; create one in a cluster's settings"
                    .to_owned(),
            ));
        }
        let request = RegisterStack {
            key: self.stack_key.clone(),
            kind: "custom".to_owned(),
            queue_key: self.offer.queue.clone(),
            metadata: BTreeMap::from([("version".to_owned(), VERSION.to_owned())]),
        };
        let stack = self.buildkite.register(&request).await.map_err(|error| match error.status() {
            Some(status) if status.as_u16() == 404 => Error::Setup(format!(
                "Buildkite has no queue `{}` in the token's cluster; create it or choose another with --queue",
                self.offer.queue
            )),
            _ => error.into(),
        })?;
        tracing::info!(
            organization = identity.organization_slug,
            stack = stack.key,
            queue = stack.cluster_queue_key,
            "registered with Buildkite"
        );
        Ok(stack.cluster_queue_key)
    }

    /// Best effort: Buildkite notices by itself after a while.
    pub async fn deregister(&self) {
        match tokio::time::timeout(GOODBYE, self.buildkite.deregister(&self.stack_key)).await {
            Ok(Ok(())) => tracing::info!("deregistered from Buildkite"),
            Ok(Err(error)) => {
                tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot deregister from Buildkite");
            }
            Err(_) => tracing::warn!("Buildkite did not answer in time to deregister"),
        }
    }
}
