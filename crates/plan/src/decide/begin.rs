//! Until the pod exists: create it, or say why it cannot be; and what to do about a pod that has vanished.

use bk_api::{BuildJobStatus, Phase};
use jiff::SignedDuration;

use super::{Action, Case, Decision};
use crate::{pod, remote::RemoteState, verdicts};

/// How young Buildkite's word must be to judge a pod that is not there any more.
const FRESH: SignedDuration = SignedDuration::from_secs(5);

pub(super) fn decide(case: &Case<'_>) -> Decision {
    if case.status.pod_name.is_some() {
        return vanished(case);
    }
    if let (Some(RemoteState::Unknown), Some(uuid)) = (case.remote_state(), case.seen.job.job_uuid()) {
        return case.conclude((Phase::Failed, verdicts::unknown_job(uuid)));
    }
    if let Some(error) = &case.seen.unreadable {
        return case.fail_unacquired(verdicts::unreadable_plugins(error));
    }
    create(case, 0)
}

/// The status names a pod, and it does not exist.
fn vanished(case: &Case<'_>) -> Decision {
    if case.is_standalone() {
        return case.conclude((Phase::Failed, verdicts::agent_lost(None)));
    }
    let fresh = case.seen.remote.filter(|remote| case.seen.now.duration_since(remote.asked_at) < FRESH);
    match fresh.map(|remote| remote.state) {
        None => Decision::wait(true, SignedDuration::from_secs(1)),
        Some(RemoteState::Waiting) => replace(case),
        Some(_) => {
            let verdict = verdicts::agent_lost(None);
            let actions = vec![Action::Notify(verdict.clone()), case.ended(Phase::Failed, verdict)];
            Decision { actions, ..Decision::default() }
        }
    }
}

/// No agent has taken the job: another pod costs nobody anything.
fn replace(case: &Case<'_>) -> Decision {
    let attempts = case.status.attempt + 1;
    if attempts >= case.rules.max_attempts {
        return case.fail_unacquired(verdicts::agent_not_started(None, attempts));
    }
    create(case, attempts)
}

fn create(case: &Case<'_>, attempt: u32) -> Decision {
    let pod = match pod::render(case.seen.job, attempt, &case.rules.pod) {
        Ok(pod) => pod,
        Err(error) => return case.fail_unacquired(verdicts::invalid_spec(&error)),
    };
    let status = BuildJobStatus {
        phase: Phase::Starting,
        attempt,
        pod_name: pod.metadata.name.clone(),
        node_name: None,
        waiting_for: None,
        ..case.status.clone()
    };
    Decision {
        actions: vec![Action::CreatePod(Box::new(pod)), case.write(status)],
        ask_remote: !case.is_standalone(),
        look_again: Some(case.rules.start_deadline),
    }
}
