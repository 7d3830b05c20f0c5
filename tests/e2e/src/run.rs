//! One job from its step to its end, as Buildkite, the API server and the kubelet tell of it.

use std::fmt;

use anyhow::{Context, Result, ensure};
use bk_api::{BuildJob, BuildJobStatus, Phase, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::{Api, ResourceExt};
use uuid::Uuid;

use crate::{World, buildkite::Job, eventually, record::Record};

/// A job that is under way.
pub struct Run<'a> {
    /// The job's UUID.
    pub id: Uuid,
    /// The BuildJob's name, also its first pod's.
    pub name: String,
    world: &'a World,
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
}

impl World {
    /// Starts a build of this one step.
    pub async fn submit(&self, step: &str) -> Result<Run<'_>> {
        let (client, namespace) = (self.cluster.client.clone(), &self.cluster.namespace);
        let pods = Record::begin(Api::namespaced(client.clone(), namespace));
        let build_jobs = Record::begin(Api::namespaced(client, namespace));
        let steps = format!("agents: {{queue: bk-operator}}\nsteps: [{step}]");
        let build = self.buildkite.build(&self.repository.url, &steps).await?;
        let id = build.jobs[0].id;
        Ok(Run { id, name: names::build_job(&id.to_string()), world: self, pods, build_jobs })
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

    /// Waits until the job is over for the operator and no pod is left.
    pub async fn end(self) -> Result<Ending> {
        let status = self.status("over", |status| status.phase.is_terminal()).await?;
        self.world.cluster.no_pods().await?;
        let job = self.world.buildkite.job(self.id).await?;
        let said: Vec<String> = job.events.iter().filter_map(|event| event.detail.clone()).collect();
        Ok(Ending { detail: said.join("\n"), job, status, pods: self.pods() })
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods: Vec<_> =
            self.pods.iter().map(|pod| (pod.name_any(), serde_json::json!(pod.status).to_string())).collect();
        f.debug_struct("Ending")
            .field("job", &self.job)
            .field("status", &self.status)
            .field("pods", &pods)
            .finish_non_exhaustive()
    }
}

impl Ending {
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

    /// Buildkite heard of it in time. The clocks of Kubernetes count whole seconds, rounded down, so the time that is
    /// measured is up to a second too long.
    pub fn assert_prompt(&self, what: &str, since: Timestamp) -> &Self {
        let last = self.job.events.iter().filter(|event| event.detail.is_some()).map(|event| event.at).max();
        let told = last.expect("Buildkite was told");
        let took = told.duration_since(since);
        assert!(took <= PROMPT, "Buildkite heard {took:#} after {what}: {self:#?}");
        self
    }

    /// When its only pod was created.
    pub fn created_at(&self) -> Timestamp {
        assert_eq!(self.pods.len(), 1, "{self:#?}");
        self.pods[0].creation_timestamp().expect("every pod was created").0
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

    /// When a container of its last pod ended.
    pub fn ended_at(&self, container: &str) -> Timestamp {
        self.container(container).finished_at.expect("what has ended has a time").0
    }
}

/// What is promised in five seconds is allowed ten here: the machine runs several tests at once on few cores. The kubelet
/// tries a second time after ten seconds at the earliest, so nothing that waits for a second try passes.
pub const PROMPT: SignedDuration = SignedDuration::from_secs(10);
