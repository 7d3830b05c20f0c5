//! What Buildkite is told before the end: that a container was killed for its memory. An agent that has the job takes up
//! to half a minute to notice that a container is gone, and then knows no more than that. If the container does the job's work, and the operator
//! can speak for the agent, that is the end.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Case, Decision, conditions, ladder, not_at_once, pause};
use crate::{
    facts::{ContainerFacts, PodFacts},
    remote::RemoteState,
    verdicts,
};

/// How long artifacts may take after a container was killed, before the job is ended for its agent. The agent itself takes a little longer.
const UPLOADING: SignedDuration = SignedDuration::from_secs(20);

/// Adds the warning, once it is certain that an agent still has the job; it is told once. Most of the time the agent ends
/// the job at once: then the end says it.
pub(super) fn add(case: &Case<'_>, facts: &PodFacts, decision: &mut Decision) {
    if case.remote_state() != Some(RemoteState::Acquired) {
        return;
    }
    let Some((verdict, ended)) = verdicts::memory_exhausted(facts) else {
        return;
    };
    let is_warned = conditions::is_warned(&case.status, &verdict);
    let is_end = case.seen.has_session && is_fatal(facts);
    if is_warned && !is_end {
        return;
    }
    if case.remote_since(ended) != Some(RemoteState::Acquired) {
        decision.ask_remote = true;
        return look_again(decision, pause::after(case, ended));
    }
    let left = uploading_left(case, facts, ended);
    if is_end && !left.is_positive() {
        *decision = case.end_lost(verdict);
        return;
    }
    if !is_warned {
        let mut status = case.current();
        conditions::warned(case, &mut status, &verdict);
        // All that a status could say is in this one.
        decision.actions = vec![Case::write(status), Action::Notify(verdict)];
    }
    if is_end {
        decision.ask_remote = true;
        look_again(decision, left);
    }
}

fn look_again(decision: &mut Decision, wait: SignedDuration) {
    let wait = Some(not_at_once(wait));
    decision.look_again = decision.look_again.min(wait).or(wait);
}

/// How long what the job has written may still be uploaded, if it is: Buildkite takes no artifact of a job that has ended.
fn uploading_left(case: &Case<'_>, facts: &PodFacts, ended: Option<Timestamp>) -> SignedDuration {
    if facts.artifacts_ended() {
        return SignedDuration::ZERO;
    }
    UPLOADING - ladder::elapsed(case, ended)
}

/// Whether a container that does the job's work was killed for its memory: the job cannot but fail.
pub(super) fn is_fatal(facts: &PodFacts) -> bool {
    facts.managed.iter().any(ContainerFacts::ran_out_of_memory)
}
