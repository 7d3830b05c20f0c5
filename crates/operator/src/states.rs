//! Buildkite's word on the jobs that wait for it.
//!
//! The controller says which jobs it wants to hear about; one loop asks for all of them in batches and wakes
//! the controller for those whose state has changed. Nothing here is the truth: after a restart the jobs are
//! simply asked for again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_api::BuildJob;
use bk_buildkite::{StacksClient, stacks::BATCH_MAX};
use bk_plan::remote::{Remote, RemoteState};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use crate::cache::Cache;

/// Time between two questions while somebody waits. The service allows twenty a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// BuildJobs whose remote state has changed.
pub type RemoteChanges = mpsc::UnboundedReceiver<ObjectRef<BuildJob>>;

/// What Buildkite has said, and what we still want to hear.
pub struct RemoteStates {
    entries: Mutex<HashMap<ObjectRef<BuildJob>, Entry>>,
    changes: mpsc::UnboundedSender<ObjectRef<BuildJob>>,
    wanted: Notify,
}

struct Entry {
    job: Uuid,
    remote: Option<Remote>,
    wanted: bool,
}

impl RemoteStates {
    /// An empty record, and the stream of changes to it.
    pub fn new() -> (Arc<Self>, RemoteChanges) {
        let (changes, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { entries: Mutex::default(), changes, wanted: Notify::new() }), receiver)
    }

    /// What Buildkite last said about a BuildJob's job. One of the same name may have had another job before.
    pub fn get(&self, object: &ObjectRef<BuildJob>, job: Uuid) -> Option<Remote> {
        self.lock().get(object).filter(|entry| entry.job == job)?.remote
    }

    /// Says whether Buildkite's word on a BuildJob's job is needed.
    pub fn want(&self, object: ObjectRef<BuildJob>, job: Uuid, wanted: bool) {
        let mut entries = self.lock();
        let fresh = Entry { job, remote: None, wanted };
        let entry = entries.entry(object).or_insert(fresh);
        if entry.job == job {
            entry.wanted = wanted;
        } else {
            *entry = Entry { job, remote: None, wanted };
        }
        if wanted {
            self.wanted.notify_one();
        }
    }

    /// Drops everything about a BuildJob that has ended.
    pub fn forget(&self, object: &ObjectRef<BuildJob>) {
        self.lock().remove(object);
    }

    /// Asks Buildkite for as long as the process lives.
    pub async fn poll(self: Arc<Self>, buildkite: StacksClient, stack_key: &str, jobs: Cache<BuildJob>) {
        let mut pause = INTERVAL;
        loop {
            let wanted = self.still_wanted(&jobs);
            if wanted.is_empty() {
                self.wanted.notified().await;
                continue;
            }
            match self.ask(&buildkite, stack_key, &wanted).await {
                Ok(()) => pause = INTERVAL,
                Err(error) => {
                    pause = (pause * 2).min(MAX_PAUSE).max(error.retry_after().unwrap_or_default());
                    tracing::warn!(error = %bk_ops::report::one_line(&error), ?pause, "cannot read job states");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask(
        &self,
        buildkite: &StacksClient,
        stack: &str,
        wanted: &[Uuid],
    ) -> Result<(), bk_buildkite::Error> {
        for batch in wanted.chunks(BATCH_MAX) {
            let asked_at = Timestamp::now();
            let states = buildkite.job_states(stack, batch).await?;
            let state =
                |job: &Uuid| states.get(job).map_or(RemoteState::Unknown, |word| RemoteState::parse(word));
            self.record(&batch.iter().map(|job| (*job, Remote { state: state(job), asked_at })).collect());
        }
        Ok(())
    }

    /// The jobs to ask for. A BuildJob that was deleted by hand never says that it wants no more, so what is
    /// not in the store is dropped.
    fn still_wanted(&self, jobs: &Cache<BuildJob>) -> Vec<Uuid> {
        let mut entries = self.lock();
        entries.retain(|object, _| jobs.get(object).is_some());
        let wanted: BTreeSet<Uuid> =
            entries.values().filter(|entry| entry.wanted).map(|entry| entry.job).collect();
        wanted.into_iter().collect()
    }

    /// Takes down Buildkite's answers, and wakes the BuildJobs for which they are news.
    fn record(&self, answers: &HashMap<Uuid, Remote>) {
        for (object, entry) in self.lock().iter_mut() {
            let Some(remote) = answers.get(&entry.job) else {
                continue;
            };
            let before = entry.remote.replace(*remote);
            if before.is_none_or(|before| before.state != remote.state) {
                // The controller is gone only while the process ends.
                let _ending = self.changes.send(object.clone());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<BuildJob>, Entry>> {
        // Nothing inside can be left half-done by a panic.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
