//! Jobs of a queue in a Buildkite cluster, by the Stacks API.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use bk_buildkite::{
    StacksClient,
    stacks::{
        FinishJob, ListScheduledJobs, Notification, RegisterStack, ReserveJobs, ScheduledJob, TokenIdentity,
    },
};
use bk_plan::{
    intake::{Candidate, JobDetails},
    remote::RemoteState,
};
use futures::FutureExt;
use uuid::Uuid;

use super::{Answer, Details, Finished, Intake, Listing, words};
use crate::{VERSION, error::Error};

/// How long a reservation holds, unless it is extended. Should the operator go for good, Buildkite has its jobs back after that.
const RESERVATION_SECONDS: u32 = 900;

/// Jobs per page.
const PAGE: u32 = 1000;

/// A stack that is registered for one queue.
#[derive(Debug)]
pub struct Stack {
    client: StacksClient,
    key: String,
    queue: String,
    /// The queue's key as Buildkite resolves it; none before the stack is registered.
    resolved: Mutex<Option<String>>,
    home: Home,
}

/// The Buildkite cluster that an operator's jobs are in. Another token may be of another cluster, in which none of them is known:
/// nothing may follow from what is said there. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Home(Arc<tokio::sync::Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    cluster: Option<String>,
    /// Which of the tokens, by how often they were replaced, is known to be of that cluster.
    checked: Option<u64>,
}

impl Stack {
    /// The stack called `key` for one queue, of an operator with this home.
    pub fn new(client: StacksClient, key: String, queue: String, home: Home) -> Self {
        Self { client, key, queue, resolved: Mutex::default(), home }
    }

    /// The client, if its token is of the cluster that our jobs are in.
    async fn client(&self) -> Result<&StacksClient, Error> {
        let mut known = self.home.0.lock().await;
        let changes = self.client.credentials().changes();
        if known.checked != Some(changes) {
            let identity = self.client.token_identity().await?;
            known.settle(&identity)?;
            known.checked = Some(changes);
        }
        Ok(&self.client)
    }

    async fn register(&self) -> Result<(), Error> {
        let request = RegisterStack {
            key: self.key.clone(),
            kind: "custom".to_owned(),
            queue_key: self.queue.clone(),
            metadata: BTreeMap::from([("version".to_owned(), VERSION.to_owned())]),
        };
        let stack = self.client().await?.register(&request).await.map_err(|error| match error.status() {
            Some(status) if status.as_u16() == 404 => Error::Setup(format!(
                "Buildkite has no queue `{}` in the token's cluster; create it, or name another",
                self.queue
            )),
            _ => error.into(),
        })?;
        tracing::info!(stack = stack.key, queue = stack.cluster_queue_key, "registered with Buildkite");
        *self.resolved.lock().unwrap_or_else(PoisonError::into_inner) = Some(stack.cluster_queue_key);
        Ok(())
    }

    async fn pages(&self, pages: u32) -> Result<Listing, Error> {
        let resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue_key = resolved.unwrap_or_else(|| self.queue.clone());
        let mut query = ListScheduledJobs { queue_key, limit: Some(PAGE), after: None };
        let mut listing = Listing::default();
        let client = self.client().await?;
        while listing.pages < pages {
            let page = match client.scheduled_jobs(&self.key, &query).await {
                Ok(page) => page,
                Err(error) => return listing.cut_short(error.into()),
            };
            listing.paused |= page.cluster_queue.is_paused();
            listing.pause = listing.pause.max(page.pause);
            listing.add(page.jobs.into_iter().map(candidate));
            if !page.page_info.has_next_page {
                break;
            }
            query.after = page.page_info.end_cursor;
        }
        Ok(listing)
    }

    async fn job(&self, job: Uuid) -> Result<Details, Error> {
        let error = match self.client().await?.job(&self.key, job).await {
            Ok(job) => return Ok(Details::Known(JobDetails { env: job.env, command: job.command })),
            Err(error) if error.is_settled() => error,
            Err(error) => return Err(error.into()),
        };
        // "Not found" may also mean that our stack is not registered at the moment. Then this fails as well, and
        // the job is looked at again later.
        let states = self.client().await?.job_states(&self.key, &[job]).await?;
        match RemoteState::of(states.get(&job)) {
            // What has answered may not have heard of it yet. It is reserved again before the next try.
            RemoteState::Waiting | RemoteState::Unknown => Err(error.into()),
            state => Ok(Details::Ended(state)),
        }
    }
}

impl Intake for Stack {
    fn queue(&self) -> &str {
        &self.queue
    }

    fn join(&self) -> Answer<'_, ()> {
        self.register().boxed()
    }

    fn leave(&self) -> Answer<'_, ()> {
        async { Ok(self.client().await?.deregister(&self.key).await?) }.boxed()
    }

    fn list(&self, pages: u32) -> Answer<'_, Listing> {
        self.pages(pages).boxed()
    }

    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>> {
        async {
            let request = ReserveJobs {
                job_uuids: jobs.to_vec(),
                reservation_expiry_seconds: Some(RESERVATION_SECONDS),
            };
            Ok(self.client().await?.reserve(&self.key, &request).await?.reserved.into_iter().collect())
        }
        .boxed()
    }

    fn details(&self, job: Uuid) -> Answer<'_, Details> {
        self.job(job).boxed()
    }

    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>> {
        async { Ok(words(jobs, &self.client().await?.job_states(&self.key, jobs).await?)) }.boxed()
    }

    fn finish<'a>(&'a self, job: Uuid, end: &'a FinishJob) -> Answer<'a, Finished> {
        async move {
            match self.client().await?.finish(&self.key, job, end).await {
                Ok(()) => Ok(Finished::Now),
                Err(error) if error.is_settled() => {
                    tracing::debug!(error = %bk_ops::report::one_line(&error), "Buildkite has settled the job already");
                    Ok(Finished::Settled)
                }
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
    }

    fn notify(&self, lines: Vec<Notification>) -> Answer<'_, ()> {
        async {
            let jobs: Vec<Uuid> = lines.iter().map(|line| line.job_uuid).collect();
            for refused in self.client().await?.notify(&self.key, lines).await?.errors {
                let of: Vec<_> = refused.indexes.iter().filter_map(|index| jobs.get(*index)).collect();
                tracing::warn!(error = refused.error, jobs = ?of, "Buildkite refuses notifications");
            }
            Ok(())
        }
        .boxed()
    }
}

impl Known {
    /// Notes whose token it is, unless that is another cluster's than before.
    fn settle(&mut self, identity: &TokenIdentity) -> Result<(), Error> {
        let Some(cluster) = identity.cluster_uuid.as_ref().filter(|cluster| !cluster.is_empty()) else {
            return Err(Error::Setup(
                "the agent token belongs to no Buildkite cluster; create one in a cluster's settings"
                    .to_owned(),
            ));
        };
        match &self.cluster {
            Some(before) if before != cluster => Err(Error::Setup(format!(
                "the agent token has been replaced by one of another Buildkite cluster, `{}`, in which no job of the operator is \
                 known; use a token of the cluster before, or restart the operator when none of its jobs is under way",
                identity.cluster_name.as_ref().unwrap_or(cluster)
            ))),
            Some(_) => Ok(()),
            None => {
                tracing::info!(
                    organization = identity.organization_slug,
                    cluster,
                    "the agent token is accepted"
                );
                self.cluster = Some(cluster.clone());
                Ok(())
            }
        }
    }
}

fn candidate(job: ScheduledJob) -> Candidate {
    Candidate {
        uuid: job.id.to_string(),
        pipeline: Some(job.pipeline.slug),
        priority: job.priority,
        scheduled_at: job.scheduled_at,
        rules: job.agent_query_rules,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(cluster: Option<&str>) -> TokenIdentity {
        let identity = json!({
            "uuid": "u", "token_type": "agent", "description": "d", "organization_slug": "o", "organization_uuid": "o",
            "cluster_uuid": cluster, "cluster_name": cluster,
        });
        serde_json::from_value(identity).unwrap()
    }

    #[test]
    fn a_token_of_another_cluster_is_trouble_until_one_of_the_first_is_back() {
        let mut known = Known::default();
        assert!(known.settle(&of(None)).is_err());
        known.settle(&of(Some("a"))).unwrap();
        let error = known.settle(&of(Some("b"))).unwrap_err();
        assert!(error.needs_attention() && error.to_string().contains("`b`"), "{error}");
        known.settle(&of(Some("a"))).unwrap();
    }
}
