//! The ladder of time limits: schedule, pull, start, run, terminate. Each rung is measured on what the objects have on
//! record, and looked at again when it ends: none depends on an event that arrives.

use jiff::{SignedDuration, Timestamp};

use super::Case;
use crate::{
    facts::{ContainerFacts, PodFacts},
    plugin,
    remote::RemoteState,
};

/// How long the kubelet may take to say why it has stopped a pod.
pub(super) const EXPLANATION: SignedDuration = SignedDuration::from_secs(10);

/// A time limit that a pod is under.
#[derive(Clone, Copy)]
pub(super) struct Rung {
    /// How long it is.
    pub(super) limit: SignedDuration,
    /// How much of it is left.
    pub(super) left: SignedDuration,
}

impl Rung {
    fn since(case: &Case<'_>, limit: SignedDuration, begin: Option<Timestamp>) -> Self {
        Self { limit, left: limit - elapsed(case, begin) }
    }
}

/// The rung that ends first while not all containers have started. Every pod has the whole time: neither a quota
/// that kept it from being created, nor the pods before it, count against it.
pub(super) fn starting(case: &Case<'_>, facts: &PodFacts) -> Rung {
    let timeouts = case.rules.timeouts;
    let Some(accepted) = facts.accepted_at else {
        return Rung::since(case, timeouts.schedule, facts.created_at);
    };
    let start = Rung::since(case, timeouts.start, Some(accepted));
    let pull = Rung::since(case, timeouts.pull, initialised_at(facts));
    if waits_for_image(facts) && pull.left < start.left { pull } else { start }
}

/// When the agent should have taken the job, once all containers have started.
pub(super) fn taken_by(case: &Case<'_>, facts: &PodFacts) -> Option<Timestamp> {
    let begin = facts.accepted_at.or(facts.created_at)?;
    begin.checked_add(case.rules.timeouts.start).ok()
}

/// The rung of a job that runs, if it has one: its own, its plugin's, or the configuration's.
pub(super) fn running(case: &Case<'_>, facts: &PodFacts) -> Option<Rung> {
    let limit = plugin::time_limit(case.seen.job).or(case.rules.timeouts.run)?;
    let recorded = case.status.started_at.as_ref().map(|time| time.0);
    Some(Rung::since(case, limit, recorded.or(facts.started_at)))
}

/// Whether the pod should have gone long ago: its node is dead, or a stranger holds it.
pub(super) fn is_overdue(case: &Case<'_>, facts: &PodFacts) -> bool {
    until_overdue(case, facts).is_some_and(|left| !left.is_positive())
}

/// Whether a container has failed, and the others, which should have followed it by now, wait for it. A container that
/// is killed together with its shim tells them nothing. Once an agent has the job, that is the agent's to notice.
pub(super) fn is_broken(case: &Case<'_>, facts: &PodFacts) -> bool {
    until_broken(case, facts).is_some_and(|left| !left.is_positive())
}

/// When it will be, if a container has failed.
pub(super) fn until_broken(case: &Case<'_>, facts: &PodFacts) -> Option<SignedDuration> {
    const FOLLOWING: SignedDuration = SignedDuration::from_secs(5);
    let (container, _) = facts.first_failure()?;
    let untaken = case.is_standalone() || case.remote_state() == Some(RemoteState::Waiting);
    untaken.then(|| FOLLOWING - elapsed(case, container.ended_at()))
}

/// How long it may still turn out that an init container was stopped with its pod, and has not failed.
pub(super) fn until_explained(case: &Case<'_>, facts: &PodFacts) -> Option<SignedDuration> {
    let left = EXPLANATION - elapsed(case, Some(facts.stopped_init()?));
    left.is_positive().then_some(left)
}

/// When it will be, if it is being deleted. A kubelet that still answers stops a pod that nobody has begun to use at
/// once: if the cluster has given up its node, there is no point in waiting for the grace period. An agent that has the job
/// may be cut off from its cluster alone, and has a little longer.
pub(super) fn until_overdue(case: &Case<'_>, facts: &PodFacts) -> Option<SignedDuration> {
    const SILENT_NODE: SignedDuration = SignedDuration::from_secs(15);
    let grace = case.rules.timeouts.terminate - elapsed(case, Some(facts.gone_by?));
    let node_lost = facts.disrupted.as_ref().is_some_and(|told| told.reason == "DeletionByTaintManager");
    let unused = case.remote_state() == Some(RemoteState::Waiting);
    let patience = if unused { SILENT_NODE } else { case.rules.timeouts.terminate };
    let silent = patience - elapsed(case, facts.deleting_since);
    Some(if node_lost { silent.min(grace) } else { grace })
}

/// How long what blocks a container may still pass. No image was wanted before there was a node, and those of
/// the containers not before the init containers were done.
pub(super) fn grace_left(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    case.rules.image_pull_grace - elapsed(case, initialised_at(facts))
}

/// How long ago that was; no time at all if it is not known.
pub(super) fn elapsed(case: &Case<'_>, since: Option<Timestamp>) -> SignedDuration {
    since.map(|since| case.seen.now.duration_since(since)).unwrap_or_default()
}

/// When the node had the pod and the init containers that have ended had.
fn initialised_at(facts: &PodFacts) -> Option<Timestamp> {
    let accepted = facts.accepted_at.or(facts.created_at);
    accepted.max(facts.init.iter().filter(|c| !c.sidecar).filter_map(ContainerFacts::ended_at).max())
}

/// Whether what the pod waits for next is a container that has not started, rather than one that runs first.
fn waits_for_image(facts: &PodFacts) -> bool {
    match facts.init.iter().find(|container| !container.lets_others_start()) {
        // One that is to be started again has its image.
        Some(container) => container.is_waiting() && container.end().is_none(),
        None => !facts.all_started(),
    }
}
