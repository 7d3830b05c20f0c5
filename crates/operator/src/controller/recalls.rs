//! What this process remembers about the BuildJobs that it works on.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bk_api::BuildJob;
use bk_plan::recall::Recall;

/// What is remembered, by the BuildJob's id.
#[derive(Default)]
pub(super) struct Recalls(Mutex<HashMap<String, Recall>>);

impl Recalls {
    /// What is remembered about a BuildJob.
    pub(super) fn of(&self, job: &BuildJob) -> Recall {
        self.lock().get(id(job)).cloned().unwrap_or_default()
    }

    /// Notes something about a BuildJob.
    pub(super) fn note(&self, job: &BuildJob, note: impl FnOnce(&mut Recall)) {
        note(self.lock().entry(id(job).to_owned()).or_default());
    }

    /// Drops what is remembered about a BuildJob that is gone, and returns it.
    pub(super) fn forget(&self, job: &BuildJob) -> Recall {
        self.lock().remove(id(job)).unwrap_or_default()
    }

    /// Drops what is remembered about BuildJobs that are not among these.
    pub(super) fn retain(&self, jobs: &[Arc<BuildJob>]) {
        let ids: HashSet<&str> = jobs.iter().map(|job| id(job)).collect();
        self.lock().retain(|remembered, _| ids.contains(remembered.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Recall>> {
        // Nothing inside can be left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(job: &BuildJob) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}
