//! The way to the jobs of one Buildkite queue: finding them, taking them, hearing of them, ending them.
//!
//! The spawner and the controller know no more of Buildkite than this, so that jobs can come by several ways.

#[cfg(test)]
pub(crate) mod fake;
mod fenced;
mod graphql;
mod measured;
mod stack;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use bk_api::{BuildJob, config::Queue, names};
use bk_buildkite::stacks::{FinishJob, Notification};
use bk_plan::{
    intake::{Candidate, JobDetails},
    remote::RemoteState,
};
use futures::future::BoxFuture;
use kube::ResourceExt;
use uuid::Uuid;

use crate::{error::Error, leadership::Tenure, telemetry::Metrics};

pub use bk_buildkite::session::Finished;
pub use graphql::Unclustered;
pub use stack::{Home, Stack};

/// What a call to Buildkite comes to, some time.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The way to the jobs of one queue. No call repeats itself: callers have loops of their own, and other work to do meanwhile.
pub trait Intake: Debug + Send + Sync {
    /// The queue's key, as the configuration has it.
    fn queue(&self) -> &str;

    /// Makes the operator known for the queue. Repeating it is harmless.
    fn join(&self) -> Answer<'_, ()>;

    /// Says that nobody serves the queue from here any more.
    fn leave(&self) -> Answer<'_, ()>;

    /// What waits in the queue, from its first pages.
    fn list(&self, pages: u32) -> Answer<'_, Listing>;

    /// Makes up to [`BATCH_MAX`](bk_buildkite::stacks::BATCH_MAX) jobs ours, or keeps them ours for longer; answers
    /// with those that are.
    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>>;

    /// What a job runs.
    fn details(&self, job: Uuid) -> Answer<'_, Details>;

    /// How up to [`BATCH_MAX`](bk_buildkite::stacks::BATCH_MAX) jobs stand.
    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>>;

    /// Ends a job that no agent has.
    fn finish<'a>(&'a self, job: Uuid, end: &'a FinishJob) -> Answer<'a, Finished>;

    /// Puts up to [`BATCH_MAX`](bk_buildkite::stacks::BATCH_MAX) lines on jobs' timelines.
    fn notify(&self, lines: Vec<Notification>) -> Answer<'_, ()>;
}

/// What waits in a queue.
#[derive(Debug, Default)]
pub struct Listing {
    /// The jobs, as many as were looked at.
    pub jobs: Vec<Candidate>,
    /// How many of them are on the first page.
    pub first: usize,
    /// Whether none of them may be taken now.
    pub paused: bool,
    /// How many pages they filled.
    pub pages: u32,
    /// How long the service asks not to be asked again.
    pub pause: Option<Duration>,
}

impl Listing {
    /// Adds the jobs of the next page.
    fn add(&mut self, jobs: impl Iterator<Item = Candidate>) {
        self.jobs.extend(jobs);
        if self.pages == 0 {
            self.first = self.jobs.len();
        }
        self.pages += 1;
    }

    /// What it comes to if the next page cannot be read. What was read before counts all the same.
    fn cut_short(self, error: Error) -> Result<Self, Error> {
        if self.pages == 0 {
            return Err(error);
        }
        let error = bk_ops::report::one_line(&error);
        tracing::warn!(error, pages = self.pages, "the rest of a listing cannot be read");
        Ok(self)
    }
}

/// A job at Buildkite.
#[derive(Debug)]
pub enum Details {
    /// What it runs.
    Known(JobDetails),
    /// It is not ours to run: taken, ended or unknown.
    Ended(RemoteState),
}

/// The ways to all queues that the operator serves, one at least, and to jobs that it has taken before under other names.
#[derive(Clone, Debug)]
pub struct Intakes {
    ways: Arc<[Way]>,
    served: usize,
}

/// The way to a queue, and on what terms its jobs are taken.
#[derive(Clone, Debug)]
pub struct Way {
    /// On what terms.
    pub terms: Arc<Queue>,
    /// The way.
    pub intake: Arc<dyn Intake>,
}

impl Intakes {
    /// One way for each queue, and one for each stack whose jobs are only seen through; the first is also for jobs that name no
    /// queue, or none of these. Nothing if there are no queues.
    pub fn new(served: Vec<Way>, former: Vec<Way>) -> Option<Self> {
        let count = served.len();
        (count > 0).then(|| Self { ways: served.into_iter().chain(former).collect(), served: count })
    }

    /// The same ways; what goes along them is counted.
    #[must_use]
    pub fn measured(self, metrics: &Metrics) -> Self {
        let measured = |way: &Way| {
            let (way, terms) = (way.intake.clone(), way.terms.clone());
            Way { intake: Arc::new(measured::Measured { way, calls: metrics.calls.clone() }), terms }
        };
        Self { ways: self.ways.iter().map(measured).collect(), ..self }
    }

    /// The same ways; nothing is changed along them any more once the Lease may be somebody else's.
    #[must_use]
    pub fn fenced(self, tenure: &Tenure) -> Self {
        let fenced = |way: &Way| {
            let (way, terms) = (way.intake.clone(), way.terms.clone());
            Way { intake: Arc::new(fenced::Fenced { way, tenure: tenure.clone() }), terms }
        };
        Self { ways: self.ways.iter().map(fenced).collect(), ..self }
    }

    /// All of them.
    pub fn all(&self) -> &[Way] {
        &self.ways
    }

    /// Those to queues that jobs are taken from.
    pub fn served(&self) -> &[Way] {
        &self.ways[..self.served]
    }

    /// Those to jobs that were taken before, and that are only seen through.
    pub fn former(&self) -> &[Way] {
        &self.ways[self.served..]
    }

    /// The way to a BuildJob's job: that of the stack which has reserved it, or else that to its queue.
    pub fn of(&self, job: &BuildJob) -> &Arc<dyn Intake> {
        &self.way(job).intake
    }

    /// On what terms a BuildJob's job was taken, or would have been.
    pub fn terms(&self, job: &BuildJob) -> &Queue {
        &self.way(job).terms
    }

    /// Where among [`Self::all`] the way to a BuildJob's job is.
    pub fn index(&self, job: &BuildJob) -> usize {
        let stack = job.annotations().get(names::ANNOTATION_STACK);
        let queue = job.spec.buildkite.as_ref().and_then(|job| job.queue.as_ref());
        let of_stack = self.ways.iter().position(|way| Some(&way.terms.stack_key) == stack);
        let of_queue = || self.ways.iter().position(|way| Some(&way.terms.key) == queue);
        of_stack.or_else(of_queue).unwrap_or_default()
    }

    fn way(&self, job: &BuildJob) -> &Way {
        &self.ways[self.index(job)]
    }
}

/// Buildkite's words on jobs, from what it says of those that it knows.
fn words(jobs: &[Uuid], states: &BTreeMap<Uuid, String>) -> HashMap<Uuid, RemoteState> {
    jobs.iter().map(|job| (*job, RemoteState::of(states.get(job)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: usize) -> Candidate {
        Candidate {
            uuid: number.to_string(),
            pipeline: None,
            priority: 0,
            scheduled_at: jiff::Timestamp::UNIX_EPOCH,
            rules: Vec::new(),
        }
    }

    #[test]
    fn a_page_that_fails_leaves_those_before_it() {
        let gone = || Error::Setup("gone".to_owned());
        assert!(Listing::default().cut_short(gone()).is_err());
        let mut listing = Listing::default();
        listing.add((0..3).map(job));
        listing.add((3..5).map(job));
        let listing = listing.cut_short(gone()).unwrap();
        assert_eq!((listing.jobs.len(), listing.first, listing.pages), (5, 3, 2));
    }
}
