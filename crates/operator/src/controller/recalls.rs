//! What this process remembers about the BuildJobs that it works on.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_api::BuildJob;
use bk_plan::{
    facts::PodFacts,
    origin::Origin,
    recall::{Creation, Recall},
};
use jiff::Timestamp;
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};
use tokio::sync::mpsc;

/// How often somebody who waits for room tries whether there is some.
const PROBE: Duration = Duration::from_secs(5);

/// How many BuildJobs may try again when one had room: if there is much of it, all soon get theirs, and if not, few are refused.
const FOLLOWERS: usize = 2;

/// What is remembered, by the BuildJob's id.
pub(super) struct Recalls {
    memory: Mutex<Memory>,
    /// Wakes BuildJobs for which there may be room now.
    room: mpsc::UnboundedSender<ObjectRef<BuildJob>>,
}

#[derive(Default)]
struct Memory {
    recalls: HashMap<String, Recall>,
    /// The BuildJobs for whose pods there is no room, oldest first.
    line: BTreeMap<(Option<Timestamp>, String), ObjectRef<BuildJob>>,
}

impl Recalls {
    /// Nothing remembered, and the BuildJobs for which there may be room.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<ObjectRef<BuildJob>>) {
        let (room, roomy) = mpsc::unbounded_channel();
        (Self { memory: Mutex::default(), room }, roomy)
    }

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

    /// Notes that what runs an attempt was created, and the pod if it is one. There may be room for more.
    pub(super) fn created(&self, job: &BuildJob, attempt: u32, pod: Option<PodFacts>) {
        {
            let mut memory = self.lock();
            memory.line.remove(&place(job));
            let recall = memory.recalls.entry(id(job).to_owned()).or_default();
            recall.created_at(attempt, Timestamp::now());
            if let Some(pod) = pod {
                recall.awaits(attempt, pod);
            }
        }
        for _ in 0..FOLLOWERS {
            self.try_next();
        }
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

    /// Notes that an object of a BuildJob was seen: whatever the answer to its creation was, it has been created.
    pub(super) fn saw(&self, object: &(impl Origin + Resource)) {
        let attempt = object.attempt().unwrap_or_default();
        let mut memory = self.lock();
        for owner in object.owner_references() {
            if let Some(recall) = memory.recalls.get_mut(&owner.uid) {
                recall.saw(attempt);
            }
        }
    }

    /// There may be room for one more pod: the BuildJob that has waited longest tries again at once.
    pub(super) fn try_next(&self) {
        let mut memory = self.lock();
        if let Some(((_, id), object)) = memory.line.pop_first() {
            memory.recalls.entry(id).or_default().retry(Timestamp::now());
            // The controller is gone only while the process ends.
            let _ending = self.room.send(object);
        }
    }

    /// Lets the BuildJob that has waited longest try again every so often: nothing tells when a quota is raised, or when others
    /// have made room.
    pub(super) async fn probe(&self) {
        loop {
            tokio::time::sleep(PROBE).await;
            self.try_next();
        }
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
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(job: &BuildJob) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

/// Where a BuildJob stands in a line.
fn place(job: &BuildJob) -> (Option<Timestamp>, String) {
    (job.metadata.creation_timestamp.as_ref().map(|time| time.0), id(job).to_owned())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    fn job(number: i64) -> BuildJob {
        let metadata = ObjectMeta {
            name: Some(format!("job-{number}")),
            uid: Some(format!("uid-{number}")),
            creation_timestamp: Timestamp::from_second(number).ok().map(Time),
            ..ObjectMeta::default()
        };
        BuildJob { metadata, spec: bk_api::BuildJobSpec::default(), status: None }
    }

    #[test]
    fn whoever_waits_longest_goes_first_and_takes_others_along() {
        let (recalls, mut room) = Recalls::new();
        let later = Timestamp::MAX;
        for number in [3, 1, 2, 4] {
            recalls.failed(&job(number), 0, later, true);
        }
        recalls.failed(&job(0), 0, later, false);
        let mut woken =
            || std::iter::from_fn(|| room.try_recv().ok().map(|job| job.name)).collect::<Vec<_>>();
        recalls.try_next();
        assert_eq!(woken(), ["job-1"]);
        assert!(matches!(recalls.of(&job(1)).creation(0), Creation::Failed { retry_at } if retry_at < later));
        recalls.created(&job(1), 0, None);
        assert_eq!(woken(), ["job-2", "job-3"]);
        recalls.failed(&job(2), 0, later, true);
        recalls.forget(&job(4));
        recalls.created(&job(3), 0, None);
        assert_eq!(
            woken(),
            ["job-2"],
            "who was refused again waits again, and nobody waits for another reason"
        );
    }
}
