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
use crate::{error::Error, leadership::Tenure, telemetry::Metrics};

/// How long the last words in a job's log may take. Its end matters more.
const WORDS: Duration = Duration::from_secs(2);

/// Speaks for agents. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Spokesman {
    sessions: Option<Sessions>,
    registrar: Registrar,
    metrics: Metrics,
    tenure: Option<Tenure>,
    /// Agents that were not who they said, by their ids.
    exposed: Arc<Mutex<HashSet<String>>>,
}

impl Spokesman {
    pub(super) fn new(sessions: Option<Sessions>, registrar: Registrar, metrics: Metrics) -> Self {
        Self { sessions, registrar, metrics, tenure: None, exposed: Arc::default() }
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
        self.metrics.broker.ended(verdict.code.as_str(), finished == Finished::Settled);
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
            job_uuid,
            pod = facts.name,
            address,
            agent = record.agent,
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
                    job_uuid = %job,
                    agent = record.agent,
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bk_buildkite::{Credentials, TokenKind};
    use serde_json::Value;

    use super::*;
    use crate::api_server::{ApiServer, Call, takes_secrets};

    const JOB: &str = "0198f0a0-0000-7000-8000-000000000001";

    /// Speaks for an agent that has registered from an address before the kubelet had told the pod's.
    async fn spokesman(api_server: &ApiServer, buildkite: &ApiServer, address: &str) -> Spokesman {
        let sessions = Sessions::start(&api_server.cluster, "broker");
        let record = SessionRecord {
            build_job: "b".to_owned(),
            name: None,
            namespace: "ci".to_owned(),
            attempt: 1,
            agent: "agent".to_owned(),
            token: "access".to_owned(),
            endpoint: None,
            address: Some(address.to_owned()),
        };
        sessions.add(JOB.to_owned(), record).await.expect("it is on record");
        let credentials = Credentials::new(TokenKind::Agent, &"secret".into()).unwrap();
        let registrar = Registrar::new(&buildkite.url, credentials, "test").unwrap();
        Spokesman::new(Some(sessions), registrar, Metrics::default())
    }

    /// A pod whose address the kubelet has told.
    fn pod_at(address: &str) -> PodFacts {
        let address: IpAddr = address.parse().unwrap();
        PodFacts { addresses: Some([address].into()), ..PodFacts::default() }
    }

    fn paths(calls: &[Call]) -> Vec<&str> {
        calls.iter().filter_map(|call| call.path.rsplit('/').next()).collect()
    }

    #[tokio::test]
    async fn an_agent_from_elsewhere_than_its_pod_is_disconnected() {
        let (api_server, buildkite) =
            (ApiServer::start(takes_secrets).await, ApiServer::start(|_, _| (200, Value::Null)).await);
        let spokesman = spokesman(&api_server, &buildkite, "10.0.0.8").await;
        spokesman.compare(JOB, 0, &pod_at("10.0.0.7"));
        spokesman.compare("another", 1, &pod_at("10.0.0.7"));
        spokesman.compare(JOB, 1, &PodFacts::default());
        spokesman.compare(JOB, 1, &pod_at("10.0.0.7"));
        spokesman.compare(JOB, 1, &pod_at("10.0.0.7"));
        let calls = buildkite.calls_when(|calls| calls.len() >= 3).await;
        assert_eq!(paths(&calls), ["chunks", "finish", "disconnect"], "once: {calls:?}");
        assert_eq!(calls[1].body["exit_status"], "-1", "{calls:?}");
    }

    #[tokio::test]
    async fn an_agent_from_its_pod_is_left_alone() {
        let (api_server, buildkite) =
            (ApiServer::start(takes_secrets).await, ApiServer::start(|_, _| (200, Value::Null)).await);
        let spokesman = spokesman(&api_server, &buildkite, "10.0.0.7").await;
        spokesman.compare(JOB, 1, &pod_at("10.0.0.7"));
        assert!(spokesman.exposed.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_could_not_be_ended_is_tried_again() {
        let is_finish = |call: &&Call| call.path.ends_with("/finish");
        let fails = move |call: &Call, _: usize| (if is_finish(&call) { 500 } else { 200 }, Value::Null);
        let (api_server, buildkite) = (ApiServer::start(takes_secrets).await, ApiServer::start(fails).await);
        let spokesman = spokesman(&api_server, &buildkite, "10.0.0.8").await;
        for tries in 1..=2 {
            let again = async {
                while buildkite.calls().iter().filter(is_finish).count() < tries {
                    spokesman.compare(JOB, 1, &pod_at("10.0.0.7"));
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(WORDS * 5, again).await.expect("it is tried again");
        }
    }
}
