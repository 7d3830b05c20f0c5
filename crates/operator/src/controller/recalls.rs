//! What this process remembers about the BuildJobs that it works on.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bk_api::BuildJob;
use bk_plan::recall::{Creation, Recall};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;

/// What is remembered, by the BuildJob's id.
#[derive(Default)]
pub(super) struct Recalls(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    recalls: HashMap<String, Recall>,
    /// The BuildJobs for whose pods there is no room, oldest first.
    line: BTreeMap<(Option<Timestamp>, String), ObjectRef<BuildJob>>,
}

impl Recalls {
    /// What is remembered about a BuildJob.
    pub(super) fn of(&self, job: &BuildJob) -> Recall {
        self.lock().recalls.get(id(job)).cloned().unwrap_or_default()
    }

    /// Notes something about a BuildJob.
    pub(super) fn note(&self, job: &BuildJob, note: impl FnOnce(&mut Recall)) {
        note(self.lock().recalls.entry(id(job).to_owned()).or_default());
    }

    /// Drops what is remembered about a BuildJob that is gone, and returns it.
    pub(super) fn forget(&self, job: &BuildJob) -> Recall {
        let mut memory = self.lock();
        memory.line.remove(&place(job));
        memory.recalls.remove(id(job)).unwrap_or_default()
    }

    /// Notes that what runs an attempt was created.
    pub(super) fn created(&self, job: &BuildJob, attempt: u32) {
        let mut memory = self.lock();
        memory.line.remove(&place(job));
        memory.recalls.entry(id(job).to_owned()).or_default().created(attempt, Creation::Done);
    }

    /// Notes that it was not, when to try again, and whether that depends on room.
    pub(super) fn failed(&self, job: &BuildJob, attempt: u32, retry_at: Timestamp, needs_room: bool) {
        let mut memory = self.lock();
        let recall = memory.recalls.entry(id(job).to_owned()).or_default();
        recall.created(attempt, Creation::Failed { retry_at });
        if needs_room {
            memory.line.insert(place(job), ObjectRef::from_obj(job));
        } else {
            memory.line.remove(&place(job));
        }
    }

    /// There is room for one more pod: the BuildJob that has waited longest may try again at once.
    pub(super) fn next_in_line(&self) -> Option<ObjectRef<BuildJob>> {
        let mut memory = self.lock();
        let ((_, id), object) = memory.line.pop_first()?;
        memory.recalls.entry(id).or_default().retry(Timestamp::now());
        Some(object)
    }

    /// Drops what is remembered about BuildJobs that are not among these.
    pub(super) fn retain(&self, jobs: &[Arc<BuildJob>]) {
        let ids: HashSet<&str> = jobs.iter().map(|job| id(job)).collect();
        let mut memory = self.lock();
        memory.recalls.retain(|remembered, _| ids.contains(remembered.as_str()));
        memory.line.retain(|(_, remembered), _| ids.contains(remembered.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Nothing inside can be left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(job: &BuildJob) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

/// Where a BuildJob stands in a line.
fn place(job: &BuildJob) -> (Option<Timestamp>, String) {
    (job.metadata.creation_timestamp.as_ref().map(|time| time.0), id(job).to_owned())
}
