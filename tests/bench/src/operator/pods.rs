//! Pods of jobs as a watch tells of them, with the time at which it did.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use bk_api::names::LABEL_JOB_UUID;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// What is known about the pod of a job.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub(super) name: String,
    /// When it was first seen. Its own time of creation is rounded down to the second.
    pub(super) created: Timestamp,
    pub(super) runs: bool,
    /// Whether a container of it has ended.
    pub(super) ended: bool,
    pub(super) gone: Option<Timestamp>,
}

type Sightings = HashMap<Uuid, Sighting>;

/// All pods of jobs that have been seen, by job.
#[derive(Clone)]
pub(super) struct Pods {
    seen: Arc<Mutex<Sightings>>,
    _watch: Arc<AbortOnDropHandle<()>>,
}

impl Pods {
    /// Begins to watch, and returns when nothing that is created from then on can be missed.
    pub(super) async fn watch(api: Api<Pod>) -> Result<Self> {
        let seen = Arc::<Mutex<Sightings>>::default();
        let writer = Arc::clone(&seen);
        let (ready, begun) = oneshot::channel();
        let watch = tokio::spawn(async move {
            let mut ready = Some(ready);
            let config = watcher::Config::default().labels(LABEL_JOB_UUID);
            let mut events = watcher(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let now = Timestamp::now();
                let mut seen = writer.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                        note(&mut seen, &pod, now, false);
                    }
                    Ok(watcher::Event::Delete(pod)) => note(&mut seen, &pod, now, true),
                    Ok(watcher::Event::InitDone) => {
                        // Nobody waits for the second time.
                        let _told = ready.take().map(|ready| ready.send(()));
                    }
                    Ok(watcher::Event::Init) | Err(_) => {}
                }
            }
        });
        begun.await.context("the watch of pods has ended")?;
        Ok(Self { seen, _watch: Arc::new(AbortOnDropHandle::new(watch)) })
    }

    /// How many have been seen.
    pub(super) fn created(&self) -> usize {
        self.lock().len()
    }

    /// How many have been seen and are gone.
    pub(super) fn gone(&self) -> usize {
        self.lock().values().filter(|pod| pod.gone.is_some()).count()
    }

    /// When the last of them was first seen.
    pub(super) fn last_created(&self) -> Option<Timestamp> {
        self.lock().values().map(|pod| pod.created).max()
    }

    /// When the last of them went.
    pub(super) fn last_gone(&self) -> Option<Timestamp> {
        self.lock().values().filter_map(|pod| pod.gone).max()
    }

    /// The pod of a job.
    pub(super) fn of(&self, job: Uuid) -> Option<Sighting> {
        self.lock().get(&job).cloned()
    }

    /// The jobs whose pods run.
    pub(super) fn running(&self) -> Vec<Uuid> {
        let running = |(job, pod): (&Uuid, &Sighting)| (pod.runs && pod.gone.is_none()).then_some(*job);
        self.lock().iter().filter_map(running).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Sightings> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(seen: &mut Sightings, pod: &Pod, now: Timestamp, gone: bool) {
    let Some(job) = pod.labels().get(LABEL_JOB_UUID).and_then(|id| id.parse().ok()) else { return };
    let sighting = seen.entry(job).or_insert_with(|| Sighting {
        name: pod.name_any(),
        created: now,
        runs: false,
        ended: false,
        gone: None,
    });
    let status = pod.status.as_ref();
    sighting.runs |= status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ended = |status: &ContainerStatus| status.state.as_ref().is_some_and(|s| s.terminated.is_some());
    sighting.ended |= statuses.iter().any(ended);
    if gone {
        sighting.gone.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_keeps_the_time_of_its_first_sight_and_what_it_has_been_through() {
        let job = Uuid::from_u128(1);
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |status| -> Pod {
            let labels = json!({ LABEL_JOB_UUID: job.to_string() });
            serde_json::from_value(json!({ "metadata": { "name": "a", "labels": labels }, "status": status }))
                .unwrap()
        };
        let mut seen = Sightings::new();
        note(&mut seen, &pod(json!({})), at(1), false);
        assert!(!seen[&job].runs);
        let ended = json!({ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 0 } } });
        note(&mut seen, &pod(json!({ "phase": "Running" })), at(2), false);
        note(&mut seen, &pod(json!({ "phase": "Running", "containerStatuses": [ended] })), at(3), false);
        note(&mut seen, &pod(json!({})), at(4), true);
        let sighting = &seen[&job];
        assert_eq!((sighting.created, sighting.gone), (at(1), Some(at(4))));
        assert!(sighting.runs && sighting.ended);
        note(&mut seen, &Pod::default(), at(5), false);
        assert_eq!(seen.len(), 1, "a pod of nobody's job");
    }
}
