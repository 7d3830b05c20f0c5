//! Lines of the trace.

use bk_plan::decide::{Action, Decision, Observed};

use super::Failure;

/// Why a step was not done.
pub(super) fn failure(failure: &Failure) -> &'static str {
    match failure {
        Failure::Conflict => "the job has changed",
        Failure::Gone => "the job is gone",
        Failure::Api => "the API server fails",
        Failure::NotCreated(_) => "the API server does not take it",
        Failure::Unreachable => "Buildkite does not answer",
        Failure::Refused => "Buildkite refuses",
        Failure::Outrun => "the agent does not have the job",
    }
}

/// What was seen, and what follows from it.
pub(super) fn describe(seen: &Observed<'_>, decision: &Decision) -> String {
    let status = seen.job.status_or_default();
    let pod = seen.pod.as_ref().map(|pod| {
        let containers: Vec<_> =
            pod.managed.iter().chain([&pod.agent]).map(|c| format!("{:?}", c.state)).collect();
        format!(
            "{} deleting={} failed={:?} [{}]",
            pod.uid,
            pod.is_deleting(),
            pod.failed,
            containers.join(", ")
        )
    });
    let actions: Vec<_> = decision.actions.iter().map(name_of).collect();
    format!(
        "operator: {:?}/{} verdict={:?} pod={} session={} node={:?} word={:?} → {} ask={} again={:?}",
        status.phase,
        status.attempt,
        status.verdict.map(|verdict| verdict.code),
        pod.unwrap_or_else(|| "none".to_owned()),
        seen.has_session,
        seen.node.as_ref().map(|node| (node.silent_since.is_some(), node.leaving.is_some())),
        seen.remote.map(|remote| remote.state),
        actions.join(", "),
        decision.ask_remote,
        decision.look_again,
    )
}

fn name_of(action: &Action) -> String {
    match action {
        Action::CreatePod(pod) => format!("create {}", pod.metadata.name.as_deref().unwrap_or_default()),
        Action::CreateBatchJob(_) => "create a batch Job".to_owned(),
        Action::DeletePod { uid, .. } | Action::DeleteBatchJob { uid, .. } => format!("delete {uid}"),
        Action::WriteStatus(status) => {
            let code = status.verdict.as_ref().map(|verdict| verdict.code);
            format!("write {:?}/{} {code:?}", status.phase, status.attempt)
        }
        Action::FinishRemote(verdict) => format!("finish {:?}", verdict.code),
        Action::EndForAgent(verdict) => format!("end for the agent {:?}", verdict.code),
        Action::EvictPod { uid, .. } => format!("evict {uid}"),
        Action::Explain(reason) => format!("explain {reason}"),
        Action::Remark(text) => format!("remark {text}"),
        Action::Notify(verdict) => format!("notify {:?}", verdict.code),
        Action::DeleteJob { unrecorded } => {
            format!("delete job {:?}", unrecorded.as_ref().map(|status| status.phase))
        }
    }
}
