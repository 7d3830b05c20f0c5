//! Pod → what matters about it for the job.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerState as KubeState, ContainerStatus, Pod};

use crate::pod::{AGENT_CONTAINER, managed_containers};

/// What is said about a pod that somebody has deleted.
pub(crate) const DELETED: &str = "its pod was deleted";

/// What containers end with when they are stopped: killed, terminated, or cancelled by the agent (−1).
const STOPPED: [i32; 3] = [137, 143, 255];

/// How much later than a container's end, by the clocks, the deletion that caused it may have begun.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// What matters about a job pod.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The node it is on.
    pub node: Option<String>,
    /// Whether it has failed for good.
    pub failed: bool,
    /// Why the kubelet or the cluster has given it up as a whole, e.g. `Evicted`.
    pub given_up: Option<String>,
    /// Why the cluster deletes it, e.g. `PreemptionByScheduler`; people give no reasons.
    pub disrupted: Option<String>,
    /// Why it is not on a node yet.
    pub unscheduled: Option<String>,
    /// The user's init containers, those that stay on as sidecars included, in the order of their start.
    pub init: Vec<ContainerFacts>,
    /// The containers that take turns, in that order.
    pub managed: Vec<ContainerFacts>,
    /// The container that talks to Buildkite.
    pub agent: ContainerFacts,
}

/// What matters about one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Whether it is an init container that stays on, and is started again whenever it ends.
    pub sidecar: bool,
    /// What it does.
    pub state: ContainerState,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It has not started.
    Waiting {
        /// The kubelet's word for why, e.g. `ErrImagePull`.
        reason: String,
        /// The kubelet's explanation.
        message: String,
    },
    /// It runs.
    Running,
    /// It has ended.
    Ended {
        /// Its exit status.
        exit_status: i32,
        /// The kubelet's word for why, e.g. `OOMKilled`.
        reason: String,
        /// The termination message: the shim says here why it did not run the command.
        message: String,
        /// When, to the second, rounded down.
        at: Option<Timestamp>,
    },
}

impl PodFacts {
    /// Reads the facts off a pod that [`crate::pod::render`] made.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let statuses = status.container_statuses.unwrap_or_default();
        let init_statuses = status.init_container_statuses.unwrap_or_default();
        let agent = spec.containers.iter().find(|container| container.name == AGENT_CONTAINER);
        let conditions = status.conditions.unwrap_or_default();
        let told = |kind: &str, value: &str| {
            let condition = conditions.iter().find(|c| c.type_ == kind && c.status == value)?;
            Some(join_words(condition.reason.as_deref(), condition.message.as_deref()))
        };
        let reason = join_words(status.reason.as_deref(), status.message.as_deref());
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            accepted_at: status.start_time.map(|time| time.0),
            started_at: statuses.iter().filter_map(started_at).max(),
            deleting_since: deleting_since(pod),
            node: spec.node_name.clone(),
            failed: status.phase.as_deref() == Some("Failed"),
            given_up: Some(reason).filter(|reason| !reason.is_empty()),
            disrupted: told("DisruptionTarget", "True"),
            unscheduled: told("PodScheduled", "False"),
            init: spec
                .init_containers
                .iter()
                .flatten()
                .map(|container| ContainerFacts::of(container, &init_statuses))
                .collect(),
            managed: managed_containers(&spec)
                .map(|container| ContainerFacts::of(container, &statuses))
                .collect(),
            agent: ContainerFacts::of(agent.unwrap_or(&Container::default()), &statuses),
        }
    }

    /// Whether every container has started: the agent may take the job from now on.
    pub fn all_started(&self) -> bool {
        self.managed.iter().chain([&self.agent]).all(|container| !container.is_waiting())
    }

    /// Whether every managed container has ended.
    pub fn managed_ended(&self) -> bool {
        !self.managed.is_empty() && self.managed.iter().all(ContainerFacts::is_ended)
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
        let taken_away = self.is_deleting() || self.given_up.is_some();
        let failure =
            || self.init.iter().filter(|container| !container.sidecar).find_map(ContainerFacts::failure);
        if taken_away { None } else { failure() }
    }

    /// Why the pod was taken away, if it was that which ended its containers, and not the command.
    ///
    /// A pod that was given up, as by an eviction, does not say when, so the exit status decides: 0 proves
    /// nothing, as a command that is told to stop may well end in good order, half-done; any other that
    /// stopping does not lead to is the command's. A deletion has a time: what ended before is the command's.
    /// Clocks differ a little, so a status that stopping leads to is put down to a deletion just after it too.
    pub fn taken_away(&self) -> Option<&str> {
        let failure = self.first_failure();
        let stopped = self.was_stopped();
        if let Some(reason) = &self.given_up
            && (failure.is_none() || stopped)
        {
            return Some(reason);
        }
        let last_end = || self.managed.iter().filter_map(ContainerFacts::ended_at).max();
        let ended = failure.map_or_else(last_end, |(container, _)| container.ended_at());
        let began = self.deleting_since?;
        let caused = |ended: Timestamp| if stopped { ended + SKEW >= began } else { ended > began };
        ended.is_none_or(caused).then(|| self.disrupted.as_deref().unwrap_or(DELETED))
    }

    /// Whether it may yet turn out that the pod was taken away. The kubelet says that containers have ended
    /// before it says why it has stopped them.
    pub fn may_be_explained(&self) -> bool {
        let explained = self.first_failure().is_some_and(|(container, _)| container.ran_out_of_memory());
        self.was_stopped() && !self.failed && !explained
    }

    fn was_stopped(&self) -> bool {
        self.first_failure().is_some_and(|(_, status)| STOPPED.contains(&status))
    }
}

impl ContainerFacts {
    fn of(container: &Container, statuses: &[ContainerStatus]) -> Self {
        let status = statuses.iter().find(|status| status.name == container.name);
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            sidecar: container.restart_policy.as_deref() == Some("Always"),
            state: ContainerState::of(status.and_then(|status| status.state.as_ref())),
        }
    }

    /// Whether it has not started.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, ContainerState::Waiting { .. })
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ContainerState::Ended { .. })
    }

    /// Whether an init container has done what the containers after it wait for.
    pub fn lets_others_start(&self) -> bool {
        if self.sidecar { self.state == ContainerState::Running } else { self.exit_status() == Some(0) }
    }

    /// Whether it was killed because it used more memory than its limit.
    pub fn ran_out_of_memory(&self) -> bool {
        matches!(&self.state, ContainerState::Ended { reason, .. } if reason == "OOMKilled")
    }

    fn failure(&self) -> Option<(&Self, i32)> {
        self.exit_status().filter(|status| *status != 0).map(|status| (self, status))
    }

    /// Its exit status, once it has ended.
    pub fn exit_status(&self) -> Option<i32> {
        match self.state {
            ContainerState::Ended { exit_status, .. } => Some(exit_status),
            _ => None,
        }
    }

    /// When it ended, to the second, rounded down.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.state {
            ContainerState::Ended { at, .. } => at,
            _ => None,
        }
    }
}

impl ContainerState {
    fn of(state: Option<&KubeState>) -> Self {
        let state = state.cloned().unwrap_or_default();
        if let Some(ended) = state.terminated {
            return Self::Ended {
                exit_status: ended.exit_code,
                reason: ended.reason.unwrap_or_default(),
                message: ended.message.unwrap_or_default().trim().to_owned(),
                at: ended.finished_at.map(|time| time.0),
            };
        }
        if state.running.is_some() {
            return Self::Running;
        }
        let waiting = state.waiting.unwrap_or_default();
        Self::Waiting {
            reason: waiting.reason.unwrap_or_default(),
            message: waiting.message.unwrap_or_default().trim().to_owned(),
        }
    }
}

fn started_at(status: &ContainerStatus) -> Option<Timestamp> {
    let state = status.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let ended = state.terminated.as_ref().and_then(|ended| ended.started_at.as_ref());
    running.or(ended).map(|time| time.0)
}

/// The API server stamps a pod with the end of its grace period.
fn deleting_since(pod: &Pod) -> Option<Timestamp> {
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
    end.checked_sub(grace).ok()
}

fn join_words(reason: Option<&str>, message: Option<&str>) -> String {
    [reason, message].into_iter().flatten().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}
