//! The conditions of a BuildJob's status. They are brought up to date with every write, and but for `Warned`, `PodTaken` and `Registered`
//! are never a reason for one.

use bk_api::{BuildJobStatus, Phase, Verdict, VerdictCode};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Case, registration};
use crate::{exporters, facts::PodFacts, remote::RemoteState, verdicts};

/// The pod exists. While it cannot be created, the reason says why.
pub(super) const POD_CREATED: &str = "PodCreated";
/// The pod is on a node.
pub(crate) const SCHEDULED: &str = "Scheduled";
/// All containers of the pod have started.
const STARTED: &str = "Started";
/// The agent has registered by way of the operator. There only once it took too long.
const REGISTERED: &str = "Registered";
/// An agent has the job. Jobs without Buildkite do not have this condition.
pub(crate) const ACQUIRED: &str = "Acquired";
/// Buildkite was told, before the end, of what the job is likely to fail. The reason is the verdict's code.
const WARNED: &str = "Warned";
/// The pod is being taken away from a job that runs. The reason is the code of the verdict that this leads to, unless the
/// command ended by itself before.
const POD_TAKEN: &str = "PodTaken";
/// The job has ended. The reason is the verdict's code.
const FINISHED: &str = "Finished";

/// Whether an agent was known to have the job when the status was written.
pub fn is_acquired(status: &BuildJobStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == ACQUIRED && condition.status == "True")
}

/// What is to be said in one condition.
struct Word<'a> {
    kind: &'static str,
    holds: bool,
    reason: &'a str,
    message: &'a str,
    /// When it came to be so, if that is known better than that it is so now.
    since: Option<Timestamp>,
}

/// The status with conditions that fit the rest of it.
pub(super) fn updated(case: &Case<'_>, mut status: BuildJobStatus) -> BuildJobStatus {
    if let Some(facts) = &case.seen.pod {
        of_pod(case, &mut status, facts);
    }
    if case.remote_state() == Some(RemoteState::Acquired) {
        let word = Word { kind: ACQUIRED, holds: true, reason: "AgentHasJob", message: "", since: None };
        set(case, &mut status, &word);
    }
    for missing in exporters::missing(&case.seen.job.spec, &case.rules.pod) {
        let exporters::Missing { condition: kind, reason, message } = missing;
        set(case, &mut status, &Word { kind, holds: false, reason, message: &message, since: None });
    }
    if let Some(verdict) = status.verdict.clone().filter(|_| status.phase.is_terminal()) {
        let (reason, message) = (verdict.code.as_str(), verdict.message.as_str());
        set(case, &mut status, &Word { kind: FINISHED, holds: true, reason, message, since: None });
    }
    status
}

fn of_pod(case: &Case<'_>, status: &mut BuildJobStatus, facts: &PodFacts) {
    let name = &facts.name;
    let since = facts.created_at;
    set(case, status, &Word { kind: POD_CREATED, holds: true, reason: "PodCreated", message: name, since });
    match (&facts.node, &facts.unscheduled) {
        (Some(node), _) => {
            let since = facts.accepted_at;
            let word = Word { kind: SCHEDULED, holds: true, reason: "Scheduled", message: node, since };
            set(case, status, &word);
        }
        (None, Some(told)) => {
            let message = told.to_string();
            let reason = "Unschedulable";
            set(
                case,
                status,
                &Word { kind: SCHEDULED, holds: false, reason, message: &message, since: None },
            );
        }
        (None, None) => {}
    }
    if status.phase == Phase::Starting {
        let message = status.waiting_for.clone().unwrap_or_default();
        let reason = "ContainersStarting";
        set(case, status, &Word { kind: STARTED, holds: false, reason, message: &message, since: None });
    } else if facts.all_started() {
        let since = facts.started_at;
        let reason = "ContainersStarted";
        set(case, status, &Word { kind: STARTED, holds: true, reason, message: "", since });
    }
    of_registration(case, status, facts);
}

fn of_registration(case: &Case<'_>, status: &mut BuildJobStatus, facts: &PodFacts) {
    let has_registered = case.seen.has_session || case.remote_state() == Some(RemoteState::Acquired);
    if let Some(message) = registration::missed(case, facts) {
        let reason = "AgentNotRegistered";
        set(case, status, &Word { kind: REGISTERED, holds: false, reason, message: &message, since: None });
    } else if has_registered && self::has_registered(status).is_some() {
        let reason = "AgentRegistered";
        set(case, status, &Word { kind: REGISTERED, holds: true, reason, message: "", since: None });
    }
}

/// Whether the agent has registered by way of the operator, if it took too long.
pub fn has_registered(status: &BuildJobStatus) -> Option<bool> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == REGISTERED)?;
    Some(condition.status == "True")
}

/// Says that the pod cannot be created, and why.
pub(super) fn not_created(case: &Case<'_>, status: &mut BuildJobStatus, reason: &str, message: &str) {
    set(case, status, &Word { kind: POD_CREATED, holds: false, reason, message, since: None });
}

/// Since when the pod cannot be created for this reason, as far as it is on record.
pub(super) fn not_created_since(status: &BuildJobStatus) -> Option<Timestamp> {
    let is_it = |condition: &&Condition| condition.type_ == POD_CREATED && condition.status == "False";
    status.conditions.iter().find(is_it).map(|condition| condition.last_transition_time.0)
}

/// Says that the pod is being taken away. It may be gone before its end is seen, and then nothing else says why.
pub(super) fn pod_taken(case: &Case<'_>, status: &mut BuildJobStatus, facts: &PodFacts) {
    let verdict = verdicts::lost(Some(facts));
    let (reason, message) = (verdict.code.as_str(), verdict.message.as_str());
    set(case, status, &Word { kind: POD_TAKEN, holds: true, reason, message, since: facts.deleting_since });
}

/// Why the pod was taken away, as far as it is on record.
pub(super) fn why_pod_taken(status: &BuildJobStatus) -> Option<Verdict> {
    let condition = status.conditions.iter().find(|condition| condition.type_ == POD_TAKEN)?;
    let code = VerdictCode::ALL.iter().find(|code| code.as_str() == condition.reason)?;
    Some(Verdict::new(*code, condition.message.clone()))
}

/// Says that Buildkite is told this before the end.
pub(super) fn warned(case: &Case<'_>, status: &mut BuildJobStatus, verdict: &Verdict) {
    let (reason, message) = (verdict.code.as_str(), verdict.message.as_str());
    set(case, status, &Word { kind: WARNED, holds: true, reason, message, since: None });
}

/// Whether Buildkite was told this before the end.
pub(super) fn is_warned(status: &BuildJobStatus, verdict: &Verdict) -> bool {
    let says = |condition: &Condition| condition.type_ == WARNED && condition.message == verdict.message;
    status.conditions.iter().any(says)
}

/// Sets a condition; its time stays as long as its status does.
fn set(case: &Case<'_>, status: &mut BuildJobStatus, word: &Word<'_>) {
    let value = if word.holds { "True" } else { "False" };
    let at = status.conditions.iter().position(|condition| condition.type_ == word.kind);
    let before = at.map(|at| status.conditions.remove(at)).filter(|condition| condition.status == value);
    let since = Time(word.since.unwrap_or(case.seen.now));
    let condition = Condition {
        type_: word.kind.to_owned(),
        status: value.to_owned(),
        reason: word.reason.to_owned(),
        message: word.message.to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: before.map_or(since, |condition| condition.last_transition_time),
    };
    let at = at.unwrap_or(status.conditions.len());
    status.conditions.insert(at, condition);
}
