//! What matters about one container.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as KubeState, ContainerStateTerminated, ContainerStatus,
};

use crate::pod::is_sidecar;

/// What matters about one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Whether it is an init container that stays on, and is started again whenever it ends.
    pub sidecar: bool,
    /// What it does.
    pub state: ContainerState,
    /// Whether its startup probe has passed; also true if it runs and has none.
    pub ready: bool,
    /// How often it was started again.
    pub restarts: i32,
    /// How it ended the last time, if it was started again since or is about to be.
    pub last_end: Option<Box<Ended>>,
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
    Ended(Box<Ended>),
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status.
    pub exit_status: i32,
    /// The kubelet's word for why, e.g. `OOMKilled`.
    pub reason: String,
    /// The termination message: the shim says here why it did not run the command.
    pub message: String,
    /// When, to the second, rounded down.
    pub at: Option<Timestamp>,
}

impl Default for ContainerState {
    fn default() -> Self {
        Self::Waiting { reason: String::new(), message: String::new() }
    }
}

impl ContainerFacts {
    pub(super) fn of(container: &Container, statuses: &[ContainerStatus]) -> Self {
        let status = statuses.iter().find(|status| status.name == container.name);
        let last_end = status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            sidecar: is_sidecar(container),
            state: ContainerState::of(status.and_then(|status| status.state.as_ref())),
            ready: status.is_some_and(|status| status.started.unwrap_or(status.ready)),
            restarts: status.map_or(0, |status| status.restart_count),
            last_end: last_end.map(Ended::of).map(Box::new),
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
        if self.sidecar {
            self.state == ContainerState::Running && self.ready
        } else {
            self.exit_status() == Some(0)
        }
    }

    /// Whether it was killed because it used more memory than its limit. A container may lose a process that
    /// way and end well all the same.
    pub fn ran_out_of_memory(&self) -> bool {
        self.end().is_some_and(|end| end.reason == "OOMKilled" && end.exit_status != 0)
    }

    /// Whether the runtime could not execute what it was to run.
    pub fn could_not_be_executed(&self) -> bool {
        self.end().is_some_and(|end| matches!(end.reason.as_str(), "StartError" | "ContainerCannotRun"))
    }

    /// How it ended, or how it did the last time if it is to be started again.
    pub fn end(&self) -> Option<&Ended> {
        match &self.state {
            ContainerState::Ended(end) => Some(end),
            ContainerState::Waiting { .. } | ContainerState::Running => self.last_end.as_deref(),
        }
    }

    /// Itself and its exit status, once it has ended with another than 0.
    pub fn failure(&self) -> Option<(&Self, i32)> {
        self.exit_status().filter(|status| *status != 0).map(|status| (self, status))
    }

    /// Its exit status, once it has ended.
    pub fn exit_status(&self) -> Option<i32> {
        match &self.state {
            ContainerState::Ended(end) => Some(end.exit_status),
            _ => None,
        }
    }

    /// When it ended, to the second, rounded down.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match &self.state {
            ContainerState::Ended(end) => end.at,
            _ => None,
        }
    }
}

impl ContainerState {
    fn of(state: Option<&KubeState>) -> Self {
        let Some(state) = state else {
            return Self::default();
        };
        if let Some(ended) = &state.terminated {
            return Self::Ended(Box::new(Ended::of(ended)));
        }
        if state.running.is_some() {
            return Self::Running;
        }
        let waiting = state.waiting.as_ref();
        let text = |text: Option<&String>| text.map(|text| text.trim().to_owned()).unwrap_or_default();
        Self::Waiting {
            reason: text(waiting.and_then(|waiting| waiting.reason.as_ref())),
            message: text(waiting.and_then(|waiting| waiting.message.as_ref())),
        }
    }
}

impl Ended {
    fn of(ended: &ContainerStateTerminated) -> Self {
        Self {
            exit_status: ended.exit_code,
            reason: ended.reason.clone().unwrap_or_default(),
            message: ended.message.as_deref().unwrap_or_default().trim().to_owned(),
            at: ended.finished_at.as_ref().map(|time| time.0),
        }
    }
}

/// When a container was started, if it was.
pub(super) fn started_at(status: &ContainerStatus) -> Option<Timestamp> {
    let state = status.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let ended = state.terminated.as_ref().and_then(|ended| ended.started_at.as_ref());
    running.or(ended).map(|time| time.0)
}
