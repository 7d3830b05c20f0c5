//! Until the pod exists: create it, or say why it cannot be; and what to do about a pod that has vanished.

use bk_api::{BuildJobStatus, Phase, build_job::WorkloadKind};
use jiff::SignedDuration;

use super::{Action, Case, Decision, Timeouts, start};
use crate::{
    admission::rules, batch, exporters, plugin, pod, recall::Creation, remote::RemoteState, verdicts,
};

pub(super) fn decide(case: &Case<'_>) -> Decision {
    let was_created = match case.seen.creation {
        Creation::Done => true,
        Creation::Failed { retry_at } if case.seen.now < retry_at => {
            return Decision::wait(!case.is_standalone(), retry_at.duration_since(case.seen.now));
        }
        Creation::Failed { .. } => false,
        // An agent that has registered was in a pod, though nobody lived to put that on record.
        Creation::Unknown => {
            case.status.pod_name.is_some() || case.status.job_name.is_some() || case.seen.has_session
        }
    };
    if was_created {
        return case.gone(None, replace);
    }
    match case.remote_state() {
        Some(RemoteState::Unknown) => return case.unknown(),
        // A pod could do nothing but be refused.
        Some(RemoteState::Acquired) => return case.lose(verdicts::agent_elsewhere()),
        _ => {}
    }
    if let Some(error) = &case.seen.unreadable {
        return case.fail_unacquired(verdicts::unreadable_plugins(error));
    }
    create(case, &case.current())
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
        exporters: Vec::new(),
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
    // Whoever creates a BuildJob, or an environment for it, while no webhook looks does not get around the rules.
    let around = &case.seen.surroundings;
    if let Some(verdict) = rules::refusal(case.seen.job, Some(&pod), around, &case.rules.validation) {
        return case.fail_unacquired(verdict);
    }
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
    } else if lacks_something_unsaid(case) {
        actions.push(Case::write(status.clone()));
    }
    actions.push(creation);
    // Once, and only to authors who look at Buildkite.
    if status.attempt == 0 && !case.is_standalone() {
        actions.extend(exporters::remark(&case.seen.job.spec, &case.rules.pod).map(Action::Remark));
    }
    Decision { actions, ask_remote: !case.is_standalone(), look_again: Some(start::SETTLING) }
}

/// Whether the job asks for something that it does not get, and its record does not say so yet. It may be the only record that it leaves.
fn lacks_something_unsaid(case: &Case<'_>) -> bool {
    let said = |condition: &str| case.status.conditions.iter().any(|own| own.type_ == condition);
    exporters::missing(&case.seen.job.spec, &case.rules.pod).any(|missing| !said(missing.condition))
}

/// When Kubernetes itself ends and removes a Job, should the operator be gone by then.
fn net(case: &Case<'_>) -> batch::Net {
    const MARGIN: SignedDuration = SignedDuration::from_hours(1);
    let Timeouts { schedule, start, run, .. } = case.rules.timeouts;
    // A Job is active from its creation on.
    let active = plugin::time_limit(case.seen.job).or(run).map(|limit| schedule + start + limit + MARGIN);
    batch::Net { active, finished: case.rules.failed_ttl + MARGIN }
}
