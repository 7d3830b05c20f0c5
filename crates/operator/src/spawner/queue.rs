//! The rounds of one queue.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bk_buildkite::stacks::BATCH_MAX;
use bk_ops::jitter;
use bk_plan::intake::{Backlog, Candidate, Skip, pace};
use tokio::{task::JoinSet, time};
use uuid::Uuid;

use super::{
    standing::Standing,
    take::{Taken, Taker},
};
use crate::{error::Error, intake::Listing, telemetry::Telemetry};

/// How long a job is left alone after Buildkite said that it is not ours: listings lag.
const NOT_OURS: Duration = Duration::from_secs(5);

/// How many pages of a thousand jobs are read from time to time, if there is room for any: priorities are sorted among so many.
const PAGES: u32 = 10;

/// How many BuildJobs are looked for in a round that should be there and do not show.
const LOOKS: usize = 50;

/// One queue, and where its rounds stand. None of it is the truth: what is chosen is in the intent, what is taken is a BuildJob.
pub(super) struct Queue {
    index: usize,
    taker: Taker,
    standing: Standing,
    is_known: bool,
    has_resumed: bool,
    /// Whether the intent lacks something that was chosen, or has something that must not be taken up again.
    is_unwritten: bool,
    /// Jobs that are being made BuildJobs.
    taking: JoinSet<(Candidate, Taken)>,
    /// Chosen jobs that have to be tried again.
    retries: HashMap<String, Retry>,
    /// Jobs that Buildkite said are not ours.
    refused: HashMap<String, Instant>,
    /// Jobs that wait beyond the first page.
    backlog: Backlog,
}

struct Retry {
    candidate: Candidate,
    failures: u32,
    at: Instant,
}

/// What a round came to.
struct Round {
    /// Pages that were read.
    pages: u32,
    took: bool,
    /// How long Buildkite asks not to be asked again.
    pause: Option<Duration>,
}

impl Queue {
    pub(super) fn new(index: usize, taker: Taker, telemetry: Telemetry) -> Self {
        let standing = Standing::new(taker.terms.key.clone(), telemetry);
        Self {
            index,
            taker,
            standing,
            is_known: false,
            has_resumed: false,
            is_unwritten: false,
            taking: JoinSet::new(),
            retries: HashMap::new(),
            refused: HashMap::new(),
            backlog: Backlog::default(),
        }
    }

    /// Rounds without end. Listings do not wait for jobs that are being read and created.
    pub(super) async fn run(&mut self) {
        let mut failures = 0;
        let mut last_work = Instant::now();
        let slots = self.taker.slots.clone();
        loop {
            let begin = Instant::now();
            self.standing.goes_on(begin);
            // A place that gets free while a round goes on may be too late for it.
            let freed = slots.freed();
            let (earliest, latest) = match self.round().await {
                Ok(round) => {
                    failures = 0;
                    if round.took {
                        last_work = begin;
                    }
                    let asked = round.pause.unwrap_or_default();
                    let after = |quiet| begin + pace::interval(quiet, round.pages).max(asked);
                    (after(Duration::ZERO), after(begin.duration_since(last_work)))
                }
                Err(error) => {
                    failures += 1;
                    let next = Instant::now() + self.pause(&error, failures);
                    (next, next)
                }
            };
            self.standing.goes_on(latest);
            // Either is a reason to look.
            let _elapsed = time::timeout_at(latest.into(), freed).await;
            time::sleep_until(earliest.into()).await;
        }
    }

    /// How long to leave the service alone after a failure.
    fn pause(&mut self, error: &Error, failures: u32) -> Duration {
        self.taker.slots.ledger().nothing_waits(self.index);
        // What is written down may be newer than what is known of it: another replica's choice is taken up, too.
        self.has_resumed &= !(self.taker.is_fenced && matches!(error, Error::Kubernetes { .. }));
        // The stack may have been forgotten: introduce ourselves again, at once.
        let forgotten = error.is_unknown() && std::mem::replace(&mut self.is_known, false);
        let asked = error.retry_after();
        let pause = if forgotten && failures == 1 {
            pace::BUSY
        } else {
            pace::after_failures(failures, asked, jitter::fraction())
        };
        self.standing.failed(error, pause);
        pause
    }

    async fn round(&mut self) -> Result<Round, Error> {
        self.prepare().await?;
        self.collect();
        self.is_unwritten |= self.taker.slots.ledger().take_forsaken(self.index);
        self.write_down().await?;
        // What is ours already does not depend on a listing.
        self.carry_out(self.due(Instant::now())).await?;
        let deep = self.taker.slots.ledger().free(self.index) > 0 && self.backlog.is_due(Instant::now());
        let listing = self.taker.intake.list(if deep { PAGES } else { 1 }).await?;
        let (pages, pause) = (listing.pages, listing.pause);
        let now = Instant::now();
        let (chosen, skipped) = self.choose(listing, deep, now);
        let took = !chosen.is_empty();
        self.is_unwritten |= took;
        let doubtful = self.taker.slots.ledger().doubtful(self.index);
        self.taker.look_for(&doubtful[..doubtful.len().min(LOOKS)]).await;
        let reserved = self.carry_out(chosen).await?;
        self.standing.listed(reserved, skipped, self.taker.slots.places(self.index));
        Ok(Round { pages, took, pause })
    }

    /// Chooses what to take of what waits; the others, with the reason for each.
    fn choose(
        &mut self,
        listing: Listing,
        deep: bool,
        now: Instant,
    ) -> (Vec<Candidate>, HashMap<String, Skip>) {
        let Listing { mut jobs, first, paused, .. } = listing;
        let mut skipped = HashMap::new();
        if paused {
            self.taker.slots.ledger().nothing_waits(self.index);
            self.backlog.clear();
            skipped.extend(jobs.drain(..).map(|job| (job.uuid, Skip::Paused)));
            return (Vec::new(), skipped);
        }
        if deep {
            self.backlog.replace(jobs.split_off(first.min(jobs.len())), now);
        } else {
            self.backlog.surfaced(&jobs);
        }
        self.refused.retain(|_, at| now.duration_since(*at) < NOT_OURS);
        let (refused, wanted): (Vec<&Candidate>, Vec<&Candidate>) =
            jobs.iter().chain(self.backlog.rest()).partition(|job| self.refused.contains_key(&job.uuid));
        skipped.extend(refused.into_iter().map(|job| (job.uuid.clone(), Skip::Taken)));
        let choice = self.taker.slots.ledger().choose(self.index, wanted, now);
        skipped.extend(choice.skip.iter().map(|(job, why)| (job.uuid.clone(), *why)));
        let chosen = choice.take;
        self.backlog.took(&chosen);
        (chosen, skipped)
    }

    /// Introduces the operator, and takes up what a process before this one has left.
    async fn prepare(&mut self) -> Result<(), Error> {
        if !self.is_known {
            self.taker.intake.join().await?;
            self.is_known = true;
        }
        if !self.has_resumed {
            let chosen = self.taker.read_intent().await?;
            let missing = self.taker.slots.ledger().resume(self.index, chosen);
            for candidate in missing {
                self.try_again(candidate, 0, None);
            }
            self.has_resumed = true;
        }
        Ok(())
    }

    /// Looks at what came of jobs that were being made BuildJobs.
    fn collect(&mut self) {
        while let Some(result) = self.taking.try_join_next() {
            // A panic of ours has been logged where it happened; the claim stays, and a restart takes it up.
            let Ok((candidate, Taken::Failed { before, asked })) = result else {
                continue;
            };
            self.try_again(candidate, before + 1, asked);
        }
    }

    /// Puts a job back among those to be tried, after a pause of at least what was asked for.
    fn try_again(&mut self, candidate: Candidate, failures: u32, asked: Option<Duration>) {
        let pause = if failures == 0 {
            Duration::ZERO
        } else {
            pace::after_failures(failures, asked, jitter::fraction())
        };
        let retry = Retry { failures, at: Instant::now() + pause, candidate };
        self.retries.insert(retry.candidate.uuid.clone(), retry);
    }

    /// Chosen jobs whose time for another try has come. Their failures are not forgotten before they are tried.
    fn due(&self, now: Instant) -> Vec<Candidate> {
        let due = self.retries.values().filter(|retry| retry.at <= now);
        due.map(|retry| retry.candidate.clone()).collect()
    }

    /// Writes the choice down, reserves it, and begins to make BuildJobs of those that became ours; answers with how many
    /// did. What is interrupted is due again.
    async fn carry_out(&mut self, batch: Vec<Candidate>) -> Result<usize, Error> {
        let mut reserved = 0;
        if batch.is_empty() {
            return Ok(reserved);
        }
        for candidate in &batch {
            if !self.retries.contains_key(&candidate.uuid) {
                self.try_again(candidate.clone(), 0, None);
            }
        }
        self.write_down().await?;
        for batch in batch.chunks(BATCH_MAX) {
            let jobs: Vec<Uuid> = batch.iter().filter_map(|candidate| candidate.uuid.parse().ok()).collect();
            let ours = self.taker.intake.reserve(&jobs).await?;
            for candidate in batch {
                let failures = self.retries.remove(&candidate.uuid).map_or(0, |retry| retry.failures);
                if let Some(job) = candidate.uuid.parse().ok().filter(|job| ours.contains(job)) {
                    self.begin(job, candidate.clone(), failures);
                    reserved += 1;
                } else {
                    self.taker.slots.ledger().release(&candidate.uuid);
                    self.refused.insert(candidate.uuid.clone(), Instant::now());
                }
            }
        }
        Ok(reserved)
    }

    /// Writes down what is chosen and has no BuildJob yet, if that has changed in a way that matters.
    async fn write_down(&mut self) -> Result<(), Error> {
        if self.is_unwritten {
            let unfinished = self.taker.slots.ledger().unfinished(self.index);
            self.taker.write_intent(&unfinished).await?;
            self.is_unwritten = false;
        }
        Ok(())
    }

    fn begin(&mut self, job: Uuid, candidate: Candidate, failures: u32) {
        let taker = self.taker.clone();
        self.taking.spawn(async move {
            let outcome = taker.take(job, &candidate, failures).await;
            (candidate, outcome)
        });
    }
}
