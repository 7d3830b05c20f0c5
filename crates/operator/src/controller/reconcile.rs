//! One round of work on one BuildJob.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bk_api::BuildJob;
use bk_plan::{
    decide::{Decision, Observed, decide},
    recall::Recall,
};
use jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};
use tracing::Instrument;

use super::{
    Context,
    act::{self, Outcome},
    observe,
};
use crate::{cache::Cache, error::Error};

/// How soon to look again when the view that a decision was based on turned out to be old.
const SOON: Duration = Duration::from_millis(200);

/// How soon to look again at the latest when the cache shows what has been overwritten.
const OUTDATED: Duration = Duration::from_secs(5);

/// How soon to look again at the latest when Buildkite refused to end a job; its next word wakes us sooner.
const UNSETTLED: Duration = Duration::from_secs(5);

/// Observe, decide, act.
pub(super) async fn reconcile(job: Arc<BuildJob>, context: Arc<Context>) -> Result<Action, Error> {
    let span = tracing::info_span!("job", build_job = %job.name_any(), job_uuid = job.job_uuid().unwrap_or("standalone"));
    async {
        let begin = Instant::now();
        let result = round(&job, &context).await;
        context.telemetry.metrics.jobs.round(begin.elapsed(), result.is_ok());
        match &result {
            Ok(_) => context.failures.clear(&job),
            Err(error) => tracing::warn!(error = %bk_ops::report::one_line(error), "trying again later"),
        }
        result
    }
    .instrument(span)
    .await
}

async fn round(job: &BuildJob, context: &Context) -> Result<Action, Error> {
    context.recalls.note(job, |recall| recall.meet(job, Timestamp::now()));
    let recall = context.recalls.of(job);
    let version = job.resource_version();
    let outdated = recall.is_outdated(version.as_deref());
    tracing::debug!(version, outdated, "round");
    if outdated {
        // The watch is about to bring what is newer.
        return Ok(Action::requeue(OUTDATED));
    }
    context.recalls.note(job, Recall::seen);
    let observation = observe::observe(context, job, &recall).await?;
    let seen = Observed {
        job: &observation.job,
        pod: observation.pod.clone(),
        batch: observation.batch.clone(),
        creation: observation.creation,
        explained: observation.explained.clone(),
        remote: observation.remote,
        has_session: observation.has_session,
        node: observation.node.clone(),
        surroundings: observation.surroundings.clone(),
        unreadable: observation.unreadable.clone(),
        now: Timestamp::now(),
    };
    context.recalls.note(job, |recall| recall.witness(&seen));
    let decision = decide(&seen, &context.rules);
    listen(context, job, &decision);
    Ok(match act::perform(context, &seen, &decision).await? {
        Outcome::Overtaken => Action::requeue(SOON),
        Outcome::Unsettled => Action::requeue(UNSETTLED),
        Outcome::Done(look_again) => match look_again {
            Some(delay) => Action::requeue(Duration::try_from(delay).unwrap_or_default()),
            None => Action::await_change(),
        },
    })
}

/// Says whether Buildkite's word on the job is needed from now on.
fn listen(context: &Context, job: &BuildJob, decision: &Decision) {
    let Some(uuid) = observe::uuid(job) else {
        return;
    };
    if job.is_terminal() && !decision.ask_remote {
        context.remote.forget(job);
        context.spokesman.forget(job);
    } else {
        context.remote.want(job, uuid, decision.ask_remote);
    }
}

/// When to try again after a failure: soon at first, then ever later, per object.
#[allow(clippy::needless_pass_by_value, reason = "the runtime's signature")]
pub(super) fn error_policy(job: Arc<BuildJob>, error: &Error, context: Arc<Context>) -> Action {
    let delay = context.failures.next_delay(&job);
    Action::requeue(error.retry_after().map_or(delay, |asked| asked.max(delay)))
}

/// How often in a row each object has failed.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<ObjectRef<BuildJob>, u32>>);

impl Failures {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(30);

    fn next_delay(&self, job: &BuildJob) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(ObjectRef::from_obj(job)).or_default();
        let delay = Self::FIRST.saturating_mul(2_u32.saturating_pow(*count)).min(Self::LONGEST);
        *count += 1;
        delay
    }

    /// Forgets the failures of one that has succeeded, or is gone.
    pub(super) fn clear(&self, job: &BuildJob) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&ObjectRef::from_obj(job));
    }

    /// Forgets those that went unseen.
    pub(super) fn retain(&self, jobs: &Cache<BuildJob>) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|object, _| jobs.get(object).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::cache;

    #[test]
    fn failures_are_counted_for_each_and_forgotten_with_it() {
        let failures = Failures::default();
        let job = |name: &str| {
            let mut job = BuildJob::new(name, bk_api::BuildJobSpec::default());
            job.metadata.namespace = Some("ci".to_owned());
            job
        };
        let delays = [(); 10].map(|()| failures.next_delay(&job("a")));
        assert_eq!(
            (delays[0], delays[1], delays[9]),
            (Failures::FIRST, Failures::FIRST * 2, Failures::LONGEST)
        );
        assert_eq!(failures.next_delay(&job("b")), Failures::FIRST);
        failures.clear(&job("a"));
        assert_eq!(failures.next_delay(&job("a")), Failures::FIRST);
        let (none, _feed) = cache();
        failures.retain(&none);
        assert_eq!(failures.next_delay(&job("b")), Failures::FIRST);
    }
}
