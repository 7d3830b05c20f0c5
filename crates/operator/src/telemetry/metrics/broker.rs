//! Registrations of agents by way of the operator, and ends of jobs for them.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{Outcome, seconds};

/// How long registrations take, in seconds: a few milliseconds here, and what Buildkite needs.
const BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// The numbers of the broker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Broker {
    registrations: Family<Outcome, Counter>,
    registration_seconds: Histogram,
    turned_away: Counter,
    ends: Family<End, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    verdict: &'static str,
    outcome: &'static str,
}

impl Broker {
    pub(super) fn new(all: &mut Registry) -> Self {
        let broker = Self {
            registrations: Family::default(),
            registration_seconds: seconds(&BUCKETS),
            turned_away: Counter::default(),
            ends: Family::default(),
        };
        all.register(
            "registrations",
            "Agents that asked to be registered, by what came of it",
            broker.registrations.clone(),
        );
        all.register(
            "registration_seconds",
            "How long it took to register an agent",
            broker.registration_seconds.clone(),
        );
        all.register(
            "broker_connections_refused",
            "Connections to where agents register that were closed at once, as there were too many, in all or of one address, or too many in vain",
            broker.turned_away.clone(),
        );
        all.register(
            "jobs_ended_for_agents",
            "Jobs that the operator has ended for agents that could not, by verdict; those that turned out to have ended are settled",
            broker.ends.clone(),
        );
        broker
    }

    /// An agent has asked to be registered, and this came of it.
    pub(crate) fn registered(&self, outcome: &'static str, took: Duration) {
        self.registrations.get_or_create(&Outcome { outcome }).inc();
        self.registration_seconds.observe(took.as_secs_f64());
    }

    /// Somebody was not let in: there were too many connections, in all or of one address, or it has come too often in vain.
    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }

    /// A job was ended for its agent, or turned out to be settled.
    pub(crate) fn ended(&self, verdict: &'static str, settled: bool) {
        let outcome = if settled { "settled" } else { "ended" };
        self.ends.get_or_create(&End { verdict, outcome }).inc();
    }
}
