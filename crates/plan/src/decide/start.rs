//! From the pod's creation until its end: follow it, and give up if it cannot start.

use bk_api::{BuildJobStatus, Phase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Case, Decision, WITHOUT_EVENT, ladder, not_at_once, notice};
use crate::{facts::PodFacts, remote::RemoteState, verdicts};

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
    let is_running = facts.all_started() && (acquired.is_some() || case.is_standalone());
    let rung = is_running.then(|| ladder::running(case, facts)).flatten();
    if let Some(rung) = rung.filter(|rung| !rung.left.is_positive()) {
        return case.time_out(verdicts::run_timeout(rung.limit.as_secs()));
    }
    let mut decision = follow(case, facts);
    let look_again = if let Some(remote) = acquired {
        let left = LEASE - case.seen.now.duration_since(remote.asked_at);
        decision.ask_remote = facts.is_deleting() || !left.is_positive();
        if decision.ask_remote { SOON } else { left }
    } else {
        // Until an agent has the job, only Buildkite knows whether it has been cancelled.
        decision.ask_remote = !case.is_standalone();
        deadline(case, facts)
    };
    let rung = rung.map(|rung| rung.left);
    let unsettled = Some(unsettled(case, facts))
        .filter(|left| left.is_positive() && case.current().phase != case.status.phase);
    let overdue = ladder::until_overdue(case, facts);
    let broken = ladder::until_broken(case, facts);
    let look_again = [Some(look_again), rung, unsettled, overdue, broken].into_iter().flatten().min();
    decision.look_again = look_again.map(not_at_once);
    if let Some(reason) = case.current().waiting_for.filter(|_| acquired.is_none()) {
        notice::add(case, &mut decision, &reason, facts.created_at);
    }
    decision
}

/// Whether the pod has had its chance.
fn give_up(case: &Case<'_>, facts: &PodFacts) -> Option<Decision> {
    let timed_out = |limit: SignedDuration| {
        Some(case.fail_unacquired(verdicts::start_timeout(Some(facts), limit.as_secs())))
    };
    if facts.all_started() {
        // A word from before may be too old to know that the agent took the job.
        let untaken = case.remote_after(ladder::taken_by(case, facts)?) == Some(RemoteState::Waiting);
        return untaken.then(|| timed_out(case.rules.timeouts.start)).flatten();
    }
    if let Some(blocker) = verdicts::blocker(facts)
        && (blocker.permanent || !ladder::grace_left(case, facts).is_positive())
    {
        return Some(case.fail_unacquired(blocker.verdict));
    }
    let rung = ladder::starting(case, facts);
    if rung.left.is_positive() { None } else { timed_out(rung.limit) }
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
        pod_created_at: facts.created_at.map(Time).or(recorded.pod_created_at.clone()),
        started_at: recorded.started_at.clone().or_else(|| started.then_some(Time(now))),
        ..recorded
    }
}

/// How long the next phase may still pass unrecorded: a step that the next one follows at once is not worth a write.
fn unsettled(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    if !facts.all_started() {
        return if lasts(facts) {
            SignedDuration::ZERO
        } else {
            SETTLING - ladder::elapsed(case, facts.created_at)
        };
    }
    let taken = case.is_standalone() || case.remote_state() == Some(RemoteState::Acquired);
    if taken {
        SignedDuration::ZERO
    } else {
        SETTLING - ladder::elapsed(case, facts.started_at.or(facts.created_at))
    }
}

/// The time until the job has had its chance to start.
fn deadline(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    if !facts.all_started() {
        let left = ladder::starting(case, facts).left;
        let blocked = verdicts::blocker(facts).is_some();
        return if blocked { left.min(ladder::grace_left(case, facts)) } else { left };
    }
    if case.is_standalone() {
        return WITHOUT_EVENT;
    }
    let left = ladder::taken_by(case, facts).map(|by| by.duration_since(case.seen.now)).unwrap_or_default();
    // Afterwards it depends on Buildkite's next word.
    left.max(SOON)
}

/// Whether the pod is kept from starting by something that may stay.
fn lasts(facts: &PodFacts) -> bool {
    facts.unscheduled.is_some() || verdicts::blocker(facts).is_some()
}

/// Whether the job waits for something else than before.
fn tells_more(new: &BuildJobStatus, old: &BuildJobStatus) -> bool {
    let subject = |status: &BuildJobStatus| status.waiting_for.as_deref().map(notice::subject);
    subject(new) != subject(old)
}
