//! What keeps a pod from starting.

use bk_api::{Verdict, VerdictCode, verdict::Course};

use super::{container, evidence, secrets};
use crate::facts::{ContainerFacts, ContainerState, PodEvent, PodFacts};

/// What keeps a pod from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The reason, ready to be reported.
    pub verdict: Verdict,
    /// Whether waiting cannot help.
    pub permanent: bool,
    /// Whether it may not be so: an answer that did not come may have been a yes.
    pub doubtful: bool,
}

impl Blocker {
    /// Whether waiting can help is a matter of the code.
    pub(super) fn new(verdict: Verdict) -> Self {
        Self { permanent: verdict.code.about().course == Course::Ends, doubtful: false, verdict }
    }
}

/// What keeps the pod from starting, if it is more than a matter of time.
pub fn blocker(facts: &PodFacts) -> Option<Blocker> {
    // A sidecar that cannot be started again later is no concern of the start.
    if facts.all_started() {
        return None;
    }
    let blocker = init_failed(facts)
        .map(|verdict| Blocker { permanent: true, ..Blocker::new(verdict) })
        .or_else(|| facts.containers().find_map(container::blocked))
        .or_else(|| mount_problem(facts).filter(|blocker| blocker.permanent))?;
    Some(Blocker { verdict: evidence::from(facts, blocker.verdict), ..blocker })
}

/// An init container failed: no agent has started, and none will.
pub fn init_failed(facts: &PodFacts) -> Option<Verdict> {
    let (container, status) = facts.failed_init()?;
    Some(evidence::from(facts, container::init_ended(container, status)))
}

/// A volume that cannot be mounted shows in events alone: the containers merely wait to be created.
fn mount_problem(facts: &PodFacts) -> Option<Blocker> {
    let about_mounts = |event: &&PodEvent| {
        matches!(event.reason.as_str(), "FailedMount" | "FailedAttachVolume" | "FailedMapVolume")
    };
    let PodEvent { reason, message, .. } = facts.events.iter().rev().find(about_mounts)?;
    let code = if container::is_missing(message) {
        VerdictCode::MissingReference
    } else {
        VerdictCode::VolumeNotMounted
    };
    let text = secrets::hidden(&format!("a volume of the pod cannot be mounted: {reason}: {message}"));
    Some(Blocker::new(Verdict::new(code, text)))
}

/// The pod did not start within its time.
pub fn start_timeout(facts: Option<&PodFacts>, seconds: i64) -> Verdict {
    let Some(facts) = facts else {
        let message = format!("the job did not start within {seconds} s; it was waiting for its pod");
        return Verdict::new(VerdictCode::StartTimeout, message);
    };
    let waiting = waiting_for(facts).unwrap_or_else(|| "its agent to take it".to_owned());
    let message = format!("the job did not start within {seconds} s; it was waiting for {waiting}");
    evidence::from(facts, Verdict::new(timeout_code(facts), message))
}

fn timeout_code(facts: &PodFacts) -> VerdictCode {
    if facts.unscheduled.is_some() {
        return VerdictCode::Unschedulable;
    }
    if let Some(blocker) = blocker(facts).or_else(|| mount_problem(facts)) {
        return blocker.verdict.code;
    }
    match holding_up(facts) {
        Some(container) if is_being_pulled(facts, container) => VerdictCode::ImagePullTimeout,
        Some(container) if container.sidecar && has_run(container) => VerdictCode::SidecarFailed,
        _ => VerdictCode::StartTimeout,
    }
}

fn has_run(container: &ContainerFacts) -> bool {
    !container.is_waiting() || container.end().is_some()
}

/// Whether the image that a container waits for is on its way.
fn is_being_pulled(facts: &PodFacts, container: &ContainerFacts) -> bool {
    let quoted = format!("\"{}\"", container.image);
    let about = |event: &&PodEvent| {
        matches!(event.reason.as_str(), "Pulling" | "Pulled" | "Failed") && event.message.contains(&quoted)
    };
    container.is_waiting() && facts.events.iter().rfind(about).is_some_and(|event| event.reason == "Pulling")
}

/// What the pod waits for, in a few words.
pub fn waiting_for(facts: &PodFacts) -> Option<String> {
    if let Some(told) = &facts.unscheduled {
        return Some(format!("a node ({})", secrets::hidden(&told.to_string())));
    }
    if let Some(blocker) = blocker(facts) {
        return Some(blocker.verdict.message);
    }
    let container = holding_up(facts)?;
    if let Some(problem) = mount_problem(facts) {
        return Some(problem.verdict.message);
    }
    let ContainerFacts { name, image, .. } = container;
    Some(match &container.state {
        _ if is_being_pulled(facts, container) => format!("image {image} of container {name} to be pulled"),
        ContainerState::Waiting { reason, .. } if !reason.is_empty() => {
            format!("container {name} ({reason})")
        }
        ContainerState::Running if container.sidecar => format!("sidecar {name} to become ready"),
        _ => format!("container {name}"),
    })
}

/// The container that the others wait for, or that has not started itself.
fn holding_up(facts: &PodFacts) -> Option<&ContainerFacts> {
    if facts.all_started() {
        return None;
    }
    facts
        .init
        .iter()
        .find(|container| !container.lets_others_start())
        .or_else(|| facts.managed.iter().chain([&facts.agent]).find(|container| container.is_waiting()))
}
