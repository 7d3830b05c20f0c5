//! While all containers run and the agent has not registered by way of the operator: it does not get there, or does not trust what it finds.

use bk_api::Verdict;
use jiff::SignedDuration;

use super::{Case, ladder};
use crate::{facts::PodFacts, pod::BrokerAccess, remote::RemoteState, verdicts};

/// How long an agent may take to register: it does so within a second or two, or not at all.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// Whether the agent is to register, and has not.
pub(super) fn is_due(case: &Case<'_>, facts: &PodFacts) -> bool {
    broker(case, facts).is_some()
}

/// How long the agent may still take to register without anybody hearing of it.
pub(super) fn until_missed(case: &Case<'_>, facts: &PodFacts) -> Option<SignedDuration> {
    is_due(case, facts).then(|| left(case, facts)).filter(SignedDuration::is_positive)
}

/// What the job waits for if its agent should have registered by now.
pub(super) fn missed(case: &Case<'_>, facts: &PodFacts) -> Option<String> {
    let broker = broker(case, facts).filter(|_| !left(case, facts).is_positive())?;
    Some(verdicts::unregistered(&broker.url, PATIENCE.as_secs()))
}

/// The verdict on a pod that was not taken within its time, if that is because its agent has not registered.
pub(super) fn timeout(case: &Case<'_>, facts: &PodFacts, limit: SignedDuration) -> Option<Verdict> {
    let broker = broker(case, facts)?;
    Some(verdicts::registration_timeout(facts, limit.as_secs(), &broker.url))
}

/// A verdict that says where the agent was to register, if it could not.
pub(super) fn explained(case: &Case<'_>, verdict: Verdict) -> Verdict {
    let broker = case.rules.pod.broker.as_ref().filter(|_| !case.seen.has_session);
    match broker {
        Some(broker) => verdicts::by_way_of(&broker.url, verdict),
        None => verdict,
    }
}

/// Where the agent is to register, if it is, and has not.
fn broker<'a>(case: &'a Case<'_>, facts: &PodFacts) -> Option<&'a BrokerAccess> {
    let is_due = !case.seen.has_session
        && facts.all_started()
        && !facts.is_over()
        && !facts.is_deleting()
        && case.remote_state() == Some(RemoteState::Waiting);
    case.rules.pod.broker.as_ref().filter(|_| is_due)
}

fn left(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    PATIENCE - ladder::elapsed(case, facts.started_at.or(facts.created_at))
}
