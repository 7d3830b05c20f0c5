//! The places that BuildJobs of all queues share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bk_api::{BuildJob, config::SpawnerConfig};
use bk_plan::intake::{Ledger, Offer, Terms};
use kube::{ResourceExt, runtime::watcher::Event};
use tokio::sync::{Notify, futures::Notified};

use crate::telemetry::Places;

/// The ledger of places, and who waits for one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    freed: Notify,
}

impl Slots {
    /// The places that a configuration allows for.
    pub fn new(config: &SpawnerConfig) -> Self {
        let terms = config.queues().into_iter().map(|queue| Terms {
            queue: queue.key,
            offer: Offer { tags: queue.tags },
            limit: queue.max_in_flight,
            pipeline_limit: queue.max_in_flight_per_pipeline,
        });
        let ledger = Mutex::new(Ledger::new(config.max_in_flight, terms.collect()));
        Self(Arc::new(Shared { ledger, freed: Notify::new() }))
    }

    /// Takes down what the watch of BuildJobs says.
    pub fn see(&self, event: &Event<BuildJob>) {
        let mut ledger = self.ledger();
        let before = ledger.all_in_flight();
        match event {
            Event::Init => ledger.relisting(),
            Event::InitApply(job) | Event::Apply(job) => ledger.seen(&job.name_any(), job),
            Event::InitDone => ledger.relisted(),
            Event::Delete(job) => ledger.gone(&job.name_any()),
        }
        let freed = ledger.all_in_flight() < before && ledger.is_wanting();
        drop(ledger);
        if freed {
            self.0.freed.notify_waiters();
        }
    }

    /// Whether a Buildkite job has a BuildJob, ended or not.
    pub fn has_build_job(&self, uuid: &str) -> bool {
        self.ledger().has_build_job(uuid)
    }

    /// Resolves once a place has got free since this was called, whenever it is waited for.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.0.freed.notified()
    }

    /// How the places of a queue stand.
    pub(super) fn places(&self, queue: usize) -> Places {
        let ledger = self.ledger();
        Places { taken: ledger.in_flight(Some(queue)), limit: ledger.limit(queue), free: ledger.free(queue) }
    }

    /// Somebody has deleted a BuildJob: its job must not be taken up again because it was chosen once.
    pub fn forsake(&self, job: &BuildJob) {
        self.ledger().forsake(job);
    }

    /// The ledger itself, for a moment.
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Its counts are kept by single steps, none of which panics half-way.
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bk_api::BuildJobSpec;
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_place_that_got_free_before_anybody_waited_is_noticed() {
        let config = SpawnerConfig { max_in_flight: 1, ..SpawnerConfig::default() };
        let slots = Slots::new(&config);
        let job = BuildJob::new("by-hand", BuildJobSpec::default());
        slots.see(&Event::Apply(job.clone()));
        let waiting = bk_plan::intake::Candidate {
            uuid: "a".to_owned(),
            pipeline: None,
            priority: 0,
            scheduled_at: jiff::Timestamp::UNIX_EPOCH,
            rules: Vec::new(),
        };
        assert_eq!(slots.ledger().choose(0, &[waiting], Instant::now()).take, []);
        let (before, unmoved) = (slots.freed(), slots.freed());
        assert!(unmoved.now_or_never().is_none());
        slots.see(&Event::Delete(job));
        assert!(before.now_or_never().is_some());
        assert!(slots.freed().now_or_never().is_none(), "it is news once");
    }
}
