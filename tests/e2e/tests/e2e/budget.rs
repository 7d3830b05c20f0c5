//! What a job costs the API server, counted by the API server itself.

use std::time::Duration;

use anyhow::{Context, Result};
use bk_e2e::{
    World,
    audit::ApiCall,
    eventually,
    registry::{Manner, Registry},
    scenario,
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

/// Writes for a job that succeeds: the choice, the BuildJob, its pod, its status, and the end of both; and its agent's session, which jobs
/// that register together share.
const WRITES: usize = 7;
/// Looks at a BuildJob from its first day to its last.
const ROUNDS: usize = 20;
/// How long the operator is watched while it has nothing to do.
const IDLE: Duration = Duration::from_secs(15);

/// Waits until the operator has its caches and has looked for jobs at least once.
async fn settled(world: &World) -> Result<()> {
    eventually("the operator has registered", async || {
        Ok(world.operator_log().contains("registered with Buildkite").then_some(()))
    })
    .await?;
    let quiet = Duration::from_secs(2);
    eventually("no call for two seconds", async || {
        let calls = world.api_calls(Timestamp::now() - quiet)?;
        Ok(calls.is_empty().then_some(()))
    })
    .await
}

fn shown(calls: &[ApiCall]) -> String {
    calls.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// How often the operator looked at a BuildJob.
fn rounds(log: &str, build_job: &str) -> usize {
    let round = |line: &&str| {
        serde_json::from_str::<serde_json::Value>(line)
            .is_ok_and(|line| line["message"] == "round" && line["span"]["build_job"] == build_job)
    };
    log.lines().filter(round).count()
}

/// Runs a job that succeeds, and counts what it costs. How long it took to start is returned.
async fn run(world: &World, step: &str) -> Result<SignedDuration> {
    settled(world).await?;
    let mark = Timestamp::now();
    let run = world.submit(step).await?;
    let job = world.buildkite.ended(run.id).await?;
    assert_eq!(job.exit_status, Some(0), "{job:?}");
    world.cluster.no_pods().await?;
    eventually("the BuildJob is gone", async || {
        Ok(world.cluster.build_job(&run.name).await?.is_none().then_some(()))
    })
    .await?;

    settled(world).await?;
    let calls = world.api_calls(mark)?;
    let writes: Vec<ApiCall> = calls.iter().filter(|call| call.is_write()).cloned().collect();
    assert!(writes.len() <= WRITES, "{} writes:\n{}", writes.len(), shown(&writes));
    let creations: Vec<&ApiCall> = writes.iter().filter(|call| call.verb == "create").collect();
    assert!(creations.len() >= 2, "the BuildJob and its pod are among what is counted:\n{}", shown(&calls));
    let rounds = rounds(&world.operator_log(), &run.name);
    assert!((1..=ROUNDS).contains(&rounds), "{rounds} rounds");
    let pod = creations.iter().find(|call| call.resource == "pods").context("the pod was created")?;
    Ok(job.started_at.context("the job has started")?.duration_since(pod.at))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_succeeds_costs_seven_writes_and_an_idle_operator_nothing() {
    scenario(async |world| {
        let _operator = world.process().await?;
        run(world, "{command: ./hello.sh}").await?;

        let mark = Timestamp::now();
        tokio::time::sleep(IDLE).await;
        let calls = world.api_calls(mark)?;
        let idle = |call: &ApiCall| call.verb == "watch" || call.resource == "leases";
        let others: Vec<ApiCall> = calls.into_iter().filter(|call| !idle(call)).collect();
        assert!(others.is_empty(), "while idle:\n{}", shown(&others));
        Ok(())
    })
    .await;
}

#[rstest]
#[case::for_an_init_container(
    "initContainers: [{name: slow, image: 'TOOLBOX', command: [sleep, '5']}], \
     containers: [{image: 'TOOLBOX', command: ['true']}]"
)]
#[case::for_an_image("containers: [{image: 'SLOW', command: ['true']}]")]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_slow_to_start_costs_no_more(#[case] spec: &str) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let spec = spec
            .replace("TOOLBOX", &world.environment.toolbox_image)
            .replace("SLOW", &registry.image(Manner::Slow));
        let _operator = world.process().await?;
        let step = format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}");
        let took = run(world, &step).await?;
        assert!(took >= SignedDuration::from_secs(4), "it started after {took:#}");
        Ok(())
    })
    .await;
}
