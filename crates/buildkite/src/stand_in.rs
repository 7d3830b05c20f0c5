//! An agent that takes a job only to end it: how a failure is told where no other way leads to a job without an agent.

use uuid::Uuid;

use crate::{
    agent::RegisterAgent,
    client::retry,
    credentials::Credentials,
    error::Error,
    session::{End, Finished, Registrar, Session, group},
    stacks::FinishJob,
};

/// Why the job ends without having run, for its retry rules.
const SIGNAL_REASON: &str = "stack_error";

/// What makes such agents.
#[derive(Clone, Debug)]
pub struct StandIn {
    registrar: Registrar,
    version: String,
}

impl StandIn {
    /// Agents that register at the Agent API with an agent token.
    pub fn new(endpoint: &str, credentials: Credentials, user_agent: &str) -> Result<Self, Error> {
        let version = user_agent.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { registrar: Registrar::new(endpoint, credentials, user_agent)?, version })
    }

    /// Takes a job of a queue, writes why it cannot run into its log, and ends it.
    pub async fn end(&self, queue: &str, job: Uuid, end: &FinishJob) -> Result<Finished, Error> {
        let session = self.registrar.open(&self.agent(queue, job)).await?;
        let ended = take_and_end(&session, job, end).await;
        session.disconnect().await;
        ended
    }

    fn agent(&self, queue: &str, job: Uuid) -> RegisterAgent {
        RegisterAgent {
            name: format!("buildkite-operator-{job}"),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            ignore_in_dispatches: true,
            version: self.version.clone(),
            meta_data: vec![format!("queue={queue}")],
            ..RegisterAgent::default()
        }
    }
}

/// The job's end matters more than its log.
async fn take_and_end(session: &Session, job: Uuid, end: &FinishJob) -> Result<Finished, Error> {
    session.connect().await?;
    let Some(holder) = session.take(job).await? else {
        return Ok(Finished::Settled);
    };
    let written = holder.begin(job, &group("The job cannot run", &end.detail)).await;
    let failed = written.inspect_err(|error| {
        tracing::warn!(error = %bk_ops::report::one_line(error), "the job's log does not say why it ends");
    });
    let end = End { exit_status: end.exit_status, signal_reason: SIGNAL_REASON.to_owned(), ..End::default() };
    let failed = u64::from(failed.is_err());
    retry(|| holder.finish(job, &end, failed)).await
}
