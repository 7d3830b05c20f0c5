//! Keeping the jobs that wait inside the cluster ours.

use std::{sync::Arc, time::Duration};

use bk_api::BuildJob;
use bk_buildkite::stacks::BATCH_MAX;
use bk_ops::jitter;
use bk_plan::{decide::is_acquired, intake::pace};
use uuid::Uuid;

use crate::{
    cache::Cache,
    error::Error,
    intake::{Intake, Intakes},
};

/// How often reservations are extended: several times in the quarter of an hour that one holds.
const INTERVAL: Duration = Duration::from_mins(4);

/// Extends the reservations of a queue's jobs for as long as the process lives.
pub(super) async fn extend(intake: &Arc<dyn Intake>, intakes: &Intakes, jobs: &Cache<BuildJob>) {
    let mut failures = 0;
    loop {
        let ours: Vec<Uuid> = jobs
            .all()
            .iter()
            .filter(|job| is_waiting(job) && Arc::ptr_eq(intakes.of(job), intake))
            .filter_map(|job| job.job_uuid()?.parse().ok())
            .collect();
        let pause = match reserve(intake.as_ref(), &ours).await {
            Ok(()) => {
                failures = 0;
                INTERVAL
            }
            Err(error) => {
                failures += 1;
                let queue = intake.queue();
                let pause = pace::after_failures(failures, error.retry_after(), jitter::fraction());
                tracing::warn!(error = bk_ops::report::one_line(&error), queue, "cannot extend reservations");
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn reserve(intake: &dyn Intake, jobs: &[Uuid]) -> Result<(), Error> {
    for batch in jobs.chunks(BATCH_MAX) {
        // Those that are not ours any more are found out by their state.
        let reserved = intake.reserve(batch).await?.len();
        tracing::debug!(queue = intake.queue(), jobs = batch.len(), reserved, "reservations extended");
    }
    Ok(())
}

/// Whether a BuildJob came from a queue, and no agent is known to have its job: its containers may run, and the agent among them may
/// not get through to Buildkite for a while.
fn is_waiting(job: &BuildJob) -> bool {
    job.is_spawned() && !job.is_terminal() && !is_acquired(&job.status_or_default())
}

#[cfg(test)]
mod tests {
    use bk_api::{BuildJobSpec, BuildJobStatus, Phase, names};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::not_begun(Phase::Pending, false, true)]
    #[case::an_agent_that_does_not_get_through(Phase::Running, false, true)]
    #[case::an_agent_has_it(Phase::Running, true, false)]
    #[case::it_has_ended(Phase::Failed, false, false)]
    fn jobs_without_an_agent_stay_ours(#[case] phase: Phase, #[case] acquired: bool, #[case] waits: bool) {
        let mut job = BuildJob::new("a", BuildJobSpec::default());
        assert!(!is_waiting(&job), "it did not come from a queue");
        job.metadata.labels = Some([(names::LABEL_SPAWNED_FROM.to_owned(), "linux".to_owned())].into());
        let condition = json!({
            "type": "Acquired", "status": if acquired { "True" } else { "False" }, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let conditions = serde_json::from_value(json!([condition])).unwrap();
        job.status = Some(BuildJobStatus { phase, conditions, ..BuildJobStatus::default() });
        assert_eq!(is_waiting(&job), waits);
    }
}
