//! Until the pod exists: create it, or say why it cannot be; and what to do about a pod that has vanished.

use bk_api::{BuildJobStatus, Phase, build_job::WorkloadKind};
use jiff::SignedDuration;

use super::{Action, Case, Decision, start};
use crate::{batch, pod, recall::Creation, remote::RemoteState, verdicts};

pub(super) fn decide(case: &Case<'_>) -> Decision {
    let was_created = match case.seen.creation {
        Creation::Done => true,
        Creation::Failed { retry_at } if case.seen.now < retry_at => {
            return Decision::wait(!case.is_standalone(), retry_at.duration_since(case.seen.now));
        }
        // An answer that did not come may have been a yes: then the pod was seen.
        Creation::Failed { .. } => case.status.phase != Phase::Pending,
        Creation::Unknown => case.status.pod_name.is_some() || case.status.job_name.is_some(),
    };
    if was_created {
        return vanished(case);
    }
    match (case.remote_state(), case.seen.job.job_uuid()) {
        (Some(RemoteState::Unknown), Some(uuid)) => {
            return case.conclude((Phase::Failed, verdicts::unknown_job(uuid)));
        }
        // A pod could do nothing but be refused.
        (Some(RemoteState::Acquired), _) => return case.lose(verdicts::agent_elsewhere()),
        _ => {}
    }
    if let Some(error) = &case.seen.unreadable {
        return case.fail_unacquired(verdicts::unreadable_plugins(error));
    }
    create(case, &case.current())
}

/// There was a pod, or may have been one, and it does not exist.
fn vanished(case: &Case<'_>) -> Decision {
    if case.is_standalone() {
        return case.conclude((Phase::Failed, verdicts::lost(None)));
    }
    match case.fresh_remote() {
        None => Decision::wait(true, SignedDuration::from_secs(1)),
        Some(RemoteState::Waiting) => replace(case),
        Some(_) => case.lose(verdicts::lost(None)),
    }
}

/// No agent has taken the job: another pod costs nobody anything.
pub(super) fn replace(case: &Case<'_>) -> Decision {
    let attempts = case.status.attempt + 1;
    if attempts >= case.rules.max_attempts {
        return case.fail_unacquired(verdicts::not_taken(None, attempts));
    }
    let status = BuildJobStatus {
        phase: Phase::Pending,
        attempt: attempts,
        pod_name: None,
        job_name: None,
        node_name: None,
        waiting_for: None,
        pod_created_at: None,
        started_at: None,
        conditions: Vec::new(),
        ..case.status.clone()
    };
    let mut decision = create(case, &status);
    decision.actions.insert(0, Case::write(status));
    decision
}

fn create(case: &Case<'_>, status: &BuildJobStatus) -> Decision {
    let pod = match pod::render(case.seen.job, status.attempt, &case.seen.surroundings, &case.rules.pod) {
        Ok(pod) => pod,
        Err(error) => return case.fail_unacquired(verdicts::invalid_spec(&error)),
    };
    let name = pod.metadata.name.clone();
    let (announced, creation) = match case.workload() {
        WorkloadKind::Pod => {
            let announced = BuildJobStatus { pod_name: name, ..status.clone() };
            (announced, Action::CreatePod(Box::new(pod)))
        }
        WorkloadKind::Job => {
            let announced = BuildJobStatus { job_name: name, ..status.clone() };
            (announced, Action::CreateBatchJob(Box::new(batch::wrap(pod, net(case)))))
        }
    };
    let mut actions = Vec::new();
    // Nobody but the status could tell later that it had a pod.
    if case.is_standalone() && announced != *status {
        actions.push(Case::write(announced));
    }
    actions.push(creation);
    Decision { actions, ask_remote: !case.is_standalone(), look_again: Some(start::SETTLING) }
}

/// When Kubernetes itself ends and removes a Job, should the operator be gone by then.
fn net(case: &Case<'_>) -> batch::Net {
    const MARGIN: SignedDuration = SignedDuration::from_hours(1);
    batch::Net { active: None, finished: case.rules.failed_ttl + MARGIN }
}
