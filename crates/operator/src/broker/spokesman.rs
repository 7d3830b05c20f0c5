//! Ends jobs for agents that cannot, with the sessions that they have left.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bk_api::{BuildJob, Verdict, VerdictCode};
use bk_buildkite::{
    Registrar, Session,
    session::{End, Finished, group},
};
use bk_plan::{broker::SessionRecord, facts::PodFacts, verdicts};
use secrecy::SecretString;
use uuid::Uuid;

use super::sessions::Sessions;
use crate::{error::Error, leadership::Tenure};

/// How long the last words in a job's log may take. Its end matters more.
const WORDS: Duration = Duration::from_secs(2);

/// Speaks for agents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Spokesman {
    sessions: Option<Sessions>,
    registrar: Registrar,
    tenure: Option<Tenure>,
    /// Agents that were not who they said, by their ids.
    exposed: Arc<Mutex<HashSet<String>>>,
}

impl Spokesman {
    pub(super) fn new(sessions: Option<Sessions>, registrar: Registrar) -> Self {
        Self { sessions, registrar, tenure: None, exposed: Arc::default() }
    }

    /// The same; nothing is said any more once the Lease may be somebody else's.
    #[must_use]
    pub(crate) fn fenced(self, tenure: Option<&Tenure>) -> Self {
        Self { tenure: tenure.cloned(), ..self }
    }

    /// Waits until it is known for whom it can speak.
    pub(crate) async fn complete(&self) {
        if let Some(sessions) = &self.sessions {
            sessions.complete().await;
        }
    }

    /// The session of the agent of a BuildJob's current attempt.
    pub(crate) fn session(&self, job: &BuildJob) -> Option<SessionRecord> {
        let record = self.sessions.as_ref()?.get(job.job_uuid()?)?;
        let uid = job.metadata.uid.as_deref()?;
        Some(record).filter(|record| record.is_of(uid, job.status_or_default().attempt))
    }

    /// All sessions, by job.
    pub(crate) fn all(&self) -> Vec<(String, SessionRecord)> {
        self.sessions.as_ref().map(Sessions::all).unwrap_or_default()
    }

    /// Ends a job for its agent, with the verdict as the last words in its log.
    pub(crate) async fn end(
        &self,
        job: Uuid,
        record: &SessionRecord,
        verdict: &Verdict,
    ) -> Result<Finished, Error> {
        if self.tenure.as_ref().is_some_and(|tenure| !tenure.holds()) {
            return Err(Error::Setup(
                "the Lease may be another replica's: no job is ended any more".to_owned(),
            ));
        }
        let session = self.of(record)?;
        let words = group("The job was ended by buildkite-operator", &verdict.sentence());
        match tokio::time::timeout(WORDS, session.conclude(job, &words)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(
                    error = bk_ops::report::one_line(&error),
                    "the job's log does not say why it ends"
                );
            }
            Err(_) => tracing::debug!("the job's log does not say why it ends: that took too long"),
        }
        let (exit_status, signal, signal_reason) = verdicts::in_agents_words(verdict);
        let end = End { exit_status, signal: signal.to_owned(), signal_reason: signal_reason.to_owned() };
        let finished = session.finish(job, &end, 0).await?;
        session.disconnect().await;
        Ok(finished)
    }

    /// Forgets the session of a BuildJob whose job has ended.
    pub(crate) fn forget(&self, job: &BuildJob) {
        if let (Some(sessions), Some(uuid), Some(uid)) = (&self.sessions, job.job_uuid(), &job.metadata.uid) {
            sessions.remove(uuid, uid);
        }
    }

    /// Forgets a session.
    pub(crate) fn forget_record(&self, job: &str, record: &SessionRecord) {
        if let Some(sessions) = &self.sessions {
            sessions.remove(job, &record.build_job);
        }
    }

    /// Looks whether the agent of a pod has registered from where the pod is, now that this is known; if not, it was somebody else, whose session
    /// ends, and the job with it. The one-time token stays used.
    pub(crate) fn compare(&self, job_uuid: &str, attempt: u32, facts: &PodFacts) {
        let Some(record) = self.sessions.as_ref().and_then(|sessions| sessions.get(job_uuid)) else { return };
        let (Some(address), Some(known)) = (&record.address, &facts.addresses) else { return };
        let is_it = address.parse().is_ok_and(|address| known.contains(&address));
        let mut exposed = self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_it || record.attempt != attempt || !exposed.insert(record.agent.clone()) {
            return;
        }
        tracing::error!(
            pod = facts.name,
            address,
            "somebody else has registered as a pod's agent: its session ends"
        );
        let (speaker, Ok(job)) = (self.clone(), job_uuid.parse()) else { return };
        let message = format!("somebody at {address}, where its pod is not, registered as the job's agent");
        let verdict = Verdict::new(VerdictCode::AgentLost, message);
        tokio::spawn(async move {
            if let Err(error) = speaker.end(job, &record, &verdict).await {
                // The next look at its pod finds it again.
                speaker.exposed.lock().unwrap_or_else(PoisonError::into_inner).remove(&record.agent);
                tracing::error!(
                    error = bk_ops::report::one_line(&error),
                    "cannot end the session of somebody else"
                );
            }
        });
    }

    fn of(&self, record: &SessionRecord) -> Result<Session, Error> {
        let token = SecretString::from(record.token.clone());
        Ok(self.registrar.session(record.endpoint.as_deref(), &token)?)
    }
}
