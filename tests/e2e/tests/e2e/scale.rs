//! Three hundred jobs at once on a hundred nodes. The nodes are kwok's, the agents are played by the test, and the rest is
//! real: scheduler, API server, Buildkite's APIs, operator.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bk_e2e::{
    World,
    agent::PlayedAgent,
    eventually_for,
    kwok::{EXIT_STATUS, Kwok},
    record::Record,
    scenario,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};
use uuid::Uuid;

const NODES: usize = 100;
/// How many jobs pass, fail with status 3, and are cancelled while they run.
const PASS: usize = 240;
const FAIL: usize = 40;
const CANCEL: usize = 20;
const JOBS: usize = PASS + FAIL + CANCEL;
/// What the operator may have had in memory at its peak, in kB. Together with its program, which has less than 20 MB as it
/// ships, it has to stay below 60 MB; the program of these tests is compiled for debugging, and larger.
const MEMORY: u64 = 40_000;
/// Agents that are busy at once: they are one process here.
const AGENTS: usize = 32;

/// How long kwok may take to end the containers of a pod, busy as it is with all of them.
const PATIENCE: Duration = Duration::from_mins(3);

/// What becomes of a job.
#[derive(Clone, Copy)]
enum Fate {
    Pass,
    Fail,
    Cancel,
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_jobs_on_a_hundred_nodes_end_as_they_should_in_little_memory() {
    scenario(async |world| {
        world.cluster.configure("job_spawner_config", &format!("maxInFlight: {JOBS}")).await?;
        let kwok = Kwok::start(world, NODES)?;
        let (client, namespace) = (world.cluster.client.clone(), &world.cluster.namespace);
        let pods = Arc::new(Record::<Pod>::begin(Api::namespaced(client, namespace)));
        let steps = steps(&kwok, [PASS, FAIL, CANCEL]);
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        assert_eq!(build.jobs.len(), JOBS);
        let begin = Instant::now();
        let operator = world.process().await?;

        play(world, &pods, &build.jobs).await?;
        eventually_for(JOBS, "all jobs have ended", async || {
            let ended = ends(&world.operator_log());
            anyhow::ensure!(ended.len() == JOBS, "{} have ended", ended.len());
            Ok(Some(()))
        })
        .await?;
        let ended = ends(&world.operator_log());
        let count = |phase: &str| ended.iter().filter(|(_, ended)| *ended == phase).count();
        assert_eq!(["Succeeded", "Failed", "Canceled"].map(count), [PASS, FAIL, CANCEL]);
        assert_eq!(
            ended.iter().map(|(job, _)| job).collect::<HashSet<_>>().len(),
            JOBS,
            "each has ended once"
        );
        assert_eq!(pods.seen().len(), JOBS, "each job had one pod");

        world.cluster.no_pods().await?;
        eventually_for(JOBS, "only failed BuildJobs are left", async || {
            let left = world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?.lines().count();
            Ok((left == FAIL).then_some(()))
        })
        .await?;
        let nodes: HashSet<_> =
            pods.seen().iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
        assert!(nodes.len() > NODES / 2, "the jobs were on {} nodes", nodes.len());
        let peak = operator.peak_memory()?;
        println!("all jobs have ended after {:?}; the operator has used {peak} kB", begin.elapsed());
        assert!(peak < MEMORY, "the operator has used {peak} kB");
        assert_buildkite_agrees(world, &build.jobs).await?;
        kwok.remove()
    })
    .await;
}

/// Steps of so many jobs that pass, fail, and are cancelled while they run.
pub(crate) fn steps(kwok: &Kwok<'_>, counts: [usize; 3]) -> String {
    let step = |(key, count): (&str, usize)| {
        format!(
            "{{key: {key}, parallelism: {count}, plugins: [{{kubernetes: {{podSpec: {{{}, \
             containers: [{{image: any, command: ['true']}}]}}}}}}]}}",
            kwok.selection()
        )
    };
    let steps = ["pass", "fail", "cancel"].into_iter().zip(counts).map(step).collect::<Vec<_>>();
    format!("agents: {{queue: bk-operator}}\nsteps: [{}]", steps.join(", "))
}

/// The jobs that have ended, and how, as the operator tells it: BuildJobs of those that pass are gone at once.
pub(crate) fn ends(log: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["message"] == "job ended")
        .map(|line| (text(&line["span"]["job_uuid"]), text(&line["phase"])))
        .collect()
}

/// Plays the agent of each pod as soon as it runs, until all jobs have had theirs.
pub(crate) async fn play(
    world: &World,
    pods: &Arc<Record<Pod>>,
    jobs: &[bk_e2e::buildkite::Job],
) -> Result<()> {
    let turns = Arc::new(Semaphore::new(AGENTS));
    let mut served = HashSet::new();
    let mut agents = JoinSet::new();
    eventually_for(jobs.len(), "every job has an agent", async || {
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        for pod in pods.seen_if(|pod| runs(pod) && !served.contains(&pod.name_any())) {
            served.insert(pod.name_any());
            let id = job_of(&pod)?;
            let key = jobs.iter().find(|job| job.id == id).and_then(|job| job.step_key.as_deref());
            let fate = match key.context("the job is of this build")? {
                "pass" => Fate::Pass,
                "fail" => Fate::Fail,
                _ => Fate::Cancel,
            };
            let api = Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
            let (turns, buildkite) = (Arc::clone(&turns), world.buildkite.clone());
            let pods = Arc::clone(pods);
            agents.spawn(async move {
                let _turn = turns.acquire_owned().await?;
                serve(&api, &pods, &buildkite, &pod, id, fate).await
            });
        }
        anyhow::ensure!(served.len() == jobs.len(), "{} of {} have one", served.len(), jobs.len());
        Ok(Some(()))
    })
    .await?;
    while let Some(agent) = agents.join_next().await {
        agent??;
    }
    Ok(())
}

/// What an agent and its pod do.
async fn serve(
    api: &Api<Pod>,
    pods: &Record<Pod>,
    buildkite: &bk_e2e::buildkite::Buildkite,
    pod: &Pod,
    job: Uuid,
    fate: Fate,
) -> Result<()> {
    let agent = PlayedAgent::register(buildkite, &pod.name_any()).await?;
    agent.take(job).await?;
    agent.log(job, "hello\n").await?;
    // A job that is told to stop leaves with the status of a terminated process.
    let (told, left_with) = match fate {
        Fate::Pass => (0, 0),
        Fate::Fail => (3, 3),
        Fate::Cancel => {
            buildkite.cancel(job).await?;
            (-1, 143)
        }
    };
    let patch = json!({ "metadata": { "annotations": { EXIT_STATUS: left_with.to_string() } } });
    api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    // The agent reports when the containers have ended, and not before.
    let same = |other: &Pod| other.metadata.uid == pod.metadata.uid;
    let mut looks = tokio::time::interval(Duration::from_millis(100));
    let end = async {
        while pods.seen_if(|other| same(other) && has_ended(other)).is_empty() {
            looks.tick().await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, end).await;
    ended.with_context(|| format!("the containers of {} have not ended", pod.name_any()))?;
    agent.finish(job, told).await?;
    agent.disconnect().await
}

fn has_ended(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let ended = |status: &ContainerStatus| status.state.as_ref().is_some_and(|s| s.terminated.is_some());
    statuses.unwrap_or_default().iter().any(ended)
}

fn job_of(pod: &Pod) -> Result<Uuid> {
    let name = pod.name_any();
    name.strip_prefix("buildkite-").unwrap_or(&name).parse().with_context(|| format!("{name} names no job"))
}

pub(crate) async fn assert_buildkite_agrees(world: &World, jobs: &[bk_e2e::buildkite::Job]) -> Result<()> {
    for job in jobs {
        let job = world.buildkite.job(job.id).await?;
        let expected = match job.step_key.as_deref() {
            Some("pass") => ("finished", Some(0)),
            Some("fail") => ("finished", Some(3)),
            _ => ("canceled", Some(-1)),
        };
        assert_eq!((job.job_state.as_str(), job.exit_status), expected, "{job:?}");
    }
    Ok(())
}
