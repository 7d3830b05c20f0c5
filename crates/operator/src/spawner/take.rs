//! Carrying out a choice: reserve, read, create.

use std::{collections::BTreeSet, time::Instant};

use bk_api::{BuildJob, names};
use bk_buildkite::stacks::{BATCH_MAX, FINISH_DETAIL_MAX, FinishJob, ReserveJobs, crop};
use bk_plan::intake::{self, Candidate};
use futures::{StreamExt, stream};
use kube::{Api, ResourceExt, api::PostParams};
use tracing::Instrument;
use uuid::Uuid;

use super::Spawner;
use crate::{
    details::{self, Details},
    error::Error,
};

/// How many jobs are read and created at once.
const CONCURRENCY: usize = 16;

/// What became of a reserved job.
enum Taken {
    /// It has a BuildJob.
    Created,
    /// Buildkite has taken it back, or has been told that it cannot run here.
    Gone,
}

impl Spawner {
    /// Reserves the chosen jobs that are not here yet, and makes BuildJobs of those that became ours. What
    /// fails for reasons that can pass stays chosen; it does not keep other jobs from being taken.
    pub(super) async fn carry_out(&mut self) -> Result<(), Error> {
        let chosen = std::mem::take(&mut self.unfinished);
        let here = self.here();
        let missing: Vec<Candidate> =
            chosen.into_iter().filter(|candidate| !here.contains(&candidate.uuid)).collect();
        for batch in missing.chunks(BATCH_MAX) {
            if let Err(error) = self.take_batch(batch).await {
                // Those of the batches before have left their traces and are skipped the next time.
                self.unfinished = missing;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn take_batch(&mut self, batch: &[Candidate]) -> Result<(), Error> {
        let request = ReserveJobs {
            job_uuids: batch.iter().filter_map(|candidate| candidate.uuid.parse().ok()).collect(),
            reservation_expiry_seconds: Some(self.reservation_seconds),
        };
        let reservation = self.buildkite.reserve(&self.stack_key, &request).await?;
        let ours: BTreeSet<Uuid> = reservation.reserved.into_iter().collect();
        let ours = batch.iter().filter_map(|candidate| {
            let job = candidate.uuid.parse().ok().filter(|job| ours.contains(job))?;
            Some((job, candidate))
        });
        let spawner = &*self;
        let results: Vec<_> = stream::iter(ours)
            .map(|(job, candidate)| async move { (candidate, spawner.take(job, candidate).await) })
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for (candidate, result) in results {
            match result {
                Ok(Taken::Created) => {
                    self.created.insert(candidate.uuid.clone(), Instant::now());
                }
                Ok(Taken::Gone) => {}
                Err(_logged) => self.unfinished.push(candidate.clone()),
            }
        }
        Ok(())
    }

    /// Makes a BuildJob of one reserved job.
    async fn take(&self, job: Uuid, candidate: &Candidate) -> Result<Taken, Error> {
        let span = tracing::info_span!(
            "job",
            build_job = names::build_job(&candidate.uuid),
            job_uuid = candidate.uuid
        );
        async {
            let error = match self.try_take(job, candidate).await {
                Ok(taken) => return Ok(taken),
                Err(error) => error,
            };
            let error_line = bk_ops::report::one_line(&error);
            let Some(reason) = error.refusal() else {
                tracing::warn!(error = error_line, "cannot take the job yet");
                return Err(error);
            };
            tracing::warn!(error = error_line, "the job cannot run here");
            self.give_back(job, &reason).await?;
            Ok(Taken::Gone)
        }
        .instrument(span)
        .await
    }

    async fn try_take(&self, job: Uuid, candidate: &Candidate) -> Result<Taken, Error> {
        match details::read(&self.buildkite, &self.stack_key, job).await? {
            Details::Known(details) => {
                let build_job = intake::build_job(candidate, &self.offer.queue, &self.namespace, &details);
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
    async fn give_back(&self, job: Uuid, reason: &str) -> Result<(), Error> {
        let detail =
            crop(&format!("the operator cannot make a BuildJob of this job: {reason}"), FINISH_DETAIL_MAX);
        match self.buildkite.finish(&self.stack_key, job, &FinishJob { exit_status: -1, detail }).await {
            Err(error) if !error.is_settled() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn create(&self, build_job: &BuildJob) -> Result<(), Error> {
        let api = Api::<BuildJob>::namespaced(self.client.clone(), &self.namespace);
        let params =
            PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, build_job).await {
            Ok(_) => tracing::info!("BuildJob created"),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                let name = build_job.name_any();
                return Err(Error::kubernetes(format!("create BuildJob {}/{name}", self.namespace))(error));
            }
        }
        Ok(())
    }
}
