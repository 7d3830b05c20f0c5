//! A controller between Buildkite and a cluster, seen from outside: what Buildkite, the API server and the kernel tell of it.
//! So any controller can be measured, not ours alone.
//!
//! - [`stage`]: a namespace, a Buildkite and nodes for one measurement
//! - [`command`]: how a controller is started
//! - [`front`]: TLS before a Buildkite
//! - [`pods`], [`calls`], [`meter`]: what is seen of it
//! - [`agents`]: the agents of pods that only seem to run

mod agents;
mod broker;
mod calls;
mod cold_start;
mod command;
mod front;
mod idle;
mod kubelet;
mod latency;
mod memory;
mod meter;
mod pods;
mod promptness;
mod registrations;
mod stage;
mod takeover;
mod throughput;

use anyhow::Result;

pub(crate) use self::command::Command;
pub(crate) use self::stage::Setup;
use crate::figures::Line;

/// How many nodes kwok plays.
const NODES: usize = 100;

/// One of the measurements.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Throughput,
    Latency,
    Memory,
    Idle,
    ColdStart,
    Kubelet,
    Promptness,
    Takeover,
    Broker,
    Registrations,
}

impl Part {
    /// All of them, those first that are disturbed most by what others leave behind.
    pub(crate) const ALL: [Self; 10] = [
        Self::Idle,
        Self::Kubelet,
        Self::Broker,
        Self::Promptness,
        Self::Latency,
        Self::Memory,
        Self::Takeover,
        Self::Registrations,
        Self::Throughput,
        Self::ColdStart,
    ];

    /// Its name. `cargo xtask bench` starts a cluster for names that begin like these.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "operator-throughput",
            Self::Latency => "operator-latency",
            Self::Memory => "operator-memory",
            Self::Idle => "operator-idle",
            Self::ColdStart => "operator-cold-start",
            Self::Kubelet => "operator-kubelet",
            Self::Promptness => "operator-promptness",
            Self::Takeover => "operator-takeover",
            Self::Broker => "operator-broker",
            Self::Registrations => "operator-broker-registrations",
        }
    }

    /// Whether it says something about a controller. BuildJobs, verdicts, replicas that stand by and the broker are the operator's own.
    pub(crate) fn fits(self, command: &Command) -> bool {
        let is_general =
            matches!(self, Self::Throughput | Self::Latency | Self::Memory | Self::Idle | Self::Kubelet);
        command.is_ours() || is_general
    }

    /// Measures a controller.
    pub(crate) async fn run(self, setup: &Setup, command: &Command) -> Result<Vec<Line>> {
        match self {
            Self::Throughput => throughput::run(setup, command).await,
            Self::Latency => latency::run(setup, command).await,
            Self::Memory => memory::run(setup, command).await,
            Self::Idle => idle::run(setup, command).await,
            Self::ColdStart => cold_start::run(setup, command).await,
            Self::Kubelet => kubelet::run(setup, command).await,
            Self::Promptness => promptness::run(setup, command).await,
            Self::Takeover => takeover::run(setup, command).await,
            Self::Broker => broker::run(setup, command).await,
            Self::Registrations => registrations::run(setup, command).await,
        }
    }
}
