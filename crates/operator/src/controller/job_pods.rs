//! Which pods the Jobs around them have, by the Job: there may be thousands of others.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bk_plan::facts::JobPod;
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt, runtime::watcher::Event};

/// The names of pods by the ids of their Jobs. What a name stands for is in the cache.
#[derive(Default)]
pub(super) struct JobPods(Mutex<HashMap<String, BTreeSet<String>>>);

impl JobPods {
    /// Takes down what the watch of pods says.
    pub(super) fn see(&self, event: &Event<JobPod>) {
        match event {
            // All that there are follow.
            Event::Init => self.lock().clear(),
            Event::InitApply(pod) | Event::Apply(pod) => {
                if let Some(job) = job_of(pod) {
                    self.lock().entry(job).or_default().insert(pod.name_any());
                }
            }
            Event::Delete(pod) => {
                let (Some(job), mut known) = (job_of(pod), self.lock()) else { return };
                let last = known.get_mut(&job).is_some_and(|pods| {
                    pods.remove(&pod.name_any());
                    pods.is_empty()
                });
                if last {
                    known.remove(&job);
                }
            }
            Event::InitDone => {}
        }
    }

    /// The names of a Job's pods: one, as a rule.
    pub(super) fn of(&self, job: &Job) -> Vec<String> {
        let id = job.metadata.uid.as_deref().unwrap_or_default();
        self.lock().get(id).into_iter().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        // Nothing inside can be left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of the Job that a pod belongs to.
fn job_of(pod: &JobPod) -> Option<String> {
    let kind = Job::kind(&());
    pod.owner_references().iter().find(|owner| owner.kind == kind).map(|owner| owner.uid.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, kind: &str, uid: &str) -> JobPod {
        let owner = json!({ "apiVersion": "v1", "kind": kind, "name": "owner", "uid": uid });
        let pod = json!({ "metadata": { "name": name, "ownerReferences": [owner] } });
        serde_json::from_value(pod).expect("the fixture is a pod")
    }

    fn job(uid: &str) -> Job {
        Job { metadata: ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() }, ..Job::default() }
    }

    #[test]
    fn pods_are_found_by_their_job_until_they_are_gone() {
        let pods = JobPods::default();
        for event in [
            Event::Apply(pod("a", "Job", "1")),
            Event::Apply(pod("b", "Job", "1")),
            Event::Apply(pod("c", "Job", "2")),
            Event::Apply(pod("d", "BuildJob", "3")),
            Event::Delete(pod("a", "Job", "1")),
            Event::Delete(pod("c", "Job", "2")),
        ] {
            pods.see(&event);
        }
        assert_eq!(pods.of(&job("1")), ["b"]);
        assert_eq!(pods.of(&job("3")), [""; 0], "a pod without a Job is found by its name");
        assert_eq!(pods.lock().len(), 1, "nothing is kept of a Job without pods");
    }

    #[test]
    fn a_watch_that_begins_anew_forgets_what_has_gone_unseen() {
        let pods = JobPods::default();
        pods.see(&Event::Apply(pod("a", "Job", "1")));
        for event in [Event::Init, Event::InitApply(pod("b", "Job", "2")), Event::InitDone] {
            pods.see(&event);
        }
        assert_eq!((pods.of(&job("1")), pods.of(&job("2"))), (vec![], vec!["b".to_owned()]));
    }
}
