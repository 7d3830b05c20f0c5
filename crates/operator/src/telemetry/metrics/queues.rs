//! What is taken from Buildkite's queues, and what is left there.

use std::{sync::atomic::AtomicU64, time::Duration};

use bk_plan::intake::Skip;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The numbers of all queues. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Queues {
    taken: Family<OfQueue, Counter>,
    skipped: Family<Reason, Counter>,
    waiting: Family<OfQueue, Gauge>,
    in_flight: Family<OfQueue, Gauge>,
    limit: Family<OfQueue, Gauge>,
    free: Family<OfQueue, Gauge>,
    listings: Family<OfQueue, Counter>,
    failures: Family<OfQueue, Counter>,
    connected: Family<OfQueue, Gauge>,
    pause: Family<OfQueue, Gauge<f64, AtomicU64>>,
}

/// The places for jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// How many jobs of it are under way, or about to be.
    pub(crate) taken: usize,
    /// How many there may be.
    pub(crate) limit: usize,
    /// How many more could be taken now.
    pub(crate) free: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    queue: String,
    reason: &'static str,
}

fn of(queue: &str) -> OfQueue {
    OfQueue { queue: queue.to_owned() }
}

impl Queues {
    pub(super) fn new(all: &mut Registry) -> Self {
        let queues = Self::default();
        all.register("jobs_taken", "Jobs that were taken from a queue", queues.taken.clone());
        all.register(
            "jobs_skipped",
            "Jobs that were left in a queue; each is counted once for each reason in a row",
            queues.skipped.clone(),
        );
        all.register("jobs_waiting", "Jobs in the last listing of a queue", queues.waiting.clone());
        all.register(
            "jobs_in_flight",
            "BuildJobs of a queue that are under way, or about to be",
            queues.in_flight.clone(),
        );
        all.register("slots_limit", "How many jobs of a queue may be under way", queues.limit.clone());
        all.register("slots_free", "How many more jobs of a queue could be taken now", queues.free.clone());
        all.register("listings", "Listings of a queue", queues.listings.clone());
        all.register("intake_failures", "Rounds of intake that failed", queues.failures.clone());
        all.register(
            "queue_connected",
            "Whether the last listing of a queue succeeded",
            queues.connected.clone(),
        );
        all.register(
            "intake_pause_seconds",
            "The pause after the last failure, 0 after a success",
            queues.pause.clone(),
        );
        queues
    }

    /// A queue is to be served: what is counted begins with 0, so that its first increase is seen.
    pub(crate) fn serve(&self, queue: &str) {
        for family in [&self.taken, &self.listings, &self.failures] {
            family.get_or_create(&of(queue)).inc_by(0);
        }
        self.connected.get_or_create(&of(queue)).set(0);
        self.pause.get_or_create(&of(queue)).set(0.0);
    }

    /// A queue is served no longer: nothing is known of how it stands. What has happened in it stays counted.
    pub(crate) fn forget(&self, queue: &str) {
        for gauges in [&self.waiting, &self.in_flight, &self.limit, &self.free, &self.connected] {
            gauges.remove(&of(queue));
        }
        self.pause.remove(&of(queue));
    }

    /// A queue was listed: so many jobs waited, and so many of them are taken now.
    pub(crate) fn listed(&self, queue: &str, waiting: usize, taken: usize, places: Places) {
        let gauge = |family: &Family<OfQueue, Gauge>, value: usize| {
            family.get_or_create(&of(queue)).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.waiting, waiting);
        gauge(&self.in_flight, places.taken);
        gauge(&self.limit, places.limit);
        gauge(&self.free, places.free);
        gauge(&self.connected, 1);
        self.pause.get_or_create(&of(queue)).set(0.0);
        self.listings.get_or_create(&of(queue)).inc();
        self.taken.get_or_create(&of(queue)).inc_by(taken as u64);
    }

    /// A job was left in its queue.
    pub(crate) fn skipped(&self, queue: &str, reason: Skip) {
        let labels = Reason { queue: queue.to_owned(), reason: reason.as_str() };
        self.skipped.get_or_create(&labels).inc();
    }

    /// A round of intake failed.
    pub(crate) fn failed(&self, queue: &str, pause: Duration) {
        self.failures.get_or_create(&of(queue)).inc();
        self.connected.get_or_create(&of(queue)).set(0);
        self.pause.get_or_create(&of(queue)).set(pause.as_secs_f64());
    }
}
