//! While the `batch/v1` Job around the pod shows none: wait for it, or find out that it is gone.

use bk_api::BuildJobStatus;
use jiff::SignedDuration;

use super::{Case, Decision, WITHOUT_EVENT, cleanup, notice, obstacle, start};
use crate::{
    batch::BatchFacts,
    facts::PodEvent,
    remote::RemoteState,
    verdicts::{self, Blocker},
};

pub(super) fn decide(case: &Case<'_>, batch: &BatchFacts) -> Decision {
    let ask = !case.is_standalone();
    if batch.is_deleting {
        return Decision::wait(ask, WITHOUT_EVENT);
    }
    // A Job that is suspended, or whose pod is lost, while it runs would make another and run the command again.
    if batch.has_run || batch.failed.is_some() || case.status.started_at.is_some() {
        return case.gone(None, replace);
    }
    if batch.is_suspended {
        // Whoever has suspended it decides how long that takes.
        return explain(case, "its Job to be resumed: it is suspended", WITHOUT_EVENT);
    }
    let obstacle = obstacle_to(batch);
    let active = batch.active_since.map(|since| case.seen.now.duration_since(since)).unwrap_or_default();
    let limit = case.rules.timeouts.schedule;
    if case.remote_state() == Some(RemoteState::Acquired) {
        // It had a pod, and will say that it has failed.
        return Decision::wait(true, SignedDuration::from_secs(1));
    }
    if let Some(blocker) = &obstacle
        && active >= obstacle::patience(case, blocker)
    {
        return case.fail_unacquired(blocker.verdict.clone());
    }
    if active >= limit {
        return case.fail_unacquired(verdicts::start_timeout(None, limit.as_secs()));
    }
    if active < start::SETTLING {
        return Decision::wait(ask, start::SETTLING - active);
    }
    let reason =
        obstacle.map_or_else(|| "its Job to get a pod".to_owned(), |blocker| blocker.verdict.message);
    explain(case, &reason, limit - active)
}

/// What keeps the Job's controller from creating the pod. It only quotes the API server's answer.
fn obstacle_to(batch: &BatchFacts) -> Option<Blocker> {
    let is_recent = |event: &PodEvent| event.at.is_none_or(|at| Some(at) >= batch.active_since);
    let event = batch.events.iter().rev().find(|event| event.reason == "FailedCreate" && is_recent(event))?;
    let says = |words: &str| event.message.contains(words);
    let status = match () {
        () if says("is forbidden") || says("denied the request") => 403,
        () if says("is invalid") => 422,
        () => 500,
    };
    Some(verdicts::not_created(status, &event.message))
}

/// Says what the job waits for, if that is news.
fn explain(case: &Case<'_>, words: &str, look_again: SignedDuration) -> Decision {
    let mut decision = Decision::wait(!case.is_standalone(), look_again);
    if notice::is_news(Some(words), &case.status) {
        let waiting_for = Some(words.to_owned());
        decision.actions.push(Case::write(BuildJobStatus { waiting_for, ..case.current() }));
    }
    let since = case.seen.batch.as_ref().and_then(|batch| batch.active_since);
    notice::add(case, &mut decision, words, since);
    decision
}

/// No agent has taken the job: the Job makes room for another.
fn replace(case: &Case<'_>) -> Decision {
    let attempts = case.status.attempt + 1;
    if attempts >= case.rules.max_attempts {
        return case.fail_unacquired(verdicts::not_taken(None, attempts));
    }
    let mut decision = Decision::wait(true, SignedDuration::from_secs(1));
    // Once it is gone, only the record can tell that it counts as an attempt.
    let recorded = case.status.job_name.is_some();
    decision.actions.extend((!recorded).then(|| Case::write(case.current())));
    decision.actions.extend(cleanup::make_way(case));
    decision
}
