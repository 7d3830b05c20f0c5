//! Buildkite's queue → BuildJobs.
//!
//! Each round: list what waits → choose no more than there are free slots → write the choice down → reserve it
//! in one batch → read the jobs → create the BuildJobs. The choice is written down *before* it is reserved, so
//! that a crash at any point strands nothing: on start the last choice is reserved again, which extends what is
//! ours, and completed. An intent whose jobs all became BuildJobs is harmless to complete again: jobs that are
//! here are skipped and jobs that have ended cannot be reserved, so it need not be erased.

mod intent;
mod register;
mod take;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bk_api::BuildJob;
use bk_buildkite::{
    StacksClient,
    stacks::{BATCH_MAX, ListScheduledJobs, ScheduledJob},
};
use bk_plan::intake::{self, Candidate, Offer};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{cache::Cache, error::Error, settings::Settings};

/// Time between two listings while jobs come in.
const BUSY: Duration = Duration::from_millis(200);
/// Time between two listings while nothing happens.
const IDLE: Duration = Duration::from_secs(1);
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Jobs per page, and pages per listing: priorities are sorted among this many.
const PAGE: u32 = 1000;
const PAGES: usize = 2;
/// How long a BuildJob of ours may take to appear in the cache.
const VISIBILITY: Duration = Duration::from_secs(30);
/// How much longer a reservation holds than a pod may take to start.
const RESERVATION_MARGIN: u32 = 300;

/// Takes jobs from one queue.
pub struct Spawner {
    client: Client,
    namespace: String,
    buildkite: StacksClient,
    offer: Offer,
    stack_key: String,
    max_in_flight: usize,
    reservation_seconds: u32,
    jobs: Cache<BuildJob>,
    /// BuildJobs that this process has created and the cache may not show yet, by job UUID. Without them the
    /// slots they fill would look free.
    created: BTreeMap<String, Instant>,
    /// Chosen jobs that have no BuildJob yet. They are written down in the intent, too.
    unfinished: Vec<Candidate>,
}

/// What a round came to.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    /// Jobs were taken.
    Took,
    /// There was nothing to take, or no room.
    Idle,
}

impl Spawner {
    /// A spawner for the settings' queue that counts the BuildJobs in `jobs`.
    pub fn new(client: Client, settings: &Settings, jobs: Cache<BuildJob>) -> Self {
        let config = &settings.config.spawner;
        let timeouts = settings.config.pods.timeouts;
        Self {
            client,
            namespace: settings.namespace.clone(),
            buildkite: settings.buildkite.clone(),
            offer: Offer { queue: config.queue.clone(), tags: config.tags.clone() },
            stack_key: config.stack_key.clone(),
            max_in_flight: config.max_in_flight,
            reservation_seconds: timeouts.schedule_seconds + timeouts.start_seconds + RESERVATION_MARGIN,
            jobs,
            created: BTreeMap::new(),
            unfinished: Vec::new(),
        }
    }

    /// Takes jobs until `shutdown`; ends early only if Buildkite will not have us.
    pub async fn run(&mut self, shutdown: &CancellationToken) -> Result<(), Error> {
        shutdown.run_until_cancelled(self.work()).await.map_or(Ok(()), Err)
    }

    /// Rounds without end; returns what makes another one pointless.
    async fn work(&mut self) -> Error {
        // Free slots are counted in the cache, so nothing is taken before it is complete.
        self.jobs.complete().await;
        let mut registered = None;
        let mut pause = BUSY;
        loop {
            match self.round(&mut registered).await {
                Ok(Round::Took) => pause = BUSY,
                Ok(Round::Idle) => pause = (pause * 3 / 2).clamp(BUSY, IDLE),
                Err(error) if error.is_fatal() => return error,
                Err(error) => {
                    // The stack may have been forgotten: introduce ourselves again.
                    registered = None;
                    let asked = error.retry_after().unwrap_or_default();
                    pause = (pause * 2).clamp(IDLE, MAX_PAUSE).max(asked);
                    tracing::warn!(error = %bk_ops::report::one_line(&error), ?pause, "cannot take jobs");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn round(&mut self, registered: &mut Option<String>) -> Result<Round, Error> {
        if registered.is_none() {
            *registered = Some(self.register().await?);
            self.unfinished = self.read_intent().await?;
        }
        let queue_key = registered.as_deref().unwrap_or(&self.offer.queue).to_owned();
        self.carry_out().await?;
        let free = self.max_in_flight.saturating_sub(self.in_flight()).min(BATCH_MAX);
        let here = self.here();
        let waiting = self.list(&queue_key).await?;
        let choice: Vec<Candidate> =
            intake::select(&waiting, &self.offer, &here, free).into_iter().cloned().collect();
        if choice.is_empty() {
            return Ok(Round::Idle);
        }
        tracing::debug!(waiting = waiting.len(), free, taking = choice.len(), "taking jobs");
        self.unfinished.extend(choice);
        self.write_intent(&self.unfinished).await?;
        self.carry_out().await?;
        Ok(Round::Took)
    }

    /// The jobs that wait in the queue; none while the queue is paused.
    async fn list(&self, queue_key: &str) -> Result<Vec<Candidate>, Error> {
        let mut candidates = Vec::new();
        let mut query = ListScheduledJobs { queue_key: queue_key.to_owned(), limit: Some(PAGE), after: None };
        for _ in 0..PAGES {
            let page = self.buildkite.scheduled_jobs(&self.stack_key, &query).await?;
            if page.cluster_queue.is_paused() {
                return Ok(Vec::new());
            }
            candidates.extend(page.jobs.into_iter().map(candidate));
            if !page.page_info.has_next_page {
                break;
            }
            query.after = page.page_info.end_cursor;
        }
        Ok(candidates)
    }

    /// The Buildkite jobs that have a BuildJob, ended or not, or are about to.
    fn here(&mut self) -> BTreeSet<String> {
        let visible: BTreeSet<String> =
            self.jobs.all().iter().filter_map(|job| job.job_uuid().map(str::to_owned)).collect();
        self.created.retain(|uuid, since| !visible.contains(uuid) && since.elapsed() < VISIBILITY);
        let chosen = self.unfinished.iter().map(|candidate| candidate.uuid.clone());
        visible.into_iter().chain(self.created.keys().cloned()).chain(chosen).collect()
    }

    /// The BuildJobs that are under way, whoever made them, and those that are about to be made.
    fn in_flight(&self) -> usize {
        let under_way = self.jobs.all().iter().filter(|job| !job.is_terminal()).count();
        under_way + self.created.len() + self.unfinished.len()
    }
}

fn candidate(job: ScheduledJob) -> Candidate {
    Candidate {
        uuid: job.id.to_string(),
        priority: job.priority,
        scheduled_at: job.scheduled_at,
        rules: job.agent_query_rules,
    }
}
