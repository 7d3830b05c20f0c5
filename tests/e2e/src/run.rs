//! One job from its step to its end, as Buildkite, the API server and the kubelet tell of it.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bk_api::{BuildJob, BuildJobStatus, Phase, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::{Api, ResourceExt};
use uuid::Uuid;

use crate::{World, buildkite::Job, eventually, record::Record};

/// How long a notification may be on its way to Buildkite.
const DELIVERY: Duration = Duration::from_secs(5);

/// A job that is under way.
pub struct Run<'a> {
    /// The job's UUID.
    pub id: Uuid,
    /// The BuildJob's name, also its first pod's.
    pub name: String,
    world: &'a World,
    submitted: Timestamp,
    pods: Record<Pod>,
    build_jobs: Record<BuildJob>,
}

/// How a job ended.
pub struct Ending {
    /// The job as Buildkite has it.
    pub job: Job,
    /// What Buildkite was told about it.
    pub detail: String,
    /// The BuildJob's last status.
    pub status: BuildJobStatus,
    /// Its pods, in the order of their creation.
    pub pods: Vec<Pod>,
    /// When the API server was asked for each of them. Their own times are rounded down to the second.
    created: Vec<Timestamp>,
}

impl World {
    /// Starts a build of this one step.
    pub async fn submit(&self, step: &str) -> Result<Run<'_>> {
        let (client, namespace) = (self.cluster.client.clone(), &self.cluster.namespace);
        let pods = Record::begin(Api::namespaced(client.clone(), namespace));
        let build_jobs = Record::begin(Api::namespaced(client, namespace));
        let steps = format!("agents: {{queue: bk-operator}}\nsteps: [{step}]");
        let submitted = Timestamp::now();
        let build = self.buildkite.build(&self.repository.url, &steps).await?;
        let id = build.jobs[0].id;
        Ok(Run { id, name: names::build_job(&id.to_string()), world: self, submitted, pods, build_jobs })
    }
}

impl Run<'_> {
    /// The BuildJob as it was last seen.
    pub fn build_job(&self) -> Option<BuildJob> {
        self.build_jobs.seen().into_iter().find(|job| job.name_any() == self.name)
    }

    /// Its pods as they were last seen.
    pub fn pods(&self) -> Vec<Pod> {
        let ours = |pod: &Pod| pod.labels().get(names::LABEL_BUILD_JOB) == Some(&self.name);
        self.pods.seen().into_iter().filter(ours).collect()
    }

    /// Waits until it has had so many pods, and returns the last of them.
    pub async fn pod(&self, number: usize) -> Result<Pod> {
        eventually(&format!("{} has pod number {number}", self.name), async || {
            Ok(self.pods().get(number - 1).cloned())
        })
        .await
    }

    /// Waits until the BuildJob's status is as `test` wants it.
    pub async fn status(&self, what: &str, test: impl Fn(&BuildJobStatus) -> bool) -> Result<BuildJobStatus> {
        eventually(&format!("BuildJob {} is {what}", self.name), async || {
            let status = self.build_job().context("it does not exist")?.status_or_default();
            ensure!(test(&status), "its status is {status:?}");
            Ok(Some(status))
        })
        .await
    }

    /// Waits until the job waits for something that the text is about.
    pub async fn waiting_for(&self, text: &str) -> Result<String> {
        let waits =
            |status: &BuildJobStatus| status.waiting_for.as_ref().is_some_and(|reason| reason.contains(text));
        let status = self.status(&format!("waiting for {text:?}"), waits).await?;
        Ok(status.waiting_for.unwrap_or_default())
    }

    /// Waits until the command has written this.
    pub async fn output(&self, text: &str) -> Result<String> {
        self.world.buildkite.log_with(self.id, text).await
    }

    /// Cancels the job in Buildkite, waits until nothing of it is left, and returns how long it took to delete that.
    pub async fn cancel(&self) -> Result<SignedDuration> {
        let cancelled = Timestamp::now();
        self.world.buildkite.cancel(self.id).await?;
        eventually("the BuildJob is gone", async || {
            Ok(self.world.cluster.build_job(&self.name).await?.is_none().then_some(()))
        })
        .await?;
        self.world.cluster.no_pods().await?;
        let calls = self.world.api_calls(cancelled)?;
        let last = calls.iter().filter(|call| call.verb == "delete").map(|call| call.at).max();
        Ok(last.context("nothing was deleted")?.duration_since(cancelled))
    }

    /// Waits until the job is over for the operator and no pod is left.
    pub async fn end(self) -> Result<Ending> {
        let status = self.status("over", |status| status.phase.is_terminal()).await?;
        self.world.cluster.no_pods().await?;
        let job = self.told(&status).await?;
        let said: Vec<String> = job.events.iter().filter_map(|event| event.detail.clone()).collect();
        let calls = self.world.api_calls(self.submitted)?;
        let creations = calls.iter().filter(|call| call.verb == "create" && call.resource == "pods");
        let created = creations.filter(|call| call.code == 201).map(|call| call.at).collect();
        let pods = self.pods();
        ensure!(!self.world.knows_token(&serde_json::to_string(&pods)?), "a pod knows the agent token");
        let ending = Ending { detail: said.join("\n"), job, status, pods, created };
        self.world.note(&ending.whole())?;
        Ok(ending)
    }

    /// The job once Buildkite has heard the verdict, or has had the time to: notifications are on their way by themselves.
    async fn told(&self, status: &BuildJobStatus) -> Result<Job> {
        let code = status.verdict.as_ref().map(|verdict| verdict.code.as_str()).unwrap_or_default();
        let begin = Instant::now();
        loop {
            let job = self.world.buildkite.job(self.id).await?;
            let mut details = job.events.iter().filter_map(|event| event.detail.as_deref());
            if ["", "Passed", "CommandFailed", "Canceled"].contains(&code)
                || details.any(|detail| detail.contains(code))
                || begin.elapsed() > DELIVERY
            {
                return Ok(job);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// In short: the whole is among the notes of the test.
impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { job_state, exit_status, signal_reason, agent, .. } = &self.job;
        let phases = self.pods.iter().map(|pod| pod.status.as_ref().and_then(|status| status.phase.clone()));
        f.debug_struct("Ending")
            .field("in Buildkite", &(job_state, exit_status, signal_reason, agent.is_some()))
            .field("phase", &self.status.phase)
            .field("verdict", &self.status.verdict)
            .field("told", &self.detail)
            .field("pods", &phases.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Ending {
    fn whole(&self) -> String {
        let pods: Vec<_> =
            self.pods.iter().map(|pod| (pod.name_any(), serde_json::json!(pod.status).to_string())).collect();
        format!("{:#?}\n{:#?}\n{pods:#?}", self.job, self.status)
    }

    /// The job failed for this reason before any agent had it, and Buildkite was told.
    pub fn assert_refused(&self, code: &str) -> &Self {
        self.assert_failed(code);
        assert_eq!(self.job.job_state, "finished", "{self:#?}");
        assert_eq!(self.job.signal_reason.as_deref(), Some("stack_error"), "{self:#?}");
        assert!(self.job.agent.is_none(), "no agent acquired the job: {self:#?}");
        self.assert_told(code)
    }

    /// The job failed for this reason.
    pub fn assert_failed(&self, code: &str) -> &Self {
        let verdict = self.status.verdict.as_ref().map(|verdict| verdict.code.as_str());
        assert_eq!((self.status.phase, verdict), (Phase::Failed, Some(code)), "{self:#?}");
        self
    }

    /// Buildkite heard the reason by its name.
    pub fn assert_told(&self, code: &str) -> &Self {
        self.assert_detail(code)
    }

    /// Buildkite heard this.
    pub fn assert_detail(&self, text: &str) -> &Self {
        assert!(self.detail.contains(text), "Buildkite was told {text:?}: {self:#?}");
        self
    }

    /// Buildkite has this exit status.
    pub fn assert_exit_status(&self, status: i32) -> &Self {
        assert_eq!(self.job.exit_status, Some(status), "{self:#?}");
        self
    }

    /// Buildkite heard of it in time.
    #[expect(clippy::print_stdout, reason = "the time it took is a figure to look at, with --show-output")]
    pub fn assert_prompt(&self, what: &str, since: Timestamp) -> &Self {
        let took = self.told_at().expect("Buildkite was told").duration_since(since);
        println!("Buildkite heard {took:#} after {what}");
        assert!(took <= PROMPT, "Buildkite heard {took:#} after {what}: {self:#?}");
        self
    }

    /// When Buildkite last heard why.
    pub fn told_at(&self) -> Option<Timestamp> {
        self.job.events.iter().filter(|event| event.detail.is_some()).map(|event| event.at).max()
    }

    /// When its only pod was created.
    pub fn created_at(&self) -> Timestamp {
        assert_eq!((self.pods.len(), self.created.len()), (1, 1), "{self:#?}");
        self.created[0]
    }

    /// How a container of its last pod ended.
    pub fn container(&self, name: &str) -> ContainerStateTerminated {
        let status = self.pods.last().and_then(|pod| pod.status.clone()).unwrap_or_default();
        let statuses = status.container_statuses.into_iter().chain(status.init_container_statuses).flatten();
        let state = statuses.filter(|status| status.name == name).find_map(|status| {
            let last = status.last_state.and_then(|state| state.terminated);
            status.state.and_then(|state| state.terminated).or(last)
        });
        state.unwrap_or_else(|| panic!("container {name} has ended: {self:#?}"))
    }

    /// When a container of its last pod did [`SAY_WHEN`].
    pub fn said_at(&self, container: &str) -> Timestamp {
        let message = self.container(container).message.unwrap_or_default();
        let then = uptime(&message).unwrap_or_else(|| panic!("{container} says when: {message:?}"));
        let now = fs::read_to_string(UPTIME).ok().and_then(|text| uptime(&text)).expect("the kernel counts");
        Timestamp::now() - now.saturating_sub(then)
    }
}

/// A command that leaves the time as the last words of its container. The kubelet rounds the times of containers down to
/// the second; the kernel, which the container shares with the test, does not.
pub const SAY_WHEN: &str = "cat /proc/uptime > /dev/termination-log";

const UPTIME: &str = "/proc/uptime";

fn uptime(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// How soon Buildkite has to hear of what can be known at once, on a machine that does much else: long before the agent, which
/// misses a container after half a minute, and the service, which misses an agent after minutes. On a quiet machine it takes one
/// to three seconds.
pub const PROMPT: SignedDuration = SignedDuration::from_secs(15);
