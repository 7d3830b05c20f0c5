//! The sessions of two hundred agents outlast the operator: what becomes of a job while nobody works is made good afterwards. The nodes are kwok's and
//! the agents are played by the test, but register by way of the operator as real ones do.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::{collections::HashMap, time::Instant};

use anyhow::{Context, Result, ensure};
use bk_api::names;
use bk_e2e::{
    World,
    agent::{Broker, PlayedAgent},
    eventually, eventually_for,
    kwok::{EXIT_STATUS, Kwok},
    record::Record,
    run::PROMPT,
    scenario,
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use uuid::Uuid;

const NODES: usize = 10;
const JOBS: usize = 200;

/// Agents that are busy at once: they are one process here.
const AGENTS: usize = 32;

/// Agents that register at once: all of them call from one address here, which may have no more than 128 connections.
const TOGETHER: usize = 100;

/// What the Secrets with sessions may be written while all agents register: each a few times in a second.
const WRITES: usize = 100;

/// How long a session may stay on record when its job has ended, with a minute for a machine that does much else.
const LINGER: SignedDuration = SignedDuration::from_mins(2);

/// Jobs that run, with their agents.
struct Hundreds<'a> {
    world: &'a World,
    agents: HashMap<Uuid, (Pod, PlayedAgent)>,
}

impl<'a> Hundreds<'a> {
    /// All agents come together, when all pods are there.
    async fn run(world: &'a World, jobs: &[Uuid]) -> Result<Self> {
        let pods = all_pods(world).await?;
        let broker = Broker::of(world).await?;
        let come = |pod: Pod| {
            let broker = &broker;
            async move { anyhow::Ok((broker.proven_ticket(&pod).await?, pod)) }
        };
        let shown: Vec<_> = stream::iter(pods).map(come).buffer_unordered(AGENTS).try_collect().await?;

        let (begin, mark) = (Instant::now(), Timestamp::now());
        let register = |(shown, pod): (String, Pod)| {
            let broker = &broker;
            async move { anyhow::Ok((pod, broker.register(&shown).await?)) }
        };
        let registered: Vec<_> =
            stream::iter(shown).map(register).buffer_unordered(TOGETHER).try_collect().await?;
        let writes = session_writes(world, mark)?;
        println!("{JOBS} agents have registered in {:?}, with {writes} writes", begin.elapsed());
        assert!((1..=WRITES).contains(&writes), "{writes} writes for {JOBS} sessions");

        let take = |(pod, agent): (Pod, PlayedAgent)| async move {
            let job = pod.labels().get(names::LABEL_JOB_UUID).context("a pod is of a job")?.parse()?;
            agent.connect().await?;
            agent.take(job).await?;
            anyhow::Ok((job, (pod, agent)))
        };
        let agents: HashMap<_, _> =
            stream::iter(registered).map(take).buffer_unordered(AGENTS).try_collect().await?;
        ensure!(agents.len() == JOBS && jobs.iter().all(|job| agents.contains_key(job)), "each has an agent");
        let hundreds = Self { world, agents };
        hundreds.all_run().await?;
        Ok(hundreds)
    }

    /// All of them run, as Buildkite has it.
    async fn all_run(&self) -> Result<()> {
        for job in self.agents.keys() {
            let job = self.world.buildkite.job(*job).await?;
            assert_eq!((job.job_state.as_str(), job.exit_status), ("running", None), "{job:?}");
        }
        Ok(())
    }

    /// All of them end by themselves: the containers first, and then the agent says so.
    async fn pass(&self) -> Result<()> {
        let api = Api::<Pod>::namespaced(self.world.cluster.client.clone(), &self.world.cluster.namespace);
        let ends = self.agents.iter().map(|(job, (pod, agent))| {
            let (api, name) = (api.clone(), pod.name_any());
            async move {
                let patch = json!({ "metadata": { "annotations": { EXIT_STATUS: "0" } } });
                api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                agent.finish(*job, 0).await?;
                agent.disconnect().await
            }
        });
        stream::iter(ends).buffer_unordered(AGENTS).try_collect().await
    }
}

/// The pods of all jobs, when they run.
async fn all_pods(world: &World) -> Result<Vec<Pod>> {
    let api = Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
    let pods = Record::<Pod>::begin(api);
    eventually_for(JOBS, "every job has a pod that runs", async || {
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let running = pods.seen_if(runs);
        ensure!(running.len() == JOBS, "{} run", running.len());
        Ok(Some(running))
    })
    .await
}

/// How often sessions were written down since `mark`.
fn session_writes(world: &World, mark: Timestamp) -> Result<usize> {
    let calls = world.api_calls(mark)?;
    let of_sessions = |name: &String| name.starts_with(SESSIONS);
    let writes = calls.iter().filter(|call| {
        call.is_write() && call.resource == "secrets" && call.name.as_ref().is_some_and(of_sessions)
    });
    Ok(writes.count())
}

const SESSIONS: &str = "buildkite-operator-broker-sessions-";

/// The jobs with a session on record.
async fn on_record(world: &World) -> Result<Vec<String>> {
    let secrets = Api::<Secret>::namespaced(world.cluster.client.clone(), &world.cluster.home);
    let mut jobs = Vec::new();
    for number in 0..4 {
        let secret = secrets.get(&format!("{SESSIONS}{number}")).await?;
        jobs.extend(secret.data.unwrap_or_default().into_keys());
    }
    Ok(jobs)
}

/// One of the jobs dies while nobody works.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_dies_while_the_operator_is_away_is_ended_when_it_is_back() {
    scenario(async |world| {
        let most = format!("maxInFlight: {JOBS}");
        let proof = ("pod_config", "registrationProof: serviceAccount");
        world.cluster.configure_all([("job_spawner_config", most.as_str()), proof]).await?;
        let kwok = Kwok::start(world, NODES)?;
        let steps = format!(
            "agents: {{queue: bk-operator}}\nsteps: [{{parallelism: {JOBS}, plugins: [{{kubernetes: {{podSpec: {{{}, \
             containers: [{{image: any, command: ['true']}}]}}}}}}]}}]",
            kwok.selection()
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let jobs: Vec<Uuid> = build.jobs.iter().map(|job| job.id).collect();
        let begin = Instant::now();
        let mut operator = world.process().await?;
        let mut hundreds = Hundreds::run(world, &jobs).await?;
        println!("all jobs run after {:?}", begin.elapsed());
        let recorded = on_record(world).await?;
        assert!(recorded.len() == JOBS && jobs.iter().all(|job| recorded.contains(&job.to_string())));

        operator.kill()?;
        let dead = jobs[JOBS / 2];
        let (pod, silent) = hundreds.agents.remove(&dead).context("it has an agent")?;
        drop(silent);
        let pods = Api::<Pod>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        eventually("its pod is gone", async || {
            Ok(pods.get_opt(&pod.name_any()).await?.is_none().then_some(()))
        })
        .await?;
        assert_eq!(world.buildkite.job(dead).await?.job_state, "running", "nobody is there to tell");

        let back = Timestamp::now();
        let _operator = world.process().await?;
        let job = world.buildkite.ended(dead).await?;
        let took = Timestamp::now().duration_since(back);
        println!("the job has ended {took:#} after the operator was started again");
        assert!(took <= PROMPT, "it took {took:#}");
        let end = (job.job_state.as_str(), job.exit_status, job.signal_reason.as_deref());
        assert_eq!(end, ("finished", Some(-1), Some("agent_stop")), "{job:?}");
        let said = "The job was ended by buildkite-operator";
        let log = world.buildkite.log_with(dead, said).await?;
        assert!(log.contains("PodDeleted"), "{log}");
        let name = names::build_job(&dead.to_string());
        let ended = world
            .cluster
            .build_job_with(&name, "over", |job| job.status_or_default().phase.is_terminal())
            .await?;
        let verdict = ended.status_or_default().verdict.map(|verdict| verdict.code.as_str().to_owned());
        assert_eq!(verdict.as_deref(), Some("PodDeleted"));

        hundreds.all_run().await?;
        hundreds.pass().await?;
        world.cluster.no_pods().await?;
        let over = Timestamp::now();
        for job in hundreds.agents.keys() {
            let job = world.buildkite.job(*job).await?;
            assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        }
        println!("all jobs are over after {:?}", begin.elapsed());
        eventually("no session is on record", async || {
            let left = on_record(world).await?.len();
            ensure!(left == 0, "{left} are");
            Ok(Some(()))
        })
        .await?;
        let took = Timestamp::now().duration_since(over);
        println!("no session is on record {took:#} after that");
        assert!(took <= LINGER, "it took {took:#}");
        kwok.remove()
    })
    .await;
}
