//! Jobs that were taken under another name at Buildkite, or from a queue that is served no longer.
//!
//! Only the stack that has reserved them may go on with them. So it is kept until they have ended: a choice of it that was not
//! carried out is, and its BuildJobs are extended, asked about and ended through it.

use std::{sync::Arc, time::Duration};

use bk_api::BuildJob;
use bk_buildkite::stacks::BATCH_MAX;
use bk_ops::jitter;
use bk_plan::intake::{Candidate, pace};
use uuid::Uuid;

use super::{departure, take::Taker};
use crate::{cache::Cache, error::Error, intake::Intakes};

/// How often to look whether anything is left to see through. The stack is made known again each time.
const INTERVAL: Duration = Duration::from_mins(1);

/// Sees through what a stack has taken, and ends it.
pub(super) async fn see_through(taker: &Taker, intakes: &Intakes, jobs: &Cache<BuildJob>) {
    let (queue, stack) = (taker.intake.queue(), &taker.terms.stack_key);
    tracing::info!(queue, stack, "sees jobs through that were taken under another name");
    let mut choice = None;
    let mut failures = 0;
    loop {
        let pause = match round(taker, &mut choice).await {
            Ok(()) => {
                failures = 0;
                INTERVAL
            }
            Err(error) => {
                failures += 1;
                let pause = pace::after_failures(failures, error.retry_after(), jitter::fraction());
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, queue, stack, ?pause, "cannot see jobs of a former stack through");
                // Nothing waits for it but what is reserved for a quarter of an hour.
                pause.max(INTERVAL / 10)
            }
        };
        let is_left =
            jobs.all().iter().any(|job| !job.is_terminal() && Arc::ptr_eq(intakes.of(job), &taker.intake));
        if choice.as_ref().is_some_and(Vec::is_empty) && !is_left {
            return departure::leave(taker.intake.as_ref()).await;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Carries out what is left of the stack's last choice.
async fn round(taker: &Taker, choice: &mut Option<Vec<Candidate>>) -> Result<(), Error> {
    taker.intake.join().await?;
    let left = match choice {
        Some(left) => left,
        None => choice.insert(taker.read_intent().await?),
    };
    if left.is_empty() {
        return Ok(());
    }
    let mut failure = None;
    for batch in std::mem::take(left).chunks(BATCH_MAX) {
        let ids: Vec<Uuid> = batch.iter().filter_map(|candidate| candidate.uuid.parse().ok()).collect();
        let ours = match taker.intake.reserve(&ids).await {
            Ok(ours) => ours,
            Err(error) => {
                left.extend_from_slice(batch);
                failure = Some(error);
                continue;
            }
        };
        for candidate in batch {
            let Some(job) = candidate.uuid.parse().ok().filter(|job| ours.contains(job)) else { continue };
            if let Err(error) = taker.make_up(job, candidate).await {
                left.push(candidate.clone());
                failure = Some(error);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    // The ConfigMap stays, and says that nothing is left.
    taker.write_intent(&[]).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::http::Method;
    use bk_api::names;
    use serde_json::json;

    use super::*;
    use crate::{
        api_server::ApiServer,
        intake::fake::Fake,
        settings::intents,
        spawner::take::tests::{candidate, taker},
    };

    #[tokio::test]
    async fn what_a_former_stack_has_chosen_is_carried_out_by_it() {
        let chosen = [candidate(1), candidate(2), candidate(3)];
        let written = serde_json::to_string(&chosen).unwrap();
        let server = ApiServer::start(move |call, _| match call.method {
            Method::GET => (200, json!({"metadata": {"name": "any"}, "data": {intents::JOBS: written}})),
            _ => (200, call.body.clone()),
        })
        .await;
        // The first has been taken by somebody else since; the second cannot be read at once.
        let fake = Arc::new(Fake::with([candidate(2), candidate(3)]));
        let taker = taker(&server, fake.clone());
        let mut choice = None;
        fake.fail("details", 503, 1);
        assert!(round(&taker, &mut choice).await.is_err());
        round(&taker, &mut choice).await.unwrap();
        assert_eq!(choice, Some(vec![]));

        let mut calls = server.calls();
        let last = calls.pop().unwrap();
        assert_eq!((&last.method, last.body["data"][intents::JOBS].as_str()), (&Method::PATCH, Some("[]")));
        assert!(last.path.ends_with("/buildkite-operator-intent-stack-of-q"), "{}", last.path);
        let created: Vec<_> = calls.into_iter().filter(|call| call.method == Method::POST).collect();
        let stacks =
            created.iter().map(|call| &call.body["metadata"]["annotations"][names::ANNOTATION_STACK]);
        assert!(stacks.into_iter().all(|stack| stack == "stack-of-q"));
        let names: BTreeSet<_> =
            created.iter().map(|call| call.body["metadata"]["name"].to_string()).collect();
        let expected = [2, 3].map(|number| format!("{:?}", names::build_job(&candidate(number).uuid)));
        assert_eq!(names, BTreeSet::from(expected));
    }
}
