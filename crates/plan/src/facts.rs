//! Pod → what matters about it for the job.
//!
//! - [`container`]: what matters about one container
//! - [`events`]: what the cluster says about a pod beyond its status
//! - [`job_pod`]: a pod as it is kept
//! - [`node`]: what matters about the node it is on

mod container;
mod events;
mod job_pod;
mod node;

use std::{fmt, net::IpAddr};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodStatus};

use crate::{
    broker::registration,
    pod::{AGENT_CONTAINER, ARTIFACT_EXPORTER, exporter_containers, managed_containers},
};

pub use container::{ContainerFacts, ContainerState, Ended};
pub use events::PodEvent;
pub use job_pod::{Applicant, JobPod};
pub use node::NodeFacts;

/// What containers end with when they are stopped: killed, terminated, or cancelled by the agent (−1).
const STOPPED: [i32; 3] = [137, 143, 255];

/// How much later than a container's end, by the clocks, the deletion that caused it may have begun.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// What matters about a job pod. What few pods have is apart from it: there may be thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// The pod's name.
    pub name: String,
    /// The pod's id, so that a later pod of the same name is not touched by mistake.
    pub uid: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When a kubelet took it.
    pub accepted_at: Option<Timestamp>,
    /// When the last of the containers that have started did.
    pub started_at: Option<Timestamp>,
    /// When somebody asked for its deletion.
    pub deleting_since: Option<Timestamp>,
    /// When it should be gone by then.
    pub gone_by: Option<Timestamp>,
    /// The node it is on.
    pub node: Option<String>,
    /// Its address and its node's, once the kubelet has told them.
    pub addresses: Option<Box<[IpAddr]>>,
    /// Whether it has failed for good.
    pub failed: bool,
    /// Why the kubelet or the cluster has given it up as a whole, e.g. `Evicted`.
    pub given_up: Option<Box<Told>>,
    /// Why the cluster takes it away, e.g. `PreemptionByScheduler`; people give no reasons.
    pub disrupted: Option<Box<Told>>,
    /// Why it is not on a node yet.
    pub unscheduled: Option<Box<Told>>,
    /// The init containers, those that stay on as sidecars included, in the order of their start.
    pub init: Vec<ContainerFacts>,
    /// The containers that take turns, in that order.
    pub managed: Vec<ContainerFacts>,
    /// The container that talks to Buildkite.
    pub agent: ContainerFacts,
    /// The other containers: they run beside the job.
    pub beside: Vec<ContainerFacts>,
    /// Those that carry away what the job leaves, which are no concern of the job.
    pub exporters: Vec<ContainerFacts>,
    /// What the cluster says about the pod beyond its status, oldest first; empty if nobody has asked.
    pub events: Vec<PodEvent>,
}

/// What Kubernetes says about something: a word for programs and a sentence for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The word, e.g. `Evicted`.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

impl Told {
    /// What is said, if anything is.
    fn of(reason: Option<&str>, message: Option<&str>) -> Option<Box<Self>> {
        let told = Self {
            reason: reason.unwrap_or_default().trim().to_owned(),
            message: message.unwrap_or_default().trim().to_owned(),
        };
        (told != Self::default()).then(|| Box::new(told))
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.reason.is_empty() || self.message.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.reason, self.message)
    }
}

/// Why a pod was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken<'a> {
    /// The cluster says why.
    For(&'a Told),
    /// Somebody deleted it and gave no reason.
    Deleted,
}

impl PodFacts {
    /// Reads the facts off a pod that [`crate::pod::render`] made.
    pub fn of(pod: &Pod) -> Self {
        let (no_spec, no_status) = (PodSpec::default(), PodStatus::default());
        let spec = pod.spec.as_ref().unwrap_or(&no_spec);
        let status = pod.status.as_ref().unwrap_or(&no_status);
        let statuses = status.container_statuses.as_deref().unwrap_or_default();
        let init_statuses = status.init_container_statuses.as_deref().unwrap_or_default();
        let managed: Vec<_> =
            managed_containers(spec).map(|container| ContainerFacts::of(container, statuses)).collect();
        let exporters: Vec<_> =
            exporter_containers(spec).map(|container| ContainerFacts::of(container, statuses)).collect();
        let apart = |name: &str| managed.iter().chain(&exporters).any(|other| other.name == name);
        let others = spec.containers.iter().filter(|container| !apart(&container.name));
        let (agent, beside): (Vec<_>, Vec<_>) = others
            .map(|container| ContainerFacts::of(container, statuses))
            .partition(|container| container.name == AGENT_CONTAINER);
        let told = |kind: &str, value: &str| condition(status, kind, value);
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            accepted_at: status.start_time.as_ref().map(|time| time.0),
            started_at: statuses
                .iter()
                .filter(|status| exporters.iter().all(|exporter| exporter.name != status.name))
                .filter_map(container::started_at)
                .max(),
            deleting_since: deleting_since(pod),
            gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            node: spec.node_name.clone(),
            addresses: registration::addresses(status),
            failed: status.phase.as_deref() == Some("Failed"),
            given_up: Told::of(status.reason.as_deref(), status.message.as_deref()),
            disrupted: told("DisruptionTarget", "True"),
            unscheduled: told("PodScheduled", "False"),
            init: spec
                .init_containers
                .iter()
                .flatten()
                .map(|container| ContainerFacts::of(container, init_statuses))
                .collect(),
            managed,
            agent: agent.into_iter().next().unwrap_or_default(),
            beside,
            exporters,
            events: Vec::new(),
        }
    }

    /// All containers but exporters, in the order in which they matter: the first that fails explains the others.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerFacts> {
        self.init.iter().chain(&self.managed).chain([&self.agent]).chain(&self.beside)
    }

    /// Whether every container has started: the agent may take the job from now on.
    pub fn all_started(&self) -> bool {
        self.managed.iter().chain([&self.agent]).all(|container| !container.is_waiting())
    }

    /// Whether every managed container has ended.
    pub fn managed_ended(&self) -> bool {
        !self.managed.is_empty() && self.managed.iter().all(ContainerFacts::is_ended)
    }

    /// Whether nothing is left in it but an agent, if that, which leaves by itself once it has reported the end. Its node
    /// still lets it leave in its own time when the pod's record is gone.
    pub fn has_nothing_to_do(&self) -> bool {
        let ended = |containers: &[ContainerFacts]| containers.iter().all(ContainerFacts::is_ended);
        self.managed_ended() && ended(&self.beside) && ended(&self.init) && ended(&self.exporters)
    }

    /// Whether nothing uploads the job's artifacts any more, if anything did.
    pub fn artifacts_ended(&self) -> bool {
        self.exporters.iter().all(|exporter| exporter.name != ARTIFACT_EXPORTER || exporter.is_ended())
    }

    /// Whether somebody has asked for its deletion.
    pub fn is_deleting(&self) -> bool {
        self.deleting_since.is_some()
    }

    /// Whether nothing more will come from this pod.
    pub fn is_over(&self) -> bool {
        self.failed || self.agent.is_ended()
    }

    /// When the last container ended, as far as known.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.managed.iter().chain([&self.agent]).filter_map(ContainerFacts::ended_at).max()
    }

    /// The first managed container, by turn, that ended with a status other than 0.
    pub fn first_failure(&self) -> Option<(&ContainerFacts, i32)> {
        self.managed.iter().find_map(ContainerFacts::failure)
    }

    /// The init container that failed, which ends the pod before any agent has started. One that was killed
    /// with its pod has not failed: that says nothing about the job.
    pub fn failed_init(&self) -> Option<(&ContainerFacts, i32)> {
        let failure = self.init_failure()?;
        let disrupted = self.disrupted.is_some() && is_stop(failure);
        let taken_away = self.is_deleting() || self.given_up.is_some() || disrupted;
        (!taken_away).then_some(failure)
    }

    /// When an init container ended as if it had been stopped, and the kubelet may yet say why it has stopped the pod.
    pub fn stopped_init(&self) -> Option<Timestamp> {
        let failure = self.failed_init().filter(|failure| is_stop(*failure) && !self.failed)?;
        failure.0.ended_at()
    }

    fn init_failure(&self) -> Option<(&ContainerFacts, i32)> {
        self.init.iter().filter(|container| !container.sidecar).find_map(ContainerFacts::failure)
    }

    /// Why the pod was taken away, if it was that which ended its containers, and not the command.
    ///
    /// A pod that was given up, as by an eviction, does not say when, so the exit status decides: 0 proves
    /// nothing, as a command that is told to stop may well end in good order, half-done; any other that
    /// stopping does not lead to is the command's. A deletion has a time: what ended before is the command's.
    /// Clocks differ a little, so a status that stopping leads to is put down to a deletion just after it too.
    pub fn taken_away(&self) -> Option<Taken<'_>> {
        let failure = self.first_failure();
        let stopped = self.was_stopped();
        if let Some(told) = &self.given_up
            && (failure.is_none() || stopped)
        {
            return Some(Taken::For(told));
        }
        // Containers take turns: as long as one of them runs, those that are done have not ended the job.
        let ends = || self.managed.iter().filter_map(ContainerFacts::ended_at);
        let last_end = || self.managed_ended().then(|| ends().max()).flatten();
        let ended = failure.map_or_else(last_end, |(container, _)| container.ended_at());
        let began = self.deleting_since?;
        let killed_anyway = failure.is_some_and(|(container, _)| container.ran_out_of_memory());
        let skew = if stopped && !killed_anyway { SKEW } else { SignedDuration::ZERO };
        let caused = |ended: Timestamp| if skew.is_zero() { ended > began } else { ended + skew >= began };
        ended.is_none_or(caused).then(|| self.disrupted.as_deref().map_or(Taken::Deleted, Taken::For))
    }

    /// Whether it may yet turn out that the pod was taken away. The kubelet says that containers have ended
    /// before it says why it has stopped them.
    pub fn may_be_explained(&self) -> bool {
        self.first_failure().is_some_and(is_stop) && !self.failed
    }

    fn was_stopped(&self) -> bool {
        self.first_failure().is_some_and(|(_, status)| STOPPED.contains(&status))
    }
}

/// Whether a failure may come from being stopped; who runs out of memory is not.
fn is_stop((container, status): (&ContainerFacts, i32)) -> bool {
    STOPPED.contains(&status) && !container.ran_out_of_memory()
}

/// What a condition with this value says, if the pod has it.
fn condition(status: &PodStatus, kind: &str, value: &str) -> Option<Box<Told>> {
    let is_it = |condition: &&PodCondition| condition.type_ == kind && condition.status == value;
    let condition = status.conditions.iter().flatten().find(is_it)?;
    Some(Told::of(condition.reason.as_deref(), condition.message.as_deref()).unwrap_or_default())
}

/// The API server stamps a pod with the end of its grace period.
fn deleting_since(pod: &Pod) -> Option<Timestamp> {
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
    end.checked_sub(grace).ok()
}
