//! From the pod's creation until its end: follow it, and give up if it cannot start.

use bk_api::{BuildJobStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Case, Decision, WITHOUT_EVENT, not_at_once};
use crate::{
    facts::{ContainerFacts, PodFacts},
    remote::RemoteState,
    verdicts,
};

/// How old Buildkite's word may become while an agent has the job. A node that has died says no more, an agent
/// may hang, and the agent that has the job need not be ours: Buildkite alone hears of the end then.
const LEASE: SignedDuration = SignedDuration::from_mins(5);

/// How soon to look again while Buildkite is asked.
const SOON: SignedDuration = SignedDuration::from_secs(5);

/// How long a start, or an agent that is about to take the job, may take without being put on record. Times are
/// rounded down to the second, so it may be one less.
pub(super) const SETTLING: SignedDuration = SignedDuration::from_secs(3);

pub(super) fn decide(case: &Case<'_>, facts: &PodFacts) -> Decision {
    let acquired = case.seen.remote.filter(|remote| remote.state == RemoteState::Acquired);
    if let Some(decision) = acquired.is_none().then(|| give_up(case, facts)).flatten() {
        return decision;
    }
    let mut decision = follow(case, facts);
    if let Some(remote) = acquired {
        let left = LEASE - case.seen.now.duration_since(remote.asked_at);
        decision.ask_remote = facts.is_deleting() || !left.is_positive();
        decision.look_again = Some(if decision.ask_remote { SOON } else { left });
    } else {
        // Until an agent has the job, only Buildkite knows whether it has been cancelled.
        decision.ask_remote = !case.is_standalone();
        decision.look_again = Some(deadline(case, facts));
    }
    let unsettled = unsettled(case, facts);
    if case.current().phase != case.status.phase && unsettled.is_positive() {
        decision.look_again = decision.look_again.min(Some(unsettled));
    }
    decision.look_again = decision.look_again.map(not_at_once);
    decision
}

/// Whether the pod has had its chance.
fn give_up(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    let deadline = case.rules.start_deadline;
    if facts.all_started() {
        // The agent has as long again. A word from before may be too old to know that it took the job.
        let started = case.status.started_at.as_ref()?.0;
        let untaken = case.remote_after(started + deadline) == Some(RemoteState::Waiting);
        return untaken
            .then(|| case.fail_unacquired(verdicts::start_timeout(Some(facts), deadline.as_secs())));
    }
    if let Some(blocker) = verdicts::blocker(facts)
        && (blocker.permanent || !grace_left(case, facts).is_positive())
    {
        return Some(case.fail_unacquired(blocker.verdict));
    }
    (!time_left(case, facts).is_positive())
        .then(|| case.fail_unacquired(verdicts::start_timeout(Some(facts), deadline.as_secs())))
}

/// Brings the status up to date, if there is something worth a write.
fn follow(case: &Case<'_>, facts: &PodFacts) -> Decision {
    let status = case.current();
    // What a pod waits for changes with every step of its start; only what lasts is worth a write.
    let worth_writing = if status.phase == case.status.phase {
        tells_more(&status, &case.status) && lasts(facts)
    } else {
        !unsettled(case, facts).is_positive()
    };
    let actions = if worth_writing { vec![Case::write(status)] } else { Vec::new() };
    Decision { actions, ..Decision::default() }
}

/// What a pod's facts make of a status.
pub(super) fn progress(recorded: BuildJobStatus, facts: &PodFacts, now: Timestamp) -> BuildJobStatus {
    let started = facts.all_started();
    BuildJobStatus {
        phase: if started || recorded.phase == Phase::Running { Phase::Running } else { Phase::Starting },
        pod_name: Some(facts.name.clone()),
        node_name: facts.node.clone(),
        waiting_for: lasts(facts).then(|| verdicts::waiting_for(facts)).flatten(),
        started_at: recorded.started_at.clone().or_else(|| started.then_some(Time(now))),
        ..recorded
    }
}

/// How long the next phase may still pass unrecorded: a step that the next one follows at once is not worth a write.
fn unsettled(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    if !facts.all_started() {
        return if lasts(facts) { SignedDuration::ZERO } else { SETTLING - since(case, facts.created_at) };
    }
    let taken = case.is_standalone() || case.remote_state() == Some(RemoteState::Acquired);
    if taken { SignedDuration::ZERO } else { SETTLING - since(case, facts.started_at.or(facts.created_at)) }
}

/// The time until the job has had its chance to start.
fn deadline(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    let deadline = case.rules.start_deadline;
    if !facts.all_started() {
        let left = time_left(case, facts);
        let blocked = verdicts::blocker(facts).is_some();
        return if blocked { left.min(grace_left(case, facts)) } else { left };
    }
    if case.is_standalone() {
        // It may run for as long as it likes.
        return WITHOUT_EVENT;
    }
    let started = case.status.started_at.as_ref().map_or(case.seen.now, |time| time.0);
    let left = deadline - case.seen.now.duration_since(started);
    // Afterwards it depends on Buildkite's next word.
    left.max(SOON)
}

/// How long the containers still have to start. Every pod has the whole time: neither a quota that kept it from
/// being created, nor the pods before it, count against it.
fn time_left(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    case.rules.start_deadline - since(case, facts.created_at)
}

/// How long what blocks a container may still pass. No image was wanted before there was a node, and those of
/// the containers not before the init containers were done.
fn grace_left(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    let accepted = facts.accepted_at.or(facts.created_at);
    let initialised = facts.init.iter().filter(|c| !c.sidecar).filter_map(ContainerFacts::ended_at).max();
    case.rules.image_pull_grace - since(case, accepted.max(initialised))
}

fn since(case: &Case<'_>, time: Option<Timestamp>) -> SignedDuration {
    time.map(|time| case.seen.now.duration_since(time)).unwrap_or_default()
}

/// Whether the pod is kept from starting by something that may stay.
fn lasts(facts: &PodFacts) -> bool {
    facts.unscheduled.is_some() || verdicts::blocker(facts).is_some()
}

/// Whether the job waits for something else than before. The kubelet puts the same failure in two ways by
/// turns, as an attempt and as the pause after it: that is no news.
fn tells_more(new: &BuildJobStatus, old: &BuildJobStatus) -> bool {
    let subject = |status: &BuildJobStatus| {
        status.waiting_for.as_deref().map(|text| text.split(" cannot be ").next().unwrap_or(text).to_owned())
    };
    subject(new) != subject(old)
}
