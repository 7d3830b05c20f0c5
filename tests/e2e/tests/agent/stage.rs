//! A server and agents for one test.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use bk_e2e::buildkite::Buildkite;
use bk_e2e::eventually;
use buildkite_local::Config;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Agent;

/// Runs a command in a job and writes its exit status and what it printed, on one line that the test reads. What
/// it says to people goes to the log as well.
const RUN: &str = r#"#!/bin/sh
errors=$(mktemp)
output=$("$@" 2>"$errors")
status=$?
sed 's/^/  | /' "$errors"
printf 'RESULT %s|%s\n' "$status" "$(printf %s "$output" | tr '\n' '~')"
"#;

/// The commands of the agent that one build runs.
pub(crate) struct Case {
    /// The commands, e.g. `meta-data set`.
    pub(crate) commands: &'static [&'static str],
    /// The pipeline. Its jobs call `run buildkite-agent …`.
    pub(crate) steps: &'static str,
    /// What the calls of `run` ended with and printed, over all jobs in the order of the build.
    pub(crate) results: &'static [&'static str],
}

/// A server with a directory for agents.
pub(crate) struct Stage {
    pub(crate) buildkite: Buildkite,
    directory: TempDir,
    agents: AtomicUsize,
}

/// A build, by where it is found.
pub(crate) struct Placed {
    path: String,
}

/// How jobs find their agents.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// One agent per job, started for it: `--acquire-job`.
    Acquire,
    /// One agent that asks for work.
    Classic,
}

impl Stage {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Result<Self> {
        bk_ops::http::install_crypto_provider();
        let directory = TempDir::new()?;
        let tools = directory.path().join("tools");
        fs::create_dir(&tools)?;
        write_program(&tools.join("run"), RUN)?;
        let buildkite = Buildkite::start_with(Ipv4Addr::LOCALHOST.into(), config).await?;
        Ok(Self { buildkite, directory, agents: AtomicUsize::new(0) })
    }

    /// A directory that jobs can read.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts an agent with further flags.
    pub(crate) fn agent(&self, args: &[&str]) -> Result<Agent> {
        let number = self.agents.fetch_add(1, Ordering::Relaxed);
        let home = self.directory.path().join(format!("agent-{number}"));
        fs::create_dir(&home)?;
        Agent::start(&home, &self.buildkite.endpoint(), &self.buildkite.agent_token, args)
    }

    /// Starts an agent for one job.
    pub(crate) fn agent_for(&self, job: &Value) -> Result<Agent> {
        let id = job["id"].as_str().context("a job has an id")?;
        self.agent(&["--acquire-job", id])
    }

    /// Creates a pipeline with these steps and a build of it.
    pub(crate) async fn build(&self, steps: &str) -> Result<Placed> {
        let number = self.agents.fetch_add(1, Ordering::Relaxed);
        let slug = format!("pipeline-{number}");
        let pipeline = json!({
            "name": slug, "repository": "https://git.example.com/demo.git", "configuration": steps,
        });
        self.rest(Method::POST, "pipelines", Some(pipeline)).await?;
        let body = json!({ "commit": "HEAD", "branch": "main", "message": "a test" });
        let build = self.rest(Method::POST, &format!("pipelines/{slug}/builds"), Some(body)).await?;
        Ok(Placed { path: format!("pipelines/{slug}/builds/{}", build["number"]) })
    }

    pub(crate) async fn rest(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        self.buildkite.call(method, path, body).await
    }

    /// The build as it stands, with every try of its jobs, or something below it.
    pub(crate) async fn show(&self, build: &Placed, below: &str) -> Result<Value> {
        self.rest(Method::GET, &format!("{}{below}?include_retried_jobs=true", build.path), None).await
    }

    /// The newest job of the step with this key.
    pub(crate) async fn job(&self, build: &Placed, key: &str) -> Result<Value> {
        let build = self.show(build, "").await?;
        let found = jobs(&build).rfind(|job| job["step_key"] == key).cloned();
        found.with_context(|| format!("no job of step {key} in {build}"))
    }

    /// Waits until the newest job of a step is as wanted.
    pub(crate) async fn job_when(
        &self,
        build: &Placed,
        key: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(&format!("the job of step {key} {what}"), async || {
            let job = self.job(build, key).await?;
            anyhow::ensure!(wanted(&job), "it is {job}");
            Ok(Some(job))
        })
        .await
    }

    /// A job's log.
    pub(crate) async fn log(&self, job: &Value) -> Result<String> {
        let id = job["id"].as_str().context("a job has an id")?.parse()?;
        self.buildkite.log(id).await
    }

    /// Gives every job of the build an agent until the build has ended; returns the build.
    pub(crate) async fn finish(&self, build: &Placed, mode: Mode) -> Result<Value> {
        let mut agents = Vec::new();
        if let Mode::Classic = mode {
            agents.push(self.agent(&["--tags=queue=default"])?);
        }
        let mut served = Vec::new();
        let ended = eventually("the build ends", async || {
            let now = self.show(build, "").await?;
            if now["finished_at"].is_string() {
                return Ok(Some(now));
            }
            for job in jobs(&now).filter(|job| job["type"] == "script" && job["job_state"] == "scheduled") {
                if let Mode::Acquire = mode
                    && !served.contains(&job["id"])
                {
                    served.push(job["id"].clone());
                    agents.push(self.agent_for(job)?);
                }
            }
            anyhow::bail!("it is {now}")
        })
        .await;
        ended.with_context(|| {
            let logs: Vec<String> = agents.iter().map(Agent::log).collect();
            format!("the agents wrote:\n{}", logs.join("\n----\n"))
        })
    }

    /// The lines of all logs of a build that `run` wrote, in the order of its jobs.
    pub(crate) async fn results(&self, build: &Value) -> Result<Vec<String>> {
        let mut results = Vec::new();
        for job in jobs(build).filter(|job| job["type"] == "script") {
            let log = self.log(job).await?;
            results.extend(log.lines().filter_map(|line| line.strip_prefix("RESULT ")).map(str::to_owned));
        }
        Ok(results)
    }

    /// All logs of a build, for a test that failed.
    pub(crate) async fn logs(&self, build: &Value) -> String {
        let mut logs = String::new();
        for job in jobs(build).filter(|job| job["type"] == "script") {
            logs.push_str(&self.log(job).await.unwrap_or_else(|error| format!("{error:#}")));
        }
        logs
    }
}

impl Case {
    /// Runs the build on a server of its own. It must pass, and print what is expected.
    pub(crate) async fn play(&self, mode: Mode) -> (Stage, Placed, Value) {
        let stage = Stage::new().await.unwrap();
        let (placed, build) = self.play_on(&stage, mode).await;
        (stage, placed, build)
    }

    /// The same on a server that was prepared.
    pub(crate) async fn play_on(&self, stage: &Stage, mode: Mode) -> (Placed, Value) {
        let placed = stage.build(self.steps).await.unwrap();
        let build = stage.finish(&placed, mode).await.unwrap();
        let results = stage.results(&build).await.unwrap();
        assert_eq!(results, self.results, "the jobs wrote:\n{}", stage.logs(&build).await);
        assert_eq!(build["state"], "passed", "the jobs wrote:\n{}", stage.logs(&build).await);
        (placed, build)
    }
}

/// The jobs of a build.
pub(crate) fn jobs(build: &Value) -> std::slice::Iter<'_, Value> {
    build["jobs"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
