//! What one measurement takes place on: a namespace of its own and a Buildkite of its own.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bk_api::BuildJob;
use bk_e2e::World;
use bk_e2e::audit::ApiCall;
use bk_e2e::buildkite::{Buildkite, QUEUE};
use bk_e2e::environment::Environment;
use bk_e2e::kwok::Kwok;
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::NODES;
use super::agents::Agents;
use super::calls::{self, Call};
use super::command::{Command, Controller};
use super::front::Front;
use super::meter::{Meter, Processes};
use super::pods::Pods;
use crate::figures;
use crate::local::server::Server;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often people are told how it goes.
const TELL: Duration = Duration::from_secs(10);
/// What anything takes that is not measured.
const PATIENCE: Duration = Duration::from_mins(2);
/// The most jobs that one build may begin with.
const PER_BUILD: usize = 500;
/// The log of buildkite-local.
const LOG: &str = "buildkite-local.log";
/// The pipeline of all builds.
const PIPELINE: &str = "bench";

/// What all measurements have in common.
pub(crate) struct Setup {
    local: PathBuf,
    environment: Environment,
    components: Processes,
}

impl Setup {
    /// Reads what `cargo xtask bench` says about the cluster.
    pub(crate) fn read(local: &Path) -> Result<Self> {
        let text = std::env::var("BENCH_PROCESSES")
            .context("BENCH_PROCESSES is not set: this needs a cluster; run `cargo xtask bench`")?;
        let components = text.split(',').map(|part| {
            let (name, pid) = part.split_once('=').with_context(|| format!("{part:?} names no process"))?;
            Ok((name.to_owned(), pid.parse()?))
        });
        Ok(Self {
            local: local.to_owned(),
            environment: Environment::read()?,
            components: components.collect::<Result<_>>().context("reading BENCH_PROCESSES")?,
        })
    }
}

/// A job as Buildkite has it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Job {
    pub(super) id: Uuid,
    /// Since when it waits in its queue.
    #[serde(rename = "runnable_at")]
    pub(super) scheduled: Timestamp,
}

#[derive(Deserialize)]
struct Build {
    jobs: Vec<Job>,
}

/// How many of what a measurement waits for.
pub(super) struct Goal {
    pub(super) what: &'static str,
    pub(super) all: usize,
}

impl Goal {
    /// So many pods have been created.
    pub(super) fn created(all: usize) -> Self {
        Self { what: "pods created", all }
    }

    /// So many pods are gone again.
    pub(super) fn gone(all: usize) -> Self {
        Self { what: "pods gone", all }
    }
}

/// A stage. What it has made goes with the cluster.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) pods: Pods,
    /// A way to its Buildkite by TLS, if there is one.
    pub(super) front: Option<Front>,
    server: Server,
    directory: TempDir,
    components: Processes,
}

impl Stage {
    /// Sets one.
    pub(super) async fn set(setup: &Setup) -> Result<Self> {
        let environment = setup.environment.clone();
        let (agent_token, api_token) =
            (format!("agent-{}", Uuid::new_v4()), format!("api-{}", Uuid::new_v4()));
        let directory = TempDir::new()?;
        let log = File::create(directory.path().join(LOG))?;
        let mut program = std::process::Command::new(&setup.local);
        program
            .env("BUILDKITE_LOCAL_AGENT_TOKEN", &agent_token)
            .env("BUILDKITE_LOCAL_API_TOKEN", &api_token)
            .env("LOG_FORMAT", "json")
            .env("LOG_LEVEL", calls::LOG_FILTER);
        let server = Server::start_on(environment.host, &mut program, log)?;
        let buildkite = Buildkite::at(server.url(), agent_token, api_token)?;
        let world = World::around(environment, buildkite).await?;
        let api = Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
        let pods = Pods::watch(api).await?;
        Ok(Self { world, pods, front: None, server, directory, components: setup.components.clone() })
    }

    /// Puts its Buildkite behind TLS, for controllers and agents.
    pub(super) async fn secure(&mut self) -> Result<()> {
        let front = Front::to(&self.server.url(), self.world.environment.host).await?;
        self.front = Some(front);
        Ok(())
    }

    /// The Agent API, for controllers and agents.
    pub(super) fn endpoint(&self) -> String {
        self.front
            .as_ref()
            .map_or_else(|| self.world.buildkite.endpoint(), |front| format!("{}/v3", front.url))
    }

    /// Starts nodes that cost nothing, and waits until they are ready.
    pub(super) fn nodes(&self) -> Result<Kwok<'_>> {
        let kwok = Kwok::start(&self.world, NODES)?;
        let selector = format!("--selector=e2e={}", self.world.cluster.namespace);
        let args = ["wait", "nodes", &selector, "--for=condition=Ready", "--timeout=120s"];
        self.world.cluster.kubectl(&args, None)?;
        Ok(kwok)
    }

    /// Starts a controller with room for so many jobs, and waits until it has looked into the queue.
    pub(super) async fn start(&self, command: &Command, max_in_flight: usize) -> Result<Controller> {
        let mut controller = command.start(self, max_in_flight).await?;
        let listed = self.until(PATIENCE, &mut controller, None, || {
            let calls = self.buildkite_calls(Timestamp::MIN)?;
            Ok(calls.iter().any(Call::is_look))
        });
        anyhow::ensure!(listed.await?, "the controller does not list jobs: {}", controller.last_words());
        Ok(controller)
    }

    /// Makes the pipeline that builds are of, with one step.
    pub(super) async fn pipeline(&self, step: &str) -> Result<()> {
        let steps = format!("agents: {{queue: {QUEUE}}}\nsteps: [{step}]");
        let repository = &self.world.repository.url;
        let pipeline = json!({ "name": PIPELINE, "repository": repository, "configuration": steps });
        self.world.buildkite.call::<Value>(Method::POST, "pipelines", Some(pipeline)).await.map(drop)
    }

    /// Starts a build.
    pub(super) async fn build(&self) -> Result<Vec<Job>> {
        build(&self.world.buildkite).await
    }

    /// Puts so many jobs into the queue as quickly as they go.
    pub(super) async fn fill(&self, kwok: &Kwok<'_>, jobs: usize) -> Result<Vec<Job>> {
        let per_build = jobs.min(PER_BUILD);
        self.pipeline(&step(kwok, per_build)).await?;
        let mut all = Vec::new();
        while all.len() < jobs {
            all.extend(self.build().await?);
        }
        Ok(all)
    }

    /// Waits until a condition holds, and returns whether it came to that. Whoever takes part must not fail meanwhile.
    pub(super) async fn until(
        &self,
        limit: Duration,
        controller: &mut Controller,
        agents: Option<&Agents>,
        condition: impl Fn() -> Result<bool>,
    ) -> Result<bool> {
        let began = Instant::now();
        while !condition()? {
            controller.check()?;
            agents.map_or(Ok(()), Agents::check)?;
            if began.elapsed() > limit {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(true)
    }

    /// Waits until there are so many, and returns whether it came to that. Tells how it goes.
    pub(super) async fn until_all(
        &self,
        limit: Duration,
        controller: &mut Controller,
        agents: Option<&Agents>,
        goal: Goal,
        count: impl Fn() -> usize,
    ) -> Result<bool> {
        let Goal { what, all } = goal;
        let told = Cell::new(Instant::now());
        let reached = self.until(limit, controller, agents, || {
            let now = count();
            if told.get().elapsed() >= TELL {
                told.set(Instant::now());
                eprintln!("  {now} of {all} {what}, load {:.2}", figures::load_average());
            }
            Ok(now >= all)
        });
        reached.await
    }

    /// Waits until none of so many BuildJobs is left, so that all writes are counted.
    pub(super) async fn cleared(&self, jobs: usize) -> Result<()> {
        let build_jobs =
            Api::<BuildJob>::namespaced(self.world.cluster.client.clone(), &self.world.cluster.namespace);
        bk_e2e::eventually_for(jobs, "no BuildJob is left", async || {
            let left = build_jobs.list_metadata(&ListParams::default().limit(1)).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    /// Begins to watch everybody who takes part.
    pub(super) fn meter(&self, controller: &Controller, kwok: &Kwok<'_>) -> Result<Meter> {
        let others = [
            ("the controller", controller.pid()),
            ("buildkite-local", self.server.pid()),
            ("kwok", kwok.pid()),
            ("this benchmark and its agents", std::process::id()),
        ];
        let others = others.map(|(name, pid)| (name.to_owned(), pid));
        Meter::start(self.components.iter().cloned().chain(others).collect())
    }

    /// What was asked of Buildkite since `mark`.
    pub(super) fn buildkite_calls(&self, mark: Timestamp) -> Result<Vec<Call>> {
        calls::read(&self.directory.path().join(LOG), mark)
    }

    /// What the controller has asked of the API server since `mark`.
    pub(super) fn api_calls(&self, mark: Timestamp) -> Result<Vec<ApiCall>> {
        self.world.api_calls(mark)
    }

    /// Takes the namespace away.
    pub(super) async fn strike(&self) -> Result<()> {
        self.world.cluster.remove().await
    }
}

/// Starts a build.
pub(super) async fn build(buildkite: &Buildkite) -> Result<Vec<Job>> {
    let body = json!({ "commit": "HEAD", "branch": "main", "message": "a measurement" });
    let build: Build =
        buildkite.call(Method::POST, &format!("pipelines/{PIPELINE}/builds"), Some(body)).await?;
    Ok(build.jobs)
}

/// A step of so many jobs, whose pods go to the nodes that cost nothing.
pub(super) fn step(kwok: &Kwok<'_>, jobs: usize) -> String {
    format!(
        "{{label: bench, parallelism: {jobs}, plugins: [{{kubernetes: {{podSpec: {{{}, \
         containers: [{{image: any, command: ['true']}}]}}}}}}]}}",
        kwok.selection()
    )
}

/// The time from one moment to another; none if the clock was set back in between.
pub(super) fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
