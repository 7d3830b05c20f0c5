//! While the pod's node is silent, deleted, or about to go. Without a word from the node, what the cluster does about the pod decides.

use bk_api::{VerdictCode, config::NodeLeaving};
use jiff::SignedDuration;

use super::{Action, Case, Decision, ladder, start};
use crate::{
    facts::{NodeFacts, PodFacts},
    remote::RemoteState,
    verdicts,
};

/// How soon to ask again for an eviction: a budget of the cluster's may be against it for now.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What the node's state leads to, if it leads to anything.
pub(super) fn heed(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    if let Some((node, left)) = until_lost(case) {
        return lose(case, facts, node, left);
    }
    leave(case, facts)
}

/// What it leads to that the node has been silent for too long, once the containers that do the work have ended and nothing but the agent's word is
/// waited for.
pub(super) fn give_up(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    let (node, left) = until_lost(case)?;
    if left.is_positive() { None } else { lose(case, facts, node, left) }
}

/// Whether the node has been silent for too long, or is silent and has been found to be lost: whoever has taken over counts anew from then.
pub(super) fn is_lost(case: &Case<'_>) -> bool {
    let is_found = case.status.verdict.as_ref().is_some_and(|verdict| verdict.code == VerdictCode::NodeLost);
    until_lost(case).is_some_and(|(_, left)| is_found || !left.is_positive())
}

/// The node, and how long it may still be silent, if it is, and if it matters: whoever cannot speak for the agent can do nothing about its job, and a pod
/// whose job nobody has is replaced when the cluster takes it away.
fn until_lost<'a>(case: &Case<'a>) -> Option<(&'a NodeFacts, SignedDuration)> {
    let node = case.seen.node.as_ref()?;
    let since = node.silent_since?;
    let matters = case.seen.has_session && case.remote_state() == Some(RemoteState::Acquired);
    let patience = SignedDuration::from_secs(case.rules.pod.config.node_loss_seconds.into());
    matters.then(|| (node, patience - ladder::elapsed(case, Some(since))))
}

fn lose(case: &Case<'_>, facts: &PodFacts, node: &NodeFacts, left: SignedDuration) -> Option<Decision> {
    if left.is_positive() {
        let mut decision = start::decide(case, facts);
        decision.look_again = Some(decision.look_again.map_or(left, |look| look.min(left)));
        return Some(decision);
    }
    match case.fresh_remote() {
        None => Some(Decision::wait(true, SignedDuration::from_secs(1))),
        Some(RemoteState::Acquired) => Some(case.end_lost(verdicts::node_lost(facts, node))),
        Some(_) => None,
    }
}

/// The node says that it is about to go.
fn leave(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    let interrupts = case.rules.pod.config.node_leaving == NodeLeaving::Interrupt;
    let node = case.seen.node.as_ref().filter(|_| interrupts)?;
    node.leaving.as_ref().filter(|_| !facts.is_deleting())?;
    let mut decision = start::decide(case, facts);
    decision.actions.push(Action::EvictPod { name: facts.name.clone(), uid: facts.uid.clone() });
    decision.look_again = Some(decision.look_again.map_or(AGAIN, |look| look.min(AGAIN)));
    Some(decision)
}
