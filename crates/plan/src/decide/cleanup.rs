//! After the end: the pod goes, then the BuildJob.

use bk_api::{Phase, names::LABEL_SPAWNED_FROM};
use jiff::SignedDuration;

use super::{Action, Case, Decision, WITHOUT_EVENT};

pub(super) fn decide(case: &Case<'_>) -> Decision {
    if let Some(facts) = &case.seen.pod {
        let mut decision = Decision::wait(false, WITHOUT_EVENT);
        if !facts.is_deleting() {
            decision.actions.push(Action::DeletePod { name: facts.name.clone(), uid: facts.uid.clone() });
        }
        return decision;
    }
    let left = retention(case) - since_end(case);
    if left <= SignedDuration::ZERO {
        return Decision { actions: vec![Action::DeleteJob], ..Decision::default() };
    }
    Decision::wait(false, left)
}

/// Jobs that Buildkite sent leave no trace here if all went well: their record is in Buildkite.
fn retention(case: &Case<'_>) -> SignedDuration {
    let spawned = case.seen.job.metadata.labels.iter().flatten().any(|(key, _)| key == LABEL_SPAWNED_FROM);
    match case.status.phase {
        Phase::Succeeded | Phase::Canceled if spawned => SignedDuration::ZERO,
        _ => case.rules.retention,
    }
}

fn since_end(case: &Case<'_>) -> SignedDuration {
    case.status.finished_at.as_ref().map(|time| case.seen.now.duration_since(time.0)).unwrap_or_default()
}
