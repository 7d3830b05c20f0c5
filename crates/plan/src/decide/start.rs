//! From the pod's creation until its end: follow it, and give up if it cannot start.

use bk_api::{BuildJobStatus, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Case, Decision};
use crate::{facts::PodFacts, remote::RemoteState, verdicts};

pub(super) fn decide(case: &Case<'_>, facts: &PodFacts) -> Decision {
    let started = facts.all_started();
    let may_give_up = !started && case.remote_state() != Some(RemoteState::Acquired);
    if let Some(decision) = may_give_up.then(|| give_up(case, facts)).flatten() {
        return decision;
    }
    let mut decision = follow(case, facts, started);
    // Until an agent has the job, only Buildkite knows whether it has been cancelled.
    decision.ask_remote = !case.is_standalone() && case.remote_state() != Some(RemoteState::Acquired);
    decision
}

/// Whether the pod has had its chance.
fn give_up(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    if let Some(blocker) = verdicts::blocker(facts) {
        let waited =
            facts.created_at.map(|created| case.seen.now.duration_since(created)).unwrap_or_default();
        if blocker.permanent || waited >= case.rules.image_pull_grace {
            return Some(case.fail_unacquired(blocker.verdict));
        }
    }
    (case.age() >= case.rules.start_deadline).then(|| {
        case.fail_unacquired(verdicts::start_timeout(Some(facts), case.rules.start_deadline.as_secs()))
    })
}

/// Brings the status up to date and sets the alarm for the next deadline.
fn follow(case: &Case<'_>, facts: &PodFacts, started: bool) -> Decision {
    let status = BuildJobStatus {
        phase: if started { Phase::Running } else { Phase::Starting },
        pod_name: Some(facts.name.clone()),
        node_name: facts.node.clone(),
        waiting_for: if started { None } else { verdicts::waiting_for(facts) },
        started_at: case.status.started_at.clone().or_else(|| started.then_some(Time(case.seen.now))),
        ..case.status.clone()
    };
    // What a pod waits for changes with every step of its start; only what lasts is worth a write.
    let worth_writing = status.phase != case.status.phase
        || status.node_name != case.status.node_name && started
        || status.waiting_for != case.status.waiting_for && lasts(facts);
    let look_again = (!started).then(|| {
        let deadline = case.rules.start_deadline - case.age();
        match verdicts::blocker(facts) {
            Some(_) => deadline.min(case.rules.image_pull_grace),
            None => deadline,
        }
    });
    Decision {
        actions: if worth_writing { vec![case.write(status)] } else { Vec::new() },
        ask_remote: false,
        look_again,
    }
}

/// Whether the pod is kept from starting by something that may stay.
fn lasts(facts: &PodFacts) -> bool {
    facts.unscheduled.is_some() || verdicts::blocker(facts).is_some()
}
