//! After the end: the pod goes, then the BuildJob.

use bk_api::{BuildJobStatus, Phase, names::ANNOTATION_FOLLOWED};
use jiff::SignedDuration;

use super::{Action, Case, Decision, end, exporting};
use crate::{facts::PodFacts, remote::RemoteState};

/// How long the pod stays after the job's end for somebody who reads its log and has not said that it may go.
const READING: SignedDuration = SignedDuration::from_secs(30);

/// How soon to look again at a job that its agent is to end.
const SOON: SignedDuration = SignedDuration::from_secs(5);

pub(super) fn decide(case: &Case<'_>) -> Decision {
    let mut decision = clear_away(case);
    end_unsaid(case, &mut decision);
    decision
}

/// The job has run for too long: its agent is stopped with its pod, and reports the end. One that is lost meanwhile is spoken for.
fn end_unsaid(case: &Case<'_>, decision: &mut Decision) {
    let is_open = matches!(case.remote_state(), None | Some(RemoteState::Acquired));
    if case.status.phase != Phase::TimedOut || !case.seen.has_session || !is_open {
        return;
    }
    let word = match &case.seen.pod {
        Some(facts) => case.remote_since(facts.ended_at()),
        None => case.fresh_remote(),
    };
    if let Some(verdict) = &case.status.verdict
        && word == Some(RemoteState::Acquired)
        && end::is_lost_cause(case)
    {
        decision.actions.insert(0, Action::EndForAgent(verdict.clone()));
    }
    decision.ask_remote = true;
    decision.look_again = Some(decision.look_again.map_or(SOON, |look| look.min(SOON)));
}

fn clear_away(case: &Case<'_>) -> Decision {
    let phase = case.status.phase;
    if let Some(decision) = exporting::wait(case) {
        return decision;
    }
    let left = time_to_live(case, phase) - since_end(case);
    let mut decision = leave(case, phase, left);
    decision.actions.splice(0..0, exporting::report(case, !left.is_positive()));
    decision
}

/// Once nobody carries anything away any more.
fn leave(case: &Case<'_>, phase: Phase, left: SignedDuration) -> Decision {
    // A pod that does not go, because its node is dead or a stranger holds it, does not hold the BuildJob.
    if !left.is_positive() {
        return Decision { actions: remove_all(case, None), ..Decision::default() };
    }
    if let Some(reading) = reading_left(case) {
        return Decision::wait(false, left.min(reading));
    }
    let stays = case
        .seen
        .pod
        .as_ref()
        .filter(|_| case.rules.keep_pod_on_failure && matches!(phase, Phase::Failed | Phase::TimedOut));
    match stays.map(|facts| running_on(case, facts)) {
        Some(Some(leaving)) if leaving.is_positive() => Decision::wait(false, left.min(leaving)),
        Some(None) => Decision::wait(false, left),
        // One that still runs has to be stopped.
        _ => Decision { actions: remove_workload(case).into_iter().collect(), ..Decision::wait(false, left) },
    }
}

/// How long a pod that is to be kept may still run, if it does: an agent reports the end, and then leaves by itself.
fn running_on(case: &Case<'_>, facts: &PodFacts) -> Option<SignedDuration> {
    const LEAVING: SignedDuration = SignedDuration::from_secs(30);
    if facts.failed || (facts.managed_ended() && facts.agent.is_ended()) {
        return None;
    }
    Some(if facts.managed_ended() { LEAVING - since_end(case) } else { SignedDuration::ZERO })
}

/// The BuildJob and its pod go in one round. If the operator ends in between, the pod loses its owner and goes as well.
pub(super) fn remove_all(case: &Case<'_>, unrecorded: Option<Box<BuildJobStatus>>) -> Vec<Action> {
    [Action::DeleteJob { unrecorded }].into_iter().chain(remove_workload(case)).collect()
}

/// Removes what ran a job that is over.
pub(super) fn remove_workload(case: &Case<'_>) -> Option<Action> {
    removal(case, case.seen.pod.as_ref().is_some_and(PodFacts::has_nothing_to_do))
}

/// Removes what did not run the job, and is gone only when its agent cannot take the job any more.
pub(super) fn make_way(case: &Case<'_>) -> Option<Action> {
    removal(case, false)
}

/// The deletion of the pod, or of the Job around it, unless there is none or it is on its way out.
fn removal(case: &Case<'_>, at_once: bool) -> Option<Action> {
    if let Some(batch) = &case.seen.batch {
        let (name, uid) = (batch.name.clone(), batch.uid.clone());
        return (!batch.is_deleting).then_some(Action::DeleteBatchJob { name, uid });
    }
    let facts = case.seen.pod.as_ref().filter(|facts| !facts.is_deleting())?;
    Some(Action::DeletePod { name: facts.name.clone(), uid: facts.uid.clone(), at_once })
}

/// How long the BuildJob stays after such an end. Those that came from a queue need leave no trace here if all
/// went well: their record is in Buildkite.
pub(super) fn time_to_live(case: &Case<'_>, phase: Phase) -> SignedDuration {
    match phase {
        Phase::Succeeded | Phase::Canceled if case.seen.job.is_spawned() => case.rules.succeeded_ttl,
        _ => case.rules.failed_ttl,
    }
}

/// How long the pod may stay for a reader of its log. One that was stopped is not waited for.
fn reading_left(case: &Case<'_>) -> Option<SignedDuration> {
    let is_followed =
        case.seen.job.metadata.annotations.iter().flatten().any(|(key, _)| key == ANNOTATION_FOLLOWED);
    let has_ended = matches!(case.status.phase, Phase::Succeeded | Phase::Failed) && case.seen.pod.is_some();
    Some(READING - since_end(case)).filter(|left| is_followed && has_ended && left.is_positive())
}

/// How long ago the job ended.
pub(super) fn since_end(case: &Case<'_>) -> SignedDuration {
    case.status.finished_at.as_ref().map(|time| case.seen.now.duration_since(time.0)).unwrap_or_default()
}
