//! From the pod's creation until its end: follow it, and give up if it cannot start.

use bk_api::{BuildJobStatus, Phase};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Case, Decision, conditions, ladder, not_at_once, notice, registration, warning};
use crate::{facts::PodFacts, remote::RemoteState, verdicts};

/// How soon to look again at a job that runs: an event that is missed must not hold it for ever. A job of many hours
/// must not cost many looks either, and what Buildkite hears of it wakes us.
const WHILE_IT_RUNS: SignedDuration = SignedDuration::from_hours(1);

/// How soon to look again while Buildkite is asked.
const SOON: SignedDuration = SignedDuration::from_secs(5);

/// How soon to look what came of a creation, if nothing tells of it.
pub(super) const SETTLING: SignedDuration = SignedDuration::from_secs(3);

/// How long something may keep a pod from starting without being put on record: most of it passes.
const HINDRANCE: SignedDuration = SignedDuration::from_secs(10);

/// How long a start that nothing hinders may take, until an agent has the job, without being put on record: a job that succeeds
/// is worth one status. Times are rounded down to the second, so it may be one less.
const SLOW: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn decide(case: &Case<'_>, facts: &PodFacts) -> Decision {
    let acquired = case.seen.remote.filter(|remote| remote.state.is_acquired());
    if let Some(decision) = acquired.is_none().then(|| give_up(case, facts)).flatten() {
        return decision;
    }
    let is_running = facts.all_started() && (acquired.is_some() || case.is_standalone());
    let rung = is_running.then(|| ladder::running(case, facts)).flatten();
    if let Some(rung) = rung.filter(|rung| !rung.left.is_positive()) {
        return case.time_out(verdicts::run_timeout(rung.limit.as_secs()));
    }
    let mut decision = follow(case, facts);
    if is_running && facts.is_deleting() && conditions::why_pod_taken(&case.status).is_none() {
        let mut status = case.current();
        conditions::pod_taken(case, &mut status, facts);
        // All that a status could say is in this one.
        decision.actions = vec![Case::write(status)];
    }
    let look_again = if acquired.is_some() {
        decision.ask_remote = facts.is_deleting();
        if decision.ask_remote { SOON } else { WHILE_IT_RUNS }
    } else {
        // Until an agent has the job, only Buildkite knows whether it has been cancelled.
        decision.ask_remote = !case.is_standalone();
        deadline(case, facts)
    };
    let rung = rung.map(|rung| rung.left);
    let unsettled = Some(unsettled(case, facts))
        .filter(|left| left.is_positive() && has_news(case, &case.current(), facts));
    let overdue = ladder::until_overdue(case, facts);
    let broken = ladder::until_broken(case, facts);
    let explained = ladder::until_explained(case, facts);
    let unregistered = registration::until_missed(case, facts);
    let looks = [Some(look_again), rung, unsettled, overdue, broken, explained, unregistered];
    let look_again = looks.into_iter().flatten().min();
    decision.look_again = look_again.map(not_at_once);
    let is_hindered = acquired.is_none() && explained.is_none() && is_hindered(case, facts);
    if let Some(reason) = case.current().waiting_for.filter(|_| is_hindered) {
        notice::add(case, &mut decision, &reason, facts.created_at);
    }
    warning::add(case, facts, &mut decision);
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
        let limit = case.rules.timeouts.start;
        let unregistered = || Some(case.fail_unacquired(registration::timeout(case, facts, limit)?));
        return untaken.then(|| unregistered().or_else(|| timed_out(limit))).flatten();
    }
    if let Some(blocker) = verdicts::blocker(facts)
        && ladder::until_explained(case, facts).is_none()
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
    let worth_writing = has_news(case, &status, facts) && !unsettled(case, facts).is_positive();
    let actions = if worth_writing { vec![Case::write(status)] } else { Vec::new() };
    Decision { actions, ..Decision::default() }
}

/// What a pod's facts make of a status.
pub(super) fn progress(case: &Case<'_>, recorded: BuildJobStatus, facts: &PodFacts) -> BuildJobStatus {
    let (now, started) = (case.seen.now, facts.all_started());
    let hindrance = || registration::missed(case, facts).or_else(|| verdicts::waiting_for(facts));
    let is_slow = facts.created_at.is_some_and(|created| now.duration_since(created) >= SLOW);
    BuildJobStatus {
        phase: if started || recorded.phase == Phase::Running { Phase::Running } else { Phase::Starting },
        pod_name: Some(facts.name.clone()),
        node_name: facts.node.clone(),
        waiting_for: (is_hindered(case, facts) || is_slow).then(hindrance).flatten(),
        pod_created_at: facts.created_at.map(Time).or(recorded.pod_created_at.clone()),
        started_at: recorded.started_at.clone().or_else(|| started.then_some(Time(now))),
        ..recorded
    }
}

/// How long what is new may still pass unrecorded: a step that the next one follows at once is not worth a write.
fn unsettled(case: &Case<'_>, facts: &PodFacts) -> SignedDuration {
    if !facts.all_started() {
        if let Some(left) = ladder::until_explained(case, facts) {
            return left;
        }
        let limit = if is_hindered(case, facts) { HINDRANCE } else { SLOW };
        return limit - ladder::elapsed(case, facts.created_at);
    }
    let taken = case.is_standalone() || case.remote_state() == Some(RemoteState::Acquired);
    if taken {
        SignedDuration::ZERO
    } else {
        let limit = if registration::is_due(case, facts) { registration::PATIENCE } else { SLOW };
        limit - ladder::elapsed(case, facts.started_at.or(facts.created_at))
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
        return WHILE_IT_RUNS;
    }
    let left = ladder::taken_by(case, facts).map(|by| by.duration_since(case.seen.now)).unwrap_or_default();
    // Afterwards it depends on Buildkite's next word.
    left.max(SOON)
}

/// Whether the pod is kept from starting, or its agent from registering, by something that may stay.
fn is_hindered(case: &Case<'_>, facts: &PodFacts) -> bool {
    facts.unscheduled.is_some()
        || verdicts::blocker(facts).is_some()
        || registration::missed(case, facts).is_some()
}

/// Whether the job has come further, or is kept from it by something else than before. What a pod waits for otherwise
/// changes with every step of its start.
fn has_news(case: &Case<'_>, status: &BuildJobStatus, facts: &PodFacts) -> bool {
    status.phase != case.status.phase
        || is_hindered(case, facts) && notice::is_news(status.waiting_for.as_deref(), &case.status)
        || conditions::has_registered(status) != conditions::has_registered(&case.status)
}
