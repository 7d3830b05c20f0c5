//! After the end: the pod goes, then the BuildJob.

use bk_api::{BuildJobStatus, Phase, names::LABEL_SPAWNED_FROM};
use jiff::SignedDuration;

use super::{Action, Case, Decision};

pub(super) fn decide(case: &Case<'_>) -> Decision {
    let phase = case.status.phase;
    let left = time_to_live(case, phase) - since_end(case);
    // A pod that does not go, because its node is dead or a stranger holds it, does not hold the BuildJob.
    if !left.is_positive() {
        return Decision { actions: remove_all(case, None), ..Decision::default() };
    }
    // One that still runs has to be stopped.
    let is_still = case
        .seen
        .pod
        .as_ref()
        .is_some_and(|facts| facts.failed || (facts.managed_ended() && facts.agent.is_ended()));
    let keeps_pod =
        case.rules.keep_pod_on_failure && is_still && matches!(phase, Phase::Failed | Phase::TimedOut);
    let mut decision = Decision::wait(false, left);
    if !keeps_pod {
        decision.actions.extend(remove_workload(case));
    }
    decision
}

/// The BuildJob and its pod go in one round. If the operator ends in between, the pod loses its owner and goes as well.
pub(super) fn remove_all(case: &Case<'_>, unrecorded: Option<Box<BuildJobStatus>>) -> Vec<Action> {
    [Action::DeleteJob { unrecorded }].into_iter().chain(remove_workload(case)).collect()
}

/// The deletion of the pod, or of the Job around it, unless there is none or it is on its way out.
pub(super) fn remove_workload(case: &Case<'_>) -> Option<Action> {
    if let Some(batch) = &case.seen.batch {
        let (name, uid) = (batch.name.clone(), batch.uid.clone());
        return (!batch.is_deleting).then_some(Action::DeleteBatchJob { name, uid });
    }
    let facts = case.seen.pod.as_ref().filter(|facts| !facts.is_deleting())?;
    Some(Action::DeletePod { name: facts.name.clone(), uid: facts.uid.clone() })
}

/// How long the BuildJob stays after such an end. Those that came from a queue need leave no trace here if all
/// went well: their record is in Buildkite.
pub(super) fn time_to_live(case: &Case<'_>, phase: Phase) -> SignedDuration {
    let spawned = case.seen.job.metadata.labels.iter().flatten().any(|(key, _)| key == LABEL_SPAWNED_FROM);
    match phase {
        Phase::Succeeded | Phase::Canceled if spawned => case.rules.succeeded_ttl,
        _ => case.rules.failed_ttl,
    }
}

fn since_end(case: &Case<'_>) -> SignedDuration {
    case.status.finished_at.as_ref().map(|time| case.seen.now.duration_since(time.0)).unwrap_or_default()
}
