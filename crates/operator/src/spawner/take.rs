//! Carrying out a choice: reserve, read, create.

use std::{collections::BTreeSet, time::Instant};

use bk_api::{BuildJob, names};
use bk_buildkite::stacks::ReserveJobs;
use bk_plan::intake::{self, Candidate, JobDetails};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{Api, ResourceExt, api::PostParams};
use tracing::Instrument;
use uuid::Uuid;

use super::Spawner;
use crate::error::Error;

/// How many jobs are read and created at once.
const CONCURRENCY: usize = 16;

impl Spawner {
    /// Reserves the chosen jobs that are not here yet, and makes BuildJobs of those that became ours.
    pub(super) async fn carry_out(&mut self, choice: &[Candidate]) -> Result<(), Error> {
        let here = self.here();
        let missing: Vec<&Candidate> =
            choice.iter().filter(|candidate| !here.contains(&candidate.uuid)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let request = ReserveJobs {
            job_uuids: missing.iter().filter_map(|candidate| candidate.uuid.parse().ok()).collect(),
            reservation_expiry_seconds: Some(self.reservation_seconds),
        };
        let ours: BTreeSet<Uuid> =
            self.buildkite.reserve(&self.stack_key, &request).await?.reserved.into_iter().collect();
        let spawner = &*self;
        let created: Vec<Option<String>> = stream::iter(missing)
            .filter_map(|candidate| {
                let job = candidate.uuid.parse().ok().filter(|job| ours.contains(job));
                std::future::ready(job.map(|job| (job, candidate)))
            })
            .map(|(job, candidate)| spawner.take(job, candidate))
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await?;
        let now = Instant::now();
        self.created.extend(created.into_iter().flatten().map(|uuid| (uuid, now)));
        Ok(())
    }

    /// Makes a BuildJob of one reserved job. None if Buildkite has taken it back.
    async fn take(&self, job: Uuid, candidate: &Candidate) -> Result<Option<String>, Error> {
        let span = tracing::info_span!(
            "job",
            build_job = names::build_job(&candidate.uuid),
            job_uuid = candidate.uuid
        );
        async {
            let details = match self.buildkite.job(&self.stack_key, job).await {
                Ok(details) => JobDetails { env: details.env, command: details.command },
                Err(error) if error.is_settled() => {
                    tracing::info!(error = %bk_ops::report::one_line(&error), "the job is gone again");
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let build_job = intake::build_job(candidate, &self.offer.queue, &self.namespace, &details);
            self.create(&build_job).await?;
            Ok(Some(candidate.uuid.clone()))
        }
        .instrument(span)
        .await
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
