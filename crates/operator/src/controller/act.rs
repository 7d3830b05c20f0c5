//! Performs a decision step by step. Writes only.

use std::fmt::Debug;

use bk_api::{BuildJob, BuildJobStatus, Fault, Verdict, VerdictCode, names};
use bk_buildkite::stacks::{FINISH_DETAIL_MAX, FinishJob, crop};
use bk_plan::{
    decide::{self, Action, Decision, Observed},
    facts::PodFacts,
    origin::Origin,
    recall::{Recall, Spoke},
    verdicts::Blocker,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::NamespaceResourceScope,
    runtime::events::{Event, EventType},
};

use super::{Context, endings, observe, workload};
use crate::{error::Error, intake::Finished};

/// Whether all steps were taken, and when to look again.
pub(super) enum Outcome {
    Done(Option<SignedDuration>),
    /// What the decision was based on has changed meanwhile: look again.
    Overtaken,
    /// Buildkite will not have the job ended: look again when it has said how the job stands.
    Unsettled,
}

/// Whether the steps that follow still make sense.
pub(super) enum Progress {
    Continue,
    /// Another writer of the status was quicker.
    Overtaken,
    /// Buildkite refuses to end the job: an agent has it after all, it has ended, or it waits for something else.
    Unsettled,
    /// The agent has ended its job by itself, before it could be ended for it.
    Outrun,
    /// What runs the job was not created; the API server may ask for a pause.
    NotCreated {
        blocker: Box<Blocker>,
        pause: Option<SignedDuration>,
        attempt: u32,
    },
}

/// Performs the steps in order; the first that fails ends the round, and the next round continues from there.
pub(super) async fn perform(
    context: &Context,
    seen: &Observed<'_>,
    decision: &Decision,
) -> Result<Outcome, Error> {
    let mut round = Round {
        context,
        job: seen.job,
        pod: seen.pod.as_ref(),
        version: seen.job.resource_version(),
        written: None,
    };
    round.take(seen, decision).await
}

/// A round of steps on one BuildJob.
struct Round<'a> {
    context: &'a Context,
    job: &'a BuildJob,
    pod: Option<&'a PodFacts>,
    /// The version of the BuildJob that the next write is based on.
    version: Option<String>,
    /// The status that this round has written last.
    written: Option<BuildJobStatus>,
}

impl Round<'_> {
    /// Takes the steps of a decision, or of the one that replaces it when the pod cannot be created.
    async fn take(&mut self, seen: &Observed<'_>, decision: &Decision) -> Result<Outcome, Error> {
        for action in &decision.actions {
            match self.step(action).await? {
                Progress::Continue => {}
                Progress::Overtaken => return Ok(Outcome::Overtaken),
                Progress::Unsettled => return Ok(Outcome::Unsettled),
                Progress::Outrun => {
                    let mut job = seen.job.clone();
                    job.status = self.written.clone().or(job.status);
                    let instead =
                        decide::outrun(&Observed { job: &job, ..seen.clone() }, &self.context.rules);
                    return Box::pin(self.take(seen, &instead)).await;
                }
                Progress::NotCreated { blocker, pause, attempt } => {
                    let mut job = seen.job.clone();
                    job.status = self.written.clone().or(job.status);
                    let seen = &Observed { job: &job, ..seen.clone() };
                    let mut instead = decide::not_created(seen, &self.context.rules, &blocker);
                    instead.look_again = instead.look_again.map(|wait| wait.max(pause.unwrap_or_default()));
                    let retry_at = Timestamp::now() + instead.look_again.unwrap_or_default();
                    let needs_room = blocker.verdict.code == VerdictCode::QuotaExceeded;
                    self.context.recalls.failed(self.job, attempt, retry_at, needs_room);
                    tracing::warn!(reason = blocker.verdict.message, retry_at = %retry_at, "cannot create the pod");
                    return Box::pin(self.take(seen, &instead)).await;
                }
            }
        }
        Ok(Outcome::Done(decision.look_again))
    }

    async fn step(&mut self, action: &Action) -> Result<Progress, Error> {
        let Self { context, job, .. } = *self;
        match action {
            Action::CreatePod(pod) => {
                return self.create(pod.as_ref(), |pod| Some(PodFacts::of(pod))).await;
            }
            Action::CreateBatchJob(batch_job) => return self.create(batch_job.as_ref(), |_| None).await,
            Action::DeletePod { name, uid, at_once } => {
                let grace = at_once.then_some(0);
                workload::delete::<Pod>(context, name, uid, PropagationPolicy::Background, grace).await?;
            }
            // It stays until its pod is gone: nothing else would tell that that still runs.
            Action::DeleteBatchJob { name, uid } => {
                workload::delete::<Job>(context, name, uid, PropagationPolicy::Foreground, None).await?;
            }
            Action::WriteStatus(status) => return self.write_status(status).await,
            Action::FinishRemote(verdict) => return finish_remote(context, job, verdict).await,
            Action::EndForAgent(verdict) => return end_for_agent(context, job, verdict).await,
            Action::EvictPod { name, uid } => workload::evict(context, name, uid).await?,
            Action::Notify(verdict) => notify(context, job, &verdict.sentence()),
            Action::Explain(reason) => {
                notify(context, job, &format!("The job waits: {reason}"));
                context.recalls.note(job, |recall| recall.told(reason.clone(), Timestamp::now()));
            }
            Action::Remark(text) => notify(context, job, text),
            Action::DeleteJob { unrecorded } => return self.delete_job(unrecorded.as_deref()).await,
        }
        Ok(Progress::Continue)
    }

    /// Creates what runs the job, and remembers whether that was done, and the pod.
    async fn create<K>(&self, object: &K, pod: impl Fn(&K) -> Option<PodFacts>) -> Result<Progress, Error>
    where
        K: Origin + Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let Self { context, job, .. } = *self;
        let attempt = object.attempt().unwrap_or_default();
        let error = match workload::create(context, job, object).await {
            Ok(created) => {
                context.recalls.created(job, attempt, pod(&created));
                return Ok(Progress::Continue);
            }
            Err(error) => error,
        };
        match error.of_creation() {
            Some(blocker) => {
                let pause = error.retry_after().and_then(|pause| pause.try_into().ok());
                Ok(Progress::NotCreated { blocker: Box::new(blocker), pause, attempt })
            }
            None => Err(error),
        }
    }

    /// Writes the status unless the BuildJob has changed since it was looked at: a decision on an old view
    /// must not undo a newer one.
    async fn write_status(&mut self, status: &BuildJobStatus) -> Result<Progress, Error> {
        let Self { context, job, .. } = *self;
        let name = job.name_any();
        let api = Api::<BuildJob>::namespaced(context.client.clone(), &context.namespace);
        let patch = serde_json::json!({
            "apiVersion": BuildJob::api_version(&()),
            "kind": BuildJob::kind(&()),
            "metadata": { "name": name, "uid": job.metadata.uid, "resourceVersion": self.version },
            "status": status,
        });
        let params = PatchParams::apply(names::FIELD_MANAGER).force();
        match api.patch_status(&name, &params, &Patch::Apply(&patch)).await {
            Ok(written) => {
                let before = std::mem::replace(&mut self.version, written.resource_version());
                context.recalls.note(job, |recall| recall.wrote(before));
                self.written = Some(status.clone());
            }
            // Changed or deleted meanwhile.
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => {
                return Ok(Progress::Overtaken);
            }
            Err(error) => {
                let attempt = format!("write the status of BuildJob {}/{name}", context.namespace);
                return Err(Error::kubernetes(attempt)(error));
            }
        }
        self.report(status).await;
        Ok(Progress::Continue)
    }

    /// Deletes the BuildJob. If its end is not on record, a decision on an old view must not decide over it.
    async fn delete_job(&self, unrecorded: Option<&BuildJobStatus>) -> Result<Progress, Error> {
        let Self { context, job, .. } = *self;
        let name = job.name_any();
        let api = Api::<BuildJob>::namespaced(context.client.clone(), &context.namespace);
        let preconditions = Preconditions {
            uid: job.metadata.uid.clone(),
            resource_version: unrecorded.and_then(|_| self.version.clone()),
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        // The watch may tell of it before the answer does.
        context.recalls.note(job, Recall::deleted);
        let answer = api.delete(&name, &params).await;
        if answer.is_err() {
            context.recalls.note(job, Recall::not_deleted);
        }
        match answer {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && unrecorded.is_none() => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                return Ok(Progress::Overtaken);
            }
            Err(error) => {
                return Err(Error::kubernetes(format!("delete BuildJob {}/{name}", context.namespace))(
                    error,
                ));
            }
        }
        if let Some(status) = unrecorded {
            self.report(status).await;
        }
        tracing::debug!("BuildJob deleted");
        Ok(Progress::Continue)
    }

    /// Tells everybody how the job stands, and metrics and traces how it ended, once.
    async fn report(&self, status: &BuildJobStatus) {
        let Self { context, job, pod, .. } = *self;
        if status.phase.is_terminal() && !job.is_terminal() {
            endings::ended(context, job, status, pod);
        }
        report(context, job, status).await;
    }
}

/// Tells the log, and `kubectl describe` if something went wrong, how the job stands.
async fn report(context: &Context, job: &BuildJob, status: &BuildJobStatus) {
    let phase = status.phase;
    if !phase.is_terminal() {
        tracing::info!(?phase, waiting_for = status.waiting_for, "job");
        return;
    }
    let Some(verdict) = &status.verdict else {
        return;
    };
    tracing::info!(
        ?phase,
        verdict = verdict.code.as_str(),
        exit_status = verdict.exit_status,
        reason = verdict.message,
        "job ended"
    );
    if verdict.fault == Fault::None {
        return;
    }
    let event = Event {
        type_: EventType::Warning,
        reason: verdict.code.as_str().to_owned(),
        note: Some(crop(&verdict.sentence(), 1024)),
        action: "Running".to_owned(),
        secondary: None,
    };
    if let Err(error) = context.recorder.publish(&event, &job.object_ref(&())).await {
        tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot publish an event");
    }
}

pub(super) async fn finish_remote(
    context: &Context,
    job: &BuildJob,
    verdict: &Verdict,
) -> Result<Progress, Error> {
    let Some(uuid) = observe::uuid(job) else {
        return Ok(Progress::Continue);
    };
    let finish = FinishJob {
        exit_status: verdict.exit_status.unwrap_or(-1),
        detail: crop(&verdict.sentence(), FINISH_DETAIL_MAX),
    };
    Ok(match context.intakes.of(job).finish(uuid, &finish).await? {
        Finished::Now => Progress::Continue,
        Finished::Settled => Progress::Unsettled,
    })
}

/// Ends a job for its agent, which cannot.
async fn end_for_agent(context: &Context, job: &BuildJob, verdict: &Verdict) -> Result<Progress, Error> {
    let (Some(uuid), Some(record)) = (observe::uuid(job), context.spokesman.session(job)) else {
        // Somebody else has it by now, or nobody.
        return Ok(Progress::Unsettled);
    };
    if context.recalls.of(job).holds_its_tongue(record.attempt, Timestamp::now()) {
        return Ok(Progress::Unsettled);
    }
    let finished = context.spokesman.end(uuid, &record, verdict).await;
    // What Buildkite said before may not be true any more, whatever came of it.
    let outcome = match &finished {
        Ok(Finished::Now) => Spoke::Ended,
        Ok(Finished::Settled) => Spoke::InVain,
        Err(_) => Spoke::Failed,
    };
    context.recalls.note(job, |recall| recall.spoke(record.attempt, Timestamp::now(), outcome));
    let finished = finished?;
    tracing::info!(verdict = verdict.code.as_str(), ?finished, "ended the job for its agent");
    Ok(match finished {
        Finished::Now => Progress::Continue,
        Finished::Settled => Progress::Outrun,
    })
}

/// Best effort: the verdict is in the BuildJob's status in any case.
pub(super) fn notify(context: &Context, job: &BuildJob, text: &str) {
    if let Some(job_uuid) = observe::uuid(job) {
        context.notices.send(context.intakes.of(job), job_uuid, text);
    }
}
