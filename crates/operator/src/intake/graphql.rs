//! Jobs outside Buildkite's clusters, by the GraphQL API.
//!
//! Nothing is reserved at Buildkite: a job that still waits is ours once it is in our own record, which is the written intent
//! and then the BuildJob. It stays in the listing until its agent takes it. Two operators must therefore not serve the same
//! queue with the same tags.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bk_buildkite::{
    GraphqlClient, StacksClient, StandIn,
    graphql::{JobsPage, ScheduledJob, Wanted},
    stacks::{FinishJob, Notification},
};
use bk_plan::{
    intake::{
        Candidate, JobDetails,
        candidate::{is_in_queue, queue_rule},
    },
    remote::RemoteState,
};
use futures::FutureExt;
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Answer, Details, Finished, Intake, Listing, words};
use crate::error::Error;

/// Between two listings, and between two questions about states. GraphQL counts what it answers.
const INTERVAL: Duration = Duration::from_secs(2);

/// The most pages of a listing: they cost so much that more of them would be seldom.
const MAX_PAGES: u32 = 2;

/// The jobs of one queue outside clusters.
#[derive(Debug)]
pub struct Unclustered {
    agents: StacksClient,
    jobs: GraphqlClient,
    stand_in: StandIn,
    queue: String,
    /// The organisation's slug as it was configured.
    configured: Option<String>,
    /// As it is known to be.
    organization: Mutex<Option<String>>,
    listings: Rhythm,
    questions: Rhythm,
}

impl Unclustered {
    /// The jobs of a queue, found with an API token and ended with an agent token.
    pub fn new(
        agents: StacksClient,
        jobs: GraphqlClient,
        stand_in: StandIn,
        organization: Option<String>,
        queue: String,
    ) -> Self {
        Self {
            agents,
            jobs,
            stand_in,
            queue,
            configured: organization,
            organization: Mutex::default(),
            listings: Rhythm::default(),
            questions: Rhythm::default(),
        }
    }

    /// Makes sure that the tokens belong to jobs that this way leads to.
    async fn check(&self) -> Result<(), Error> {
        let identity = self.agents.token_identity().await?;
        if let Some(cluster) = identity.cluster_uuid.filter(|cluster| !cluster.is_empty()) {
            let cluster = identity.cluster_name.unwrap_or(cluster);
            return Err(Error::Setup(format!(
                "the agent token belongs to the Buildkite cluster `{cluster}`; leave `intake: graphql` out, or use an \
                 agent token that belongs to none"
            )));
        }
        let own = identity.organization_slug;
        if let Some(configured) = self.configured.as_ref().filter(|configured| **configured != own) {
            return Err(Error::Setup(format!(
                "the agent token belongs to the organisation `{own}`, not to `{configured}`; change `organization`, or \
                 use another token"
            )));
        }
        tracing::info!(organization = own, queue = self.queue, "takes jobs by GraphQL");
        *self.organization.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
        Ok(())
    }

    fn organization(&self) -> Result<String, Error> {
        let known = self.organization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known
            .or_else(|| self.configured.clone())
            .ok_or_else(|| Error::Setup("the organisation is not known yet".to_owned()))
    }

    async fn pages(&self, pages: u32) -> Result<Listing, Error> {
        self.listings.next().await;
        let organization = self.organization()?;
        let rules = queue_rule(&self.queue).map(|rule| vec![rule]);
        let mut listing = Listing::default();
        let mut after = None;
        while listing.pages < pages.min(MAX_PAGES) {
            let wanted =
                Wanted { organization: &organization, rules: rules.as_deref(), after: after.as_deref() };
            let page = match self.jobs.scheduled_jobs(wanted).await {
                Ok(page) => page,
                Err(error) => return listing.cut_short(error.into()),
            };
            let JobsPage { jobs, next } = page.ok_or_else(|| {
                Error::Setup(format!(
                    "Buildkite shows no organisation `{organization}` to the API token; use one of that organisation \
                     with access to GraphQL"
                ))
            })?;
            listing.add(jobs.into_iter().map(candidate).filter(|job| is_in_queue(&job.rules, &self.queue)));
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(listing)
    }

    async fn job(&self, job: Uuid) -> Result<Details, Error> {
        let Some(found) = self.jobs.job(job).await? else {
            return Ok(Details::Ended(RemoteState::Unknown));
        };
        Ok(match RemoteState::parse(&found.state) {
            RemoteState::Waiting => Details::Known(JobDetails { env: found.env, command: found.command }),
            state => Details::Ended(state),
        })
    }

    async fn ask(&self, jobs: &[Uuid]) -> Result<HashMap<Uuid, RemoteState>, Error> {
        Ok(words(jobs, &self.jobs.job_states(jobs).await?))
    }
}

impl Intake for Unclustered {
    fn queue(&self) -> &str {
        &self.queue
    }

    fn join(&self) -> Answer<'_, ()> {
        self.check().boxed()
    }

    /// Nobody has been told that we serve the queue.
    fn leave(&self) -> Answer<'_, ()> {
        async { Ok(()) }.boxed()
    }

    fn list(&self, pages: u32) -> Answer<'_, Listing> {
        self.pages(pages).boxed()
    }

    /// Those that still wait.
    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>> {
        async {
            let states = self.ask(jobs).await?.into_iter();
            Ok(states.filter(|(_, state)| *state == RemoteState::Waiting).map(|(job, _)| job).collect())
        }
        .boxed()
    }

    fn details(&self, job: Uuid) -> Answer<'_, Details> {
        self.job(job).boxed()
    }

    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>> {
        async {
            self.questions.next().await;
            self.ask(jobs).await
        }
        .boxed()
    }

    fn finish<'a>(&'a self, job: Uuid, end: &'a FinishJob) -> Answer<'a, Finished> {
        async move { Ok(self.stand_in.end(&self.queue, job, end).await?) }.boxed()
    }

    /// There is no timeline to write on; the BuildJob's status and Events say the same.
    fn notify(&self, _: Vec<Notification>) -> Answer<'_, ()> {
        async { Ok(()) }.boxed()
    }
}

fn candidate(job: ScheduledJob) -> Candidate {
    Candidate {
        uuid: job.uuid.to_string(),
        pipeline: job.pipeline.map(|pipeline| pipeline.slug),
        priority: job.priority.number.unwrap_or_default(),
        scheduled_at: job.scheduled_at.unwrap_or(Timestamp::UNIX_EPOCH),
        rules: job.agent_query_rules,
    }
}

/// Keeps calls apart.
#[derive(Debug, Default)]
struct Rhythm(Mutex<Option<Instant>>);

impl Rhythm {
    /// Waits until the next call may be made.
    async fn next(&self) {
        tokio::time::sleep_until(self.admit(Instant::now())).await;
    }

    /// When the next call may be made; it counts as made then.
    fn admit(&self, now: Instant) -> Instant {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = last.map_or(now, |last| now.max(last + INTERVAL));
        *last = Some(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_kept_apart() {
        let (rhythm, begin) = (Rhythm::default(), Instant::now());
        assert_eq!(rhythm.admit(begin), begin);
        assert_eq!(rhythm.admit(begin), begin + INTERVAL);
        assert_eq!(rhythm.admit(begin + INTERVAL * 5), begin + INTERVAL * 5);
    }

    #[test]
    fn a_job_is_told_apart_by_what_is_listed() {
        let listed = serde_json::json!({
            "uuid": "0198f0a0-0000-7000-8000-000000000001", "agentQueryRules": null, "scheduledAt": null,
            "priority": {"number": null}, "pipeline": null,
        });
        let job = candidate(serde_json::from_value(listed).unwrap());
        assert_eq!((job.priority, job.rules, job.pipeline), (0, vec![], None));
    }
}
