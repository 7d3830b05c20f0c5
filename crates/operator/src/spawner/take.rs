//! From a reserved job to its BuildJob.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bk_api::{
    BuildJob,
    config::{Queue, ValidationConfig},
    names,
};
use bk_buildkite::stacks::{FINISH_DETAIL_MAX, FinishJob, crop};
use bk_plan::{
    admission::rules,
    intake::{self, Candidate},
    surroundings::Surroundings,
    timeline,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::sync::Semaphore;
use tracing::Instrument;
use uuid::Uuid;

use super::Slots;
use crate::{
    error::Error,
    intake::{Details, Intake},
    wakefulness::Wakefulness,
};

/// How old Buildkite's word on a job may be when its BuildJob is created.
const OUTDATED: Duration = Duration::from_secs(10);

/// What it needs to make BuildJobs of a queue's jobs. Cheap to clone.
#[derive(Clone)]
pub(super) struct Taker {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) terms: Arc<Queue>,
    /// What users demand of jobs.
    pub(super) validation: Arc<ValidationConfig>,
    pub(super) intake: Arc<dyn Intake>,
    pub(super) slots: Slots,
    /// How many jobs may be read and created at once.
    pub(super) permits: Arc<Semaphore>,
    pub(super) wakefulness: Arc<Wakefulness>,
    /// With whom the written choice goes.
    pub(super) owner: Option<OwnerReference>,
    /// Whether other replicas may write choices of the same stack.
    pub(super) is_fenced: bool,
    /// The version of the written choice that was read or written last.
    pub(super) version: Arc<Mutex<Option<String>>>,
}

/// What became of a reserved job.
pub(super) enum Taken {
    /// It has a BuildJob.
    Created,
    /// Buildkite has taken it back, or has been told that it cannot run here.
    Gone,
    /// Nothing yet, for a reason that can pass; it had failed so often before, and whoever refused may ask for a pause.
    Failed { before: u32, asked: Option<Duration> },
}

impl Taker {
    /// Makes a BuildJob of one reserved job, and notes that in the ledger.
    pub(super) async fn take(&self, job: Uuid, candidate: &Candidate, failures: u32) -> Taken {
        let reserved_at = Timestamp::now();
        // The semaphore is never closed; without a permit the work is merely not bounded.
        let _permit = self.permits.acquire().await.ok();
        let build_job = names::build_job(&candidate.uuid);
        let span = tracing::info_span!("job", build_job, job_uuid = candidate.uuid);
        match self.try_to_take(job, candidate, reserved_at).instrument(span).await {
            Ok(Taken::Created) => {
                self.slots.ledger().created(&candidate.uuid, Instant::now());
                Taken::Created
            }
            Ok(taken) => {
                self.slots.ledger().release(&candidate.uuid);
                taken
            }
            Err(error) => Taken::Failed { before: failures, asked: error.retry_after() },
        }
    }

    /// Makes a BuildJob of a job that a process before this one has chosen and reserved, unless it has one.
    pub(super) async fn make_up(&self, job: Uuid, candidate: &Candidate) -> Result<(), Error> {
        if self.slots.ledger().has(&candidate.uuid) {
            return Ok(());
        }
        let span = tracing::info_span!("job", job_uuid = candidate.uuid);
        self.try_to_take(job, candidate, Timestamp::now()).instrument(span).await.map(drop)
    }

    async fn try_to_take(
        &self,
        job: Uuid,
        candidate: &Candidate,
        reserved_at: Timestamp,
    ) -> Result<Taken, Error> {
        let error = match self.make(job, candidate, reserved_at).await {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        let error_line = bk_ops::report::one_line(&error);
        let Some(reason) = error.refusal() else {
            tracing::warn!(error = error_line, "cannot take the job yet");
            return Err(error);
        };
        tracing::warn!(error = error_line, "the job cannot run here");
        let detail = match &error {
            Error::Refused(verdict) => verdict.sentence(),
            _ => format!("the operator cannot make a BuildJob of this job: {reason}"),
        };
        self.give_back(job, &detail).await?;
        Ok(Taken::Gone)
    }

    async fn make(&self, job: Uuid, candidate: &Candidate, reserved_at: Timestamp) -> Result<Taken, Error> {
        let asked = tokio::time::Instant::now();
        match self.intake.details(job).await? {
            Details::Known(details) => {
                let age = asked.elapsed();
                if age > OUTDATED || self.wakefulness.has_slept_since(asked) {
                    return Err(Error::Outdated(age));
                }
                let mut build_job = intake::build_job(candidate, &self.terms, &self.namespace, &details);
                // Those that speak of its pod or its environments are for the controller, which makes it. So is a step that cannot be read: what is
                // wrong with it is not what rules say of the empty BuildJob.
                if !intake::needs_details(&build_job)
                    && let Some(verdict) =
                        rules::refusal(&build_job, None, &Surroundings::default(), &self.validation)
                {
                    return Err(Error::Refused(Box::new(verdict)));
                }
                timeline::stamp(&mut build_job, candidate.scheduled_at, reserved_at);
                self.create(&build_job).await?;
                Ok(Taken::Created)
            }
            Details::Ended(state) => {
                tracing::info!(?state, "the job is gone again");
                Ok(Taken::Gone)
            }
        }
    }

    /// Ends a job in Buildkite that can never have a BuildJob.
    async fn give_back(&self, job: Uuid, detail: &str) -> Result<(), Error> {
        let detail = crop(detail, FINISH_DETAIL_MAX);
        let finished = self.intake.finish(job, &FinishJob { exit_status: -1, detail }).await;
        finished.map(drop).inspect_err(|error| {
            tracing::warn!(error = bk_ops::report::one_line(error), "cannot end the job yet");
        })
    }

    async fn create(&self, build_job: &BuildJob) -> Result<(), Error> {
        let api = Api::<BuildJob>::namespaced(self.client.clone(), &self.namespace);
        let params =
            PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let name = build_job.name_any();
        match api.create(&params, build_job).await {
            Ok(_) => {
                tracing::info!("BuildJob created");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let attempt = format!("read BuildJob {}/{name}", self.namespace);
                let found = api.get_opt(&name).await.map_err(Error::kubernetes(attempt))?;
                is_same(found.as_ref(), build_job)
            }
            Err(error) => Err(Error::kubernetes(format!("create BuildJob {}/{name}", self.namespace))(error)),
        }
    }

    /// Looks whether the BuildJobs of claimed jobs are there, which the watch has not shown for long. Those that are keep
    /// their places; so do those about which nothing can be learnt.
    pub(super) async fn look_for(&self, jobs: &[String]) {
        let api = Api::<BuildJob>::namespaced(self.client.clone(), &self.namespace);
        for uuid in jobs {
            match api.get_metadata_opt(&names::build_job(uuid)).await {
                Ok(Some(_)) => self.slots.ledger().created(uuid, Instant::now()),
                Ok(None) => self.slots.ledger().release(uuid),
                Err(error) => {
                    let error = bk_ops::report::one_line(&error);
                    return tracing::warn!(error, "cannot tell whether BuildJobs are there that do not show");
                }
            }
        }
    }
}

/// Whether what has the name of a BuildJob is that BuildJob, and stays.
fn is_same(found: Option<&BuildJob>, wanted: &BuildJob) -> Result<(), Error> {
    match found {
        Some(found) if found.job_uuid() != wanted.job_uuid() => Err(Error::NameTaken(wanted.name_any())),
        Some(found) if found.metadata.deletion_timestamp.is_none() => Ok(()),
        // It was deleted just now, or is about to be.
        _ => Err(Error::Leaving(wanted.name_any())),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bk_api::config::SpawnerConfig;

    use super::*;
    use crate::{api_server::ApiServer, intake::fake::Fake};

    /// A job by its number.
    pub(crate) fn candidate(number: u128) -> Candidate {
        Candidate {
            uuid: Uuid::from_u128(number).to_string(),
            pipeline: None,
            priority: 0,
            scheduled_at: Timestamp::UNIX_EPOCH,
            rules: Vec::new(),
        }
    }

    /// What makes BuildJobs of a queue's jobs at an API server.
    pub(crate) fn taker(server: &ApiServer, intake: Arc<Fake>) -> Taker {
        let config = SpawnerConfig { queue: Some("q".to_owned()), ..SpawnerConfig::default() };
        Taker {
            client: server.cluster.calls.clone(),
            namespace: "ci".to_owned(),
            terms: Arc::new(Queue { stack_key: "stack-of-q".to_owned(), ..config.main_queue() }),
            validation: Arc::default(),
            intake,
            slots: Slots::new(&config),
            permits: Arc::new(Semaphore::new(1)),
            wakefulness: Arc::new(Wakefulness::new()),
            owner: None,
            is_fenced: false,
            version: Arc::default(),
        }
    }

    fn existing(number: u128, metadata: &serde_json::Value) -> BuildJob {
        let spec = serde_json::json!({"buildkite": {"jobUUID": candidate(number).uuid}});
        serde_json::from_value(serde_json::json!({
            "apiVersion": "buildkite-operator.dev/v1alpha1", "kind": "BuildJob", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn only_a_build_job_of_the_same_job_that_stays_is_the_one_that_is_wanted() {
        let wanted = existing(1, &serde_json::json!({"name": "wanted"}));
        let leaving = serde_json::json!({"name": "wanted", "deletionTimestamp": "2026-11-16T07:00:00Z"});
        assert!(is_same(Some(&wanted), &wanted).is_ok());
        let gone = is_same(None, &wanted).unwrap_err();
        let going = is_same(Some(&existing(1, &leaving)), &wanted).unwrap_err();
        assert_eq!((gone.refusal(), going.refusal()), (None, None), "it is tried again");
        let other = is_same(Some(&existing(2, &serde_json::json!({"name": "wanted"}))), &wanted).unwrap_err();
        assert!(other.refusal().is_some_and(|words| words.contains("wanted")), "{other}");
    }

    #[tokio::test]
    async fn a_claim_ends_only_when_its_build_job_is_known_to_be_gone() {
        let server = ApiServer::start(|call, _| match &call.path {
            path if path.ends_with('1') => (200, serde_json::json!({"metadata": {"name": "one"}})),
            path if path.ends_with('2') => crate::api_server::refusal(404, "NotFound"),
            _ => crate::api_server::refusal(500, "InternalError"),
        })
        .await;
        let taker = taker(&server, Arc::new(Fake::default()));
        let jobs = [candidate(1), candidate(2), candidate(3)];
        taker.slots.ledger().resume(0, jobs.to_vec());
        taker.look_for(&jobs.clone().map(|job| job.uuid)).await;
        let held = jobs.map(|job| taker.slots.ledger().has(&job.uuid));
        assert_eq!(held, [true, false, true]);
    }
}
