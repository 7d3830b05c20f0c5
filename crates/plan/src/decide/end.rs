//! Once the pod or the job has ended: find out how, record it, tell who has to be told.

use bk_api::{BuildJobStatus, Phase, Verdict, VerdictCode, verdict::Course};
use jiff::SignedDuration;

use super::{Action, Case, Decision, begin, cleanup, conditions, ladder, node, pause, warning};
use crate::{facts::PodFacts, remote::RemoteState, verdicts};

/// How long the pod's own record of the end may lag behind Buildkite's.
const LAG: SignedDuration = SignedDuration::from_secs(30);

/// How much later than the end of one container the kubelet may tell of that of another which came before it.
const TOGETHER: SignedDuration = SignedDuration::from_secs(5);

/// The end that Buildkite reports, if it does.
pub(super) fn by_remote(case: &Case<'_>) -> Option<Decision> {
    let remote = case.seen.remote?;
    match remote.state {
        RemoteState::Canceled => Some(case.conclude(verdicts::canceled(case.status.phase))),
        RemoteState::TimedOut => Some(case.conclude(verdicts::timed_out())),
        RemoteState::NeverRan => Some(case.conclude(verdicts::never_ran())),
        RemoteState::Finished => Some(match &case.seen.pod {
            // Another agent ran the job to its end, and nothing ran here: the operator had slept over its reservation.
            Some(facts) if verdicts::was_refused(facts) => {
                case.conclude((Phase::Failed, verdicts::agent_elsewhere()))
            }
            Some(facts) if facts.managed_ended() => by_exit_status(case, facts),
            // The agent reports the end a moment before the kubelet does.
            Some(_) if heard_lately(case) => Decision::wait(false, LAG),
            Some(facts) if facts.is_deleting() || facts.given_up.is_some() => {
                case.lose(verdicts::lost(Some(facts)))
            }
            _ => match conditions::why_pod_taken(&case.status) {
                Some(verdict) => case.lose(verdict),
                None => case.conclude(verdicts::result_unknown()),
            },
        }),
        RemoteState::Waiting | RemoteState::Acquired | RemoteState::Canceling | RemoteState::Unknown => None,
    }
}

/// The pod has ended, or the containers that do the work have, and Buildkite has not said so yet.
pub(super) fn by_pod(case: &Case<'_>, facts: &PodFacts) -> Decision {
    // Another pod would fail in the same way. If an agent has the job, it is in another pod.
    if let Some(verdict) = verdicts::init_failed(facts)
        && case.remote_state() != Some(RemoteState::Acquired)
    {
        return case.fail_unacquired(verdict);
    }
    if case.is_standalone() {
        return standalone(case, facts);
    }
    match case.remote_since(facts.ended_at()) {
        // With its containers gone before it took the job, an agent must not take it any more.
        Some(RemoteState::Waiting) => not_acquired(case, facts),
        Some(RemoteState::Acquired) if facts.is_over() => case.end_lost(verdicts::lost(Some(facts))),
        Some(RemoteState::Unknown) if facts.is_over() => case.unknown(),
        // The agent is about to report, or we are about to hear of it.
        _ => node::give_up(case, facts).unwrap_or_else(|| {
            let mut decision = Decision::wait(true, pause::after(case, facts.ended_at()));
            warning::add(case, facts, &mut decision);
            decision
        }),
    }
}

/// The pod does not go. What became of its containers cannot be known.
pub(super) fn overdue(case: &Case<'_>, facts: &PodFacts) -> Decision {
    // Its agent, should it live, is refused if another was quicker.
    case.gone(Some(facts), begin::replace)
}

/// The containers that do the work have ended, and nobody will say more about it than they do.
fn by_exit_status(case: &Case<'_>, facts: &PodFacts) -> Decision {
    if facts.may_be_explained()
        && facts.taken_away().is_none()
        && let Some(ended) = facts.ended_at()
    {
        let left = ladder::EXPLANATION - case.seen.now.duration_since(ended);
        if left.is_positive() {
            return Decision::wait(false, left);
        }
    }
    let (phase, verdict) = verdicts::by_exit_status(facts);
    let mut decision = case.conclude((phase, verdict.clone()));
    // Buildkite has an exit status from the agent, and nothing of what is behind it.
    let is_plain = matches!(verdict.code, VerdictCode::Passed | VerdictCode::CommandFailed);
    if !is_plain && !case.is_standalone() && !conditions::is_warned(&case.status, &verdict) {
        decision.actions.push(Action::Notify(verdict));
    }
    decision
}

fn standalone(case: &Case<'_>, facts: &PodFacts) -> Decision {
    if facts.managed_ended() || facts.first_failure().is_some() {
        return by_exit_status(case, facts);
    }
    if facts.is_over() {
        // The agent ends when the others have, and the kubelet may tell of its end first.
        let told = facts.agent.ended_at().filter(|_| !facts.failed);
        let left = told.map(|ended| TOGETHER - case.seen.now.duration_since(ended)).unwrap_or_default();
        if left.is_positive() {
            return Decision::wait(false, left);
        }
        return case.conclude((Phase::Failed, verdicts::lost(Some(facts))));
    }
    Decision::wait(false, LAG)
}

/// The pod ended and no agent ever took the job: clear the way for another pod, or give up.
fn not_acquired(case: &Case<'_>, facts: &PodFacts) -> Decision {
    let attempts = case.status.attempt + 1;
    let verdict = verdicts::not_taken(Some(facts), attempts);
    if verdict.code.about().course == Course::Ends || attempts >= case.rules.max_attempts {
        return case.fail_unacquired(verdict);
    }
    let mut decision = Decision::wait(true, SignedDuration::from_secs(1));
    if let Some(removal) = cleanup::make_way(case) {
        // Once it is gone, only the record can tell that it counts as an attempt.
        let recorded = case.status.pod_name.is_some();
        decision.actions.extend((!recorded).then(|| Case::write(case.current())));
        decision.actions.push(removal);
    }
    decision
}

/// A verdict is on record, but Buildkite may not have heard it: an earlier round was cut short.
pub(super) fn settle(case: &Case<'_>, verdict: Verdict) -> Decision {
    match case.remote_state() {
        // An agent may have the job, and then this is not the way to end it.
        None if case.seen.has_session => Decision::wait(true, SignedDuration::from_secs(1)),
        None | Some(RemoteState::Waiting) if !case.is_standalone() => Decision {
            actions: vec![
                Action::FinishRemote(verdict.clone()),
                Case::write(case.ended(Phase::Failed, verdict)),
            ],
            ask_remote: true,
            look_again: Some(SignedDuration::from_secs(1)),
        },
        Some(RemoteState::Acquired) if case.seen.has_session && is_lost_cause(case) => {
            case.end_for_agent(verdict)
        }
        Some(RemoteState::Acquired) => overtaken(case),
        Some(RemoteState::Canceled) => case.conclude(verdicts::canceled(case.status.phase)),
        Some(RemoteState::TimedOut) => case.conclude(verdicts::timed_out()),
        Some(RemoteState::Finished) => match &case.seen.pod {
            // An agent was quicker than the verdict, and is done: it would not end well if it had been refused.
            Some(facts) if facts.managed_ended() && facts.agent.exit_status() == Some(0) => {
                case.conclude(verdicts::by_exit_status(facts))
            }
            // It may have been, and the kubelet has not said so yet.
            Some(facts) if facts.all_started() && !facts.is_over() && heard_lately(case) => {
                Decision::wait(false, LAG)
            }
            _ => case.conclude((Phase::Failed, verdict)),
        },
        _ => case.conclude((Phase::Failed, verdict)),
    }
}

/// Whether the agent that has the job will not end it, or not before long.
pub(super) fn is_lost_cause(case: &Case<'_>) -> bool {
    case.seen.pod.as_ref().is_none_or(|facts| {
        facts.is_over() || ladder::is_overdue(case, facts) || node::is_lost(case) || warning::is_fatal(facts)
    })
}

/// Whether the pod's own record may still lag behind Buildkite's.
fn heard_lately(case: &Case<'_>) -> bool {
    case.seen.remote.is_some_and(|remote| case.seen.now.duration_since(remote.asked_at) < LAG)
}

/// An agent took the job before Buildkite heard the verdict: what comes of the job is the agent's to say.
pub(super) fn overtaken(case: &Case<'_>) -> Decision {
    let status = BuildJobStatus { verdict: None, exit_status: None, finished_at: None, ..case.current() };
    let mut decision = Decision::wait(true, SignedDuration::from_secs(1));
    decision.actions.push(Case::write(status));
    decision
}
