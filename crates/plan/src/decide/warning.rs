//! What Buildkite is told before the end: that a container was killed for its memory. An agent that has the job takes up
//! to half a minute to notice that a container is gone, and then knows no more than that. If the container does the job's work, and the operator
//! can speak for the agent, that is the end.

use super::{Action, Case, Decision, conditions, pause};
use crate::{
    facts::{ContainerFacts, PodFacts},
    remote::RemoteState,
    verdicts,
};

/// Adds the warning, once it is certain that an agent still has the job; it is told once. Most of the time the agent ends
/// the job at once: then the end says it.
pub(super) fn add(case: &Case<'_>, facts: &PodFacts, decision: &mut Decision) {
    if case.remote_state() != Some(RemoteState::Acquired) {
        return;
    }
    let Some((verdict, ended)) = verdicts::memory_exhausted(facts) else {
        return;
    };
    if conditions::is_warned(&case.status, &verdict) {
        return;
    }
    if case.remote_since(ended) == Some(RemoteState::Acquired) {
        if case.seen.has_session && is_fatal(facts) {
            *decision = case.end_lost(verdict);
            return;
        }
        let mut status = case.current();
        conditions::warned(case, &mut status, &verdict);
        // All that a status could say is in this one.
        decision.actions = vec![Case::write(status), Action::Notify(verdict)];
    } else {
        decision.ask_remote = true;
        let pause = Some(pause::after(case, ended));
        decision.look_again = decision.look_again.min(pause).or(pause);
    }
}

/// Whether a container that does the job's work was killed for its memory: the job cannot but fail.
pub(super) fn is_fatal(facts: &PodFacts) -> bool {
    facts.managed.iter().any(ContainerFacts::ran_out_of_memory)
}
