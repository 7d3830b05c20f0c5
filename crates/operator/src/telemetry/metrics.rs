//! Numbers for Prometheus.
//!
//! - [`queues`]: what is taken from Buildkite's queues, and what is left there
//! - [`jobs`]: how long jobs take, and how they end
//! - [`broker`]: how agents register by way of the operator
//! - [`calls`]: what the API server and Buildkite are asked, and what they answer
//! - [`page`]: the forms in which all of it is read

mod broker;
pub(crate) mod calls;
mod jobs;
mod page;
mod queues;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, NativeHistogramConfig},
        info::Info,
    },
    registry::Registry,
};

pub(crate) use broker::Broker;
pub(crate) use calls::Calls;
pub(crate) use jobs::Jobs;
pub use page::Form;
pub(crate) use queues::{Places, Queues};

/// How many native buckets a histogram may have before it gets coarser.
const NATIVE_BUCKETS: usize = 160;

/// How old a histogram has to be to begin anew instead.
const NATIVE_RESET: Duration = Duration::from_hours(1);

/// The operator's numbers. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    pub(crate) queues: Queues,
    pub(crate) jobs: Jobs,
    pub(crate) calls: Calls,
    pub(crate) broker: Broker,
    leader: Gauge,
    config_rejected: Gauge,
    config_changes: Family<Outcome, Counter>,
    config_applied: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Registry::with_prefix("buildkite_operator");
        let leader = Gauge::default();
        all.register("build", "The operator's version", Info::new([("version", crate::VERSION)]));
        all.register("leader", "Whether this replica works, and does not stand by", leader.clone());
        let (config_rejected, config_changes) = (Gauge::default(), Family::default());
        let config_applied = Gauge::default();
        all.register(
            "config_rejected",
            "Whether the ConfigMap cannot be used as it is, so that an earlier configuration stays in force",
            config_rejected.clone(),
        );
        all.register(
            "config_changes",
            "Changes of the configuration, by what came of them",
            config_changes.clone(),
        );
        all.register(
            "config_applied_timestamp_seconds",
            "When the configuration in force took effect",
            config_applied.clone(),
        );
        Self {
            queues: Queues::new(&mut all),
            jobs: Jobs::new(&mut all),
            calls: Calls::new(&mut all),
            broker: Broker::new(&mut all),
            leader,
            config_rejected,
            config_changes,
            config_applied,
            registry: Arc::new(all),
        }
    }
}

impl Metrics {
    /// Whether this replica works.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Work begins by a configuration: the first, or a changed one.
    pub(crate) fn config_applied(&self, changed: bool, at: SystemTime) {
        self.config_applied.set(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        if changed {
            self.config_changes.get_or_create(&Outcome { outcome: "applied" }).inc();
        }
    }

    /// The ConfigMap cannot be used as it is now.
    pub(crate) fn config_rejected(&self) {
        self.config_rejected.set(1);
        self.config_changes.get_or_create(&Outcome { outcome: "rejected" }).inc();
    }

    /// The ConfigMap has a configuration that can be used.
    pub(crate) fn config_accepted(&self) {
        self.config_rejected.set(0);
    }

    /// All of them, in a form that a reader has asked for.
    pub fn page(&self, form: Form) -> Vec<u8> {
        form.write(&self.registry)
    }
}

/// A histogram of seconds, with these buckets and with native ones.
fn seconds(buckets: &[f64]) -> Histogram {
    let native =
        NativeHistogramConfig::default().max_buckets(NATIVE_BUCKETS).min_reset_duration(NATIVE_RESET);
    Histogram::new_classic_and_native(buckets.iter().copied(), native)
}

#[cfg(test)]
mod tests;
