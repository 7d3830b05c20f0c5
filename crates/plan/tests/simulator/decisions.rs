//! What must hold for every decision, whatever the world is like.

use bk_api::Phase;
use bk_plan::{
    decide::{Action, Decision, Observed},
    remote::RemoteState,
};

/// What is wrong with a decision.
pub(crate) fn of_decision(seen: &Observed<'_>, decision: &Decision) -> Option<String> {
    let status = seen.job.status_or_default();
    let remote = seen.remote.map(|remote| remote.state.in_short());
    for action in &decision.actions {
        match action {
            Action::FinishRemote(_)
                if remote == Some(RemoteState::Acquired) || remote.is_some_and(RemoteState::is_terminal) =>
            {
                return Some(format!("a job that is {remote:?} is finished by us"));
            }
            Action::EndForAgent(_) if remote != Some(RemoteState::Acquired) || !seen.has_session => {
                return Some(format!("a job that is {remote:?} is ended for its agent"));
            }
            Action::EvictPod { .. } if seen.node.as_ref().is_none_or(|node| node.leaving.is_none()) => {
                return Some("a pod is evicted from a node that stays".to_owned());
            }
            Action::FinishRemote(_)
            | Action::EndForAgent(_)
            | Action::Notify(_)
            | Action::Explain(_)
            | Action::Remark(_)
                if seen.job.spec.buildkite.is_none() =>
            {
                return Some("Buildkite is told about a standalone job".to_owned());
            }
            Action::WriteStatus(new) if new.attempt < status.attempt => {
                return Some("the attempt is lowered".to_owned());
            }
            Action::WriteStatus(new)
                if status.verdict.is_some()
                    && new.verdict.is_none()
                    && remote != Some(RemoteState::Acquired) =>
            {
                return Some("a verdict is struck out that nobody has overtaken".to_owned());
            }
            Action::DeletePod { .. }
            | Action::DeleteBatchJob { .. }
            | Action::DeleteJob { unrecorded: None } => {}
            // Its agent was to end it, and cannot.
            Action::EndForAgent(_) if status.phase == Phase::TimedOut => {}
            _ if status.phase.is_terminal() => return Some(format!("{action:?} after the end")),
            _ => {}
        }
    }
    if decision.look_again.is_some_and(|wait| !wait.is_positive()) {
        return Some(format!("the next look is due in {:?}", decision.look_again));
    }
    // Events may be missed: only what is being deleted, or has just changed, needs no other look.
    let is_deleted = seen.job.metadata.deletion_timestamp.is_some();
    let changes_job = decision
        .actions
        .iter()
        .any(|action| matches!(action, Action::WriteStatus(_) | Action::DeleteJob { .. }));
    if !is_deleted && !changes_job && decision.look_again.is_none() {
        return Some("nothing will happen any more".to_owned());
    }
    None
}
