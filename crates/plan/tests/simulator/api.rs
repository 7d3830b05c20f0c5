//! The API server: what it stores, how late it shows it, and how it fails.

use std::{rc::Rc, sync::Arc};

use bk_api::BuildJobStatus;
use bk_plan::facts::PodFacts;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

use super::{
    batch::BatchStep,
    invariants,
    kubelet::Step,
    operator::Failure,
    random::Random,
    world::{Event, Instant, PodId, World, timestamp, whole_seconds},
};

/// How long pods may take to end when they are deleted.
pub(crate) const GRACE: Instant = 60_000;

/// A pod in the store, and what matters about it, read once for all who look.
pub(crate) struct Stored {
    pub(crate) id: PodId,
    pub(crate) pod: Pod,
    pub(crate) facts: Rc<PodFacts>,
}

/// A Job in the store.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) number: usize,
    pub(crate) name: Arc<str>,
    pub(crate) created: Instant,
    pub(crate) template: Rc<Pod>,
    pub(crate) deleting: bool,
    pub(crate) failed: bool,
}

/// How the API server fails.
pub(crate) struct Trouble {
    /// In per cent of all writes.
    chance: i64,
    /// Until when a quota is used up.
    quota_full_until: Instant,
    /// Whether a policy refuses the pod.
    pub(crate) refuses: bool,
}

/// What becomes of one write.
pub(crate) enum Fate {
    Done,
    /// It was not done, and that is certain: a conflict, too many requests.
    Refused,
    /// It was not done, and the answer does not say so.
    Lost,
    /// It was done, and the answer was lost.
    DoneUnheard,
}

impl Trouble {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            chance: if random.chance(30) { random.between(2, 40) } else { 0 },
            quota_full_until: if random.chance(5) { random.span(1_000_000) } else { 0 },
            refuses: random.chance(2),
        }
    }

    /// Whether nothing of it ever fails.
    pub(crate) fn is_none(&self) -> bool {
        self.chance == 0 && self.quota_full_until == 0
    }

    pub(crate) fn has_no_room(&self, now: Instant) -> bool {
        now < self.quota_full_until
    }
}

impl World {
    /// What becomes of the write that is about to be made.
    pub(crate) fn fate(&mut self) -> Fate {
        if !self.random.chance(self.trouble.chance) {
            return Fate::Done;
        }
        match self.random.between(0, 3) {
            0 => Fate::Refused,
            1 => Fate::Lost,
            _ => Fate::DoneUnheard,
        }
    }

    /// Tells the operator's cache about the BuildJob, a little later.
    pub(crate) fn publish_job(&mut self) {
        let delay = self.operator.see_job(self.now, self.job.clone(), &mut self.random);
        self.after(delay, Event::Wake(None));
    }

    /// Tells the operator's caches about pods and Jobs, a little later, and at times twice.
    pub(crate) fn publish_pods(&mut self) {
        let pods = self.pods.iter().map(|(name, stored)| (name.clone(), stored.facts.clone())).collect();
        let view = (pods, self.batch.clone(), self.nodes.clone());
        let delay = self.operator.see_pods(self.now, view, &mut self.random);
        self.after(delay, Event::Wake(None));
        if self.random.chance(5) {
            let again = delay + self.random.between(0, 2_000);
            self.after(again, Event::Wake(None));
        }
    }

    /// Writes a status, provided that the BuildJob is still the one that was looked at.
    pub(crate) fn write_status(&mut self, status: BuildJobStatus) -> Result<(), Failure> {
        let fate = self.fate();
        if matches!(fate, Fate::Refused | Fate::Lost) {
            return Err(Failure::Api);
        }
        let Some(before) = self.job.clone() else {
            return Err(Failure::Gone);
        };
        if before.metadata.resource_version != self.operator.based_on {
            return Err(Failure::Conflict);
        }
        let mut job = (*before).clone();
        let version: u64 = self.operator.based_on.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default();
        job.metadata.resource_version = Some((version + 1).to_string());
        job.status = Some(status);
        let written = job.metadata.resource_version.clone();
        self.job = Some(Rc::new(job));
        self.writes += 1;
        invariants::of_write(self, &before);
        self.publish_job();
        if matches!(fate, Fate::DoneUnheard) {
            return Err(Failure::Api);
        }
        if let (Some((basis, _)), Some(job)) = (&mut self.operator.basis, &self.job) {
            basis.clone_from(job);
        }
        let overwritten = std::mem::replace(&mut self.operator.based_on, written);
        self.operator.recall.wrote(overwritten);
        Ok(())
    }

    /// The BuildJob goes, and the garbage collector takes what it owned.
    pub(crate) fn remove_job(&mut self) {
        self.job = None;
        self.publish_job();
        if self.batch.is_some() {
            return self.delete_batch();
        }
        let owned: Vec<_> = self.pods.values().map(|stored| stored.id).collect();
        for pod in owned {
            self.delete_pod(pod);
        }
    }

    /// Stores a Job; its controller will find it.
    pub(crate) fn store_batch(&mut self, name: Arc<str>, template: Pod) {
        self.batches += 1;
        let number = self.batches;
        let created = self.now;
        let template = Rc::new(template);
        self.batch = Some(Batch { number, name, created, template, deleting: false, failed: false });
        let delay = self.random.between(5, 500);
        self.after(delay, Event::Batch(number, BatchStep::MakesPod));
        self.publish_pods();
    }

    /// Marks the Job for deletion, and its pod with it: the Job goes when that is gone.
    pub(crate) fn delete_batch(&mut self) {
        let Some(batch) = self.batch.as_mut().filter(|batch| !batch.deleting) else {
            return;
        };
        batch.deleting = true;
        let number = batch.number;
        let owned: Vec<_> = self.pods.values().map(|stored| stored.id).collect();
        for pod in owned {
            self.delete_pod(pod);
        }
        if self.pods.is_empty() {
            let delay = self.random.between(5, 500);
            self.after(delay, Event::Batch(number, BatchStep::Removed));
        }
        self.publish_pods();
    }

    /// Marks a pod for deletion; its processes get a signal and some time.
    pub(crate) fn delete_pod(&mut self, id: PodId) {
        let end = whole_seconds(self.now + GRACE);
        let Some(stored) = self.stored(id).filter(|stored| stored.pod.metadata.deletion_timestamp.is_none())
        else {
            return;
        };
        stored.pod.metadata.deletion_timestamp = Some(end);
        stored.pod.metadata.deletion_grace_period_seconds = Some(GRACE / 1_000);
        stored.read();
        let (dead, delay) = (self.lives[id].dead, self.random.between(50, 4_000));
        let step = if dead { Step::Removed } else { Step::Terminated };
        self.after(delay, Event::Pod(id, step));
        self.publish_pods();
    }

    /// The stored pod with this id, if it still exists.
    pub(crate) fn stored(&mut self, id: PodId) -> Option<&mut Stored> {
        self.pods.values_mut().find(|stored| stored.id == id)
    }

    /// A kubelet says what has become of a pod; one that is cut off says it later.
    pub(crate) fn change_pod(&mut self, id: PodId, change: impl FnOnce(&mut Pod) + 'static) {
        if self.lives[id].cut_until > self.now {
            return self.lives[id].unsaid.push(Box::new(change));
        }
        self.change_stored(id, change);
    }

    /// Changes a pod in the store.
    pub(crate) fn change_stored(&mut self, id: PodId, change: impl FnOnce(&mut Pod)) {
        if let Some(stored) = self.stored(id) {
            change(&mut stored.pod);
            stored.read();
            self.publish_pods();
        }
    }

    /// Whether a pod is of no account any more: it should have gone long ago, as its node is dead.
    pub(crate) fn is_given_up(&self, stored: &Stored) -> bool {
        let gone_by = stored.pod.metadata.deletion_timestamp.as_ref();
        let (now, facts) = (timestamp(self.now), &stored.facts);
        let by_taint = facts.disrupted.as_ref().is_some_and(|told| told.reason == "DeletionByTaintManager");
        let marked = facts.deleting_since.filter(|_| by_taint);
        if marked.is_some_and(|since| now.duration_since(since) >= invariants::SILENT) {
            return true;
        }
        // A clock that is set may show any time as past.
        let overdue = |time: &Time| now.duration_since(time.0) >= invariants::OVERDUE;
        gone_by.is_some_and(|time| overdue(time) || self.operator.clock_step != 0)
    }
}

impl Stored {
    pub(crate) fn new(id: PodId, pod: Pod) -> Self {
        let facts = Rc::new(PodFacts::of(&pod));
        Self { id, pod, facts }
    }

    fn read(&mut self) {
        self.facts = Rc::new(PodFacts::of(&self.pod));
    }
}
