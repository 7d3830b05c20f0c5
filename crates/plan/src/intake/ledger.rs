//! Who has the places that there are: BuildJobs under way, and jobs that are about to become some.
//!
//! Nothing here is the truth. The BuildJobs are those that a watch tells of; the claims are this process's own, written
//! down before anything follows from them, and each ends as a BuildJob or as nothing.

mod usage;

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use bk_api::BuildJob;

use self::usage::Usage;
use super::{
    candidate::{Candidate, Offer},
    shares::shares,
};

/// How long a BuildJob of ours may take to appear in the watch before somebody looks whether it is there at all.
const VISIBILITY: Duration = Duration::from_secs(30);

/// The most claims of one queue at a time: they are written into one object, and reserved in one call.
pub const MAX_CLAIMS: usize = 1000;

/// How many bytes of rules and names claims may have together, so that the object they are written into is not too large.
const MAX_RULES: usize = 400_000;

/// On what terms jobs of a queue are taken.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The queue's key.
    pub queue: String,
    /// What its jobs may ask for.
    pub offer: Offer,
    /// The most BuildJobs from it under way at once.
    pub limit: Option<usize>,
    /// The most BuildJobs of one pipeline from it under way at once.
    pub pipeline_limit: Option<usize>,
}

/// Why a job that waits is left waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// It asks for what is not offered here.
    Unmatched,
    /// It has a BuildJob, or is about to.
    Duplicate,
    /// Its pipeline has as many BuildJobs as it may have.
    PipelineLimit,
    /// Its queue has.
    QueueLimit,
    /// All queues together have, or what is free is another queue's share.
    Limit,
    /// So many are being taken that it has to wait for the next round.
    Batch,
    /// It asks for so much that its rules do not fit into one object.
    TooLarge,
    /// The queue is paused.
    Paused,
    /// Somebody else has it, as Buildkite has just said.
    Taken,
}

impl Skip {
    /// The reason in one word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::Duplicate => "duplicate",
            Self::PipelineLimit => "pipeline_limit",
            Self::QueueLimit => "queue_limit",
            Self::Limit => "limit",
            Self::Batch => "batch",
            Self::TooLarge => "too_large",
            Self::Paused => "paused",
            Self::Taken => "taken",
        }
    }
}

/// What to do about the jobs that wait in a queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Those to take now, in order; they are claimed.
    pub take: Vec<Candidate>,
    /// Those to leave.
    pub skip: Vec<(&'a Candidate, Skip)>,
}

/// Who has the places.
#[derive(Debug)]
pub struct Ledger {
    limit: usize,
    terms: Vec<Terms>,
    /// BuildJobs by name.
    build_jobs: HashMap<String, Place>,
    /// Those seen since the watch began anew.
    listed: Option<HashSet<String>>,
    /// How many BuildJobs each Buildkite job has.
    jobs: HashMap<String, usize>,
    /// Claims by the job's UUID.
    claims: HashMap<String, Claim>,
    usage: Usage,
    /// Queues of which somebody has deleted BuildJobs.
    forsaken: HashSet<usize>,
    /// How many jobs of each queue could be taken if there were places, as of its last listing; none before the first.
    waiting: Vec<Option<usize>>,
    /// When each queue last got a place, in turns.
    served: Vec<u64>,
    turn: u64,
}

/// The place of a BuildJob.
#[derive(Debug)]
struct Place {
    job: Option<String>,
    held: Option<Holder>,
}

/// On whose account a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    queue: Option<usize>,
    pipeline: Option<String>,
}

/// A job that is about to become a BuildJob.
#[derive(Debug)]
struct Claim {
    candidate: Candidate,
    holder: Holder,
    queue: usize,
    /// When its BuildJob was created, or was last known to be there, which the watch does not show yet.
    created: Option<Instant>,
    /// Whether that is so long ago that it has to be looked for.
    doubtful: bool,
    /// Whether a list that the watch has begun must show it.
    must_be_listed: bool,
}

impl Ledger {
    /// An empty ledger for these queues, with so many places for all of them together.
    pub fn new(limit: usize, terms: Vec<Terms>) -> Self {
        let queues = terms.len();
        Self {
            limit,
            terms,
            build_jobs: HashMap::new(),
            listed: None,
            jobs: HashMap::new(),
            claims: HashMap::new(),
            usage: Usage::new(queues),
            forsaken: HashSet::new(),
            waiting: vec![None; queues],
            served: vec![0; queues],
            turn: 0,
        }
    }

    /// A BuildJob is there, or has changed.
    pub fn seen(&mut self, name: &str, job: &BuildJob) {
        if let Some(listed) = &mut self.listed {
            listed.insert(name.to_owned());
        }
        let held = (!job.is_terminal()).then(|| self.holder(job));
        let place = Place { job: job.job_uuid().map(str::to_owned), held };
        if let Some(uuid) = &place.job {
            self.release(uuid);
            *self.jobs.entry(uuid.clone()).or_default() += 1;
        }
        if let Some(holder) = &place.held {
            self.usage.add(holder);
        }
        if let Some(before) = self.build_jobs.insert(name.to_owned(), place) {
            self.clear(&before);
        }
    }

    /// A BuildJob is gone.
    pub fn gone(&mut self, name: &str) {
        if let Some(place) = self.build_jobs.remove(name) {
            self.clear(&place);
        }
    }

    /// The watch begins anew: what it does not tell of until [`Self::relisted`] is gone.
    pub fn relisting(&mut self) {
        self.listed = Some(HashSet::new());
        for claim in self.claims.values_mut() {
            claim.must_be_listed = claim.created.is_some();
        }
    }

    /// The watch has told of everything that is there.
    pub fn relisted(&mut self) {
        let Some(listed) = self.listed.take() else {
            return;
        };
        let unseen: Vec<String> =
            self.build_jobs.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        for name in &unseen {
            self.gone(name);
        }
        // What was there before the list was made, and is not in it, is gone.
        let vanished = self.claims.iter().filter(|(_, claim)| claim.must_be_listed);
        for uuid in vanished.map(|(uuid, _)| uuid.clone()).collect::<Vec<_>>() {
            self.release(&uuid);
        }
    }

    /// Chooses and claims the jobs of a queue to take now: those whose rules match and that are not here already, highest
    /// priority first, then oldest, and no more than the limits and the other queues leave.
    pub fn choose<'a>(
        &mut self,
        queue: usize,
        listing: impl IntoIterator<Item = &'a Candidate>,
        now: Instant,
    ) -> Choice<'a> {
        self.doubt(now);
        let mut choice = Choice::default();
        let mut wanted = self.wanted(queue, listing, &mut choice);
        self.waiting[queue] = Some(wanted.len());
        let (left, reason) = self.room(queue, &wanted);
        for candidate in wanted.split_off(left.min(wanted.len())) {
            choice.skip.push((candidate, reason));
        }
        for candidate in wanted {
            self.claim(queue, candidate.clone());
            choice.take.push(candidate.clone());
        }
        if !choice.take.is_empty() {
            self.turn += 1;
            self.served[queue] = self.turn;
            self.waiting[queue] = self.waiting[queue].map(|waiting| waiting - choice.take.len());
        }
        choice
    }

    /// Nothing is known to wait in a queue: it is paused, or cannot be listed. Other queues may have its share.
    pub fn nothing_waits(&mut self, queue: usize) {
        self.waiting[queue] = Some(0);
    }

    /// Claims what was chosen before, maybe by another process, and is not here yet; answers with what was claimed.
    pub fn resume(&mut self, queue: usize, chosen: Vec<Candidate>) -> Vec<Candidate> {
        let missing: Vec<Candidate> =
            chosen.into_iter().filter(|candidate| !self.has(&candidate.uuid)).collect();
        for candidate in &missing {
            self.claim(queue, candidate.clone());
        }
        missing
    }

    /// A claimed job has a BuildJob now. It keeps its claim until the watch shows it, however long that takes.
    pub fn created(&mut self, uuid: &str, now: Instant) {
        if let Some(claim) = self.claims.get_mut(uuid) {
            claim.created = Some(now);
            claim.doubtful = false;
        }
    }

    /// Claimed jobs of a queue whose BuildJobs have not shown for so long that somebody should look whether they are there.
    pub fn doubtful(&self, queue: usize) -> Vec<String> {
        let doubtful = self.claims.iter().filter(|(_, claim)| claim.queue == queue && claim.doubtful);
        doubtful.map(|(uuid, _)| uuid.clone()).collect()
    }

    /// Gives up a claim: the job is not ours.
    pub fn release(&mut self, uuid: &str) {
        if let Some(claim) = self.claims.remove(uuid) {
            self.usage.remove(&claim.holder);
        }
    }

    /// Somebody has deleted a job's BuildJob. What was written down when it was chosen must not bring it back.
    pub fn forsake(&mut self, job: &BuildJob) {
        self.forsaken.extend(self.holder(job).queue);
    }

    /// Whether a job of a queue was forsaken since this was last asked.
    pub fn take_forsaken(&mut self, queue: usize) -> bool {
        self.forsaken.remove(&queue)
    }

    /// The jobs of a queue that are claimed and have no BuildJob yet.
    pub fn unfinished(&self, queue: usize) -> Vec<Candidate> {
        self.open(queue).cloned().collect()
    }

    /// Whether a Buildkite job has a BuildJob, ended or not, or is about to.
    pub fn has(&self, uuid: &str) -> bool {
        self.has_build_job(uuid) || self.claims.contains_key(uuid)
    }

    /// Whether a Buildkite job has a BuildJob that the watch has shown, ended or not.
    pub fn has_build_job(&self, uuid: &str) -> bool {
        self.jobs.contains_key(uuid)
    }

    /// How many BuildJobs of a queue are under way or about to be; of none of the queues, if `None`.
    pub fn in_flight(&self, queue: Option<usize>) -> usize {
        self.usage.of(queue)
    }

    /// How many BuildJobs are under way or about to be, wherever they are from.
    pub fn all_in_flight(&self) -> usize {
        self.usage.all()
    }

    /// How many jobs of a queue may be under way at once, if none of another queue is.
    pub fn limit(&self, queue: usize) -> usize {
        self.terms[queue].limit.unwrap_or(usize::MAX).min(self.limit)
    }

    /// How many more jobs of a queue could be taken if they came.
    pub fn free(&self, queue: usize) -> usize {
        let left = self.limit(queue).saturating_sub(self.usage.of(Some(queue)));
        left.min(self.limit.saturating_sub(self.usage.all()))
    }

    /// Whether jobs wait for places.
    pub fn is_wanting(&self) -> bool {
        self.waiting.iter().flatten().any(|waiting| *waiting > 0)
    }

    /// Sorts out what cannot be taken whatever room there is; the rest, who goes first.
    fn wanted<'a>(
        &self,
        queue: usize,
        listing: impl IntoIterator<Item = &'a Candidate>,
        choice: &mut Choice<'a>,
    ) -> Vec<&'a Candidate> {
        let terms = &self.terms[queue];
        let mut wanted = Vec::new();
        for candidate in listing {
            if self.has(&candidate.uuid) {
                choice.skip.push((candidate, Skip::Duplicate));
            } else if !terms.offer.satisfies(&candidate.rules) {
                choice.skip.push((candidate, Skip::Unmatched));
            } else if size(candidate) > MAX_RULES {
                choice.skip.push((candidate, Skip::TooLarge));
            } else {
                wanted.push(candidate);
            }
        }
        wanted.sort_unstable_by(|one, other| one.precedence(other));
        wanted.dedup_by(|one, other| one.uuid == other.uuid);
        let Some(limit) = terms.pipeline_limit else {
            return wanted;
        };
        let mut chosen: HashMap<&str, usize> = HashMap::new();
        wanted.retain(|candidate| {
            let Some(pipeline) = candidate.pipeline.as_deref() else {
                return true;
            };
            let used = chosen.entry(pipeline).or_insert_with(|| self.usage.of_pipeline(queue, pipeline));
            let fits = *used < limit;
            if fits {
                *used += 1;
            } else {
                choice.skip.push((candidate, Skip::PipelineLimit));
            }
            fits
        });
        wanted
    }

    /// How many jobs of a queue may be taken now, and why no more.
    fn room(&self, queue: usize, wanted: &[&Candidate]) -> (usize, Skip) {
        let used = self.usage.of(Some(queue));
        let of_queue = self.terms[queue].limit.map_or(usize::MAX, |limit| limit.saturating_sub(used));
        let of_all = self.share(queue).saturating_sub(used).min(self.limit.saturating_sub(self.usage.all()));
        let of_batch = self.room_in_batch(queue, wanted);
        [(of_queue, Skip::QueueLimit), (of_all, Skip::Limit), (of_batch, Skip::Batch)]
            .into_iter()
            .min_by_key(|(room, _)| *room)
            .unwrap_or((0, Skip::Limit))
    }

    /// How many of those who want to be taken can be claimed besides those that are.
    fn room_in_batch(&self, queue: usize, wanted: &[&Candidate]) -> usize {
        let (claims, mut rules) =
            self.open(queue).fold((0, 0), |(claims, rules), claim| (claims + 1, rules + size(claim)));
        let mut fits = |candidate: &&&Candidate| {
            rules += size(candidate);
            rules <= MAX_RULES
        };
        wanted.iter().take(MAX_CLAIMS.saturating_sub(claims)).take_while(&mut fits).count()
    }

    /// How many places are a queue's own, if all queues that want some get as many. Who was served last comes last. A queue
    /// of which nothing is known yet may want all: who is listed first must not have every place for that.
    fn share(&self, queue: usize) -> usize {
        let mut order: Vec<usize> = (0..self.terms.len()).collect();
        order.sort_by_key(|one| (self.served[*one], *one));
        let wanted: Vec<usize> = order
            .iter()
            .map(|&one| {
                let all = self.waiting[one].map_or(usize::MAX, |waiting| self.usage.of(Some(one)) + waiting);
                all.min(self.terms[one].limit.unwrap_or(usize::MAX))
            })
            .collect();
        let total = self.limit.saturating_sub(self.usage.of(None));
        let position = order.iter().position(|one| *one == queue).unwrap_or_default();
        shares(total, &wanted).get(position).copied().unwrap_or_default()
    }

    fn claim(&mut self, queue: usize, candidate: Candidate) {
        let holder = Holder { queue: Some(queue), pipeline: candidate.pipeline.clone() };
        self.usage.add(&holder);
        let claim = Claim { candidate, holder, queue, created: None, doubtful: false, must_be_listed: false };
        if let Some(before) = self.claims.insert(claim.candidate.uuid.clone(), claim) {
            self.usage.remove(&before.holder);
        }
    }

    /// The claims of a queue that have no BuildJob yet.
    fn open(&self, queue: usize) -> impl Iterator<Item = &Candidate> {
        let open = move |claim: &&Claim| claim.queue == queue && claim.created.is_none();
        self.claims.values().filter(open).map(|claim| &claim.candidate)
    }

    /// Notes which BuildJobs have not shown for long. They may have been gone again before the watch could tell, or the watch
    /// may be behind: their places are given up only when it is known which.
    fn doubt(&mut self, now: Instant) {
        for claim in self.claims.values_mut() {
            claim.doubtful |= claim.created.is_some_and(|at| now.duration_since(at) >= VISIBILITY);
        }
    }

    fn holder(&self, job: &BuildJob) -> Holder {
        let of = job.spec.buildkite.as_ref();
        let queue = of.and_then(|of| of.queue.as_ref());
        Holder {
            queue: queue.and_then(|queue| self.terms.iter().position(|terms| terms.queue == *queue)),
            pipeline: of.and_then(|of| of.pipeline.clone()),
        }
    }

    fn clear(&mut self, place: &Place) {
        if let Some(holder) = &place.held {
            self.usage.remove(holder);
        }
        let Some(uuid) = &place.job else {
            return;
        };
        if let Some(count) = self.jobs.get_mut(uuid) {
            *count -= 1;
            if *count == 0 {
                self.jobs.remove(uuid);
            }
        }
    }
}

/// How many bytes a claim of a job is written down in, about.
fn size(candidate: &Candidate) -> usize {
    let rules = candidate.rules.iter().map(|rule| rule.len() + 3).sum::<usize>();
    rules + candidate.pipeline.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests;
