//! Two replicas: one works, the other stands by and takes over. Whatever becomes of the first, each job ends once.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use bk_e2e::{World, eventually, eventually_for, kwok::Kwok, operator::Operator, record::Record, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::scale;

/// How many jobs pass, fail, and are cancelled while they run.
const FATES: [usize; 3] = [160, 20, 20];
const JOBS: usize = FATES[0] + FATES[1] + FATES[2];
const NODES: usize = 20;

/// How long a takeover may take on a machine that is busy with other tests: ten seconds are meant.
const LONG: Duration = Duration::from_secs(30);

async fn configure(world: &World) -> Result<()> {
    world
        .cluster
        .configure("job_spawner_config", &format!("{{maxInFlight: {JOBS}, stackKey: bk-operator}}"))
        .await
}

/// The replica that works, the one that stands by, and what the first is called.
async fn replicas(world: &World) -> Result<(Operator, Operator, String)> {
    let first = world.replica().await?;
    let leader = world.leader_after(None).await?;
    let second = world.replica().await?;
    eventually("the other stands by", async || {
        Ok(world.operator_log().contains("\"stands by\"").then_some(()))
    })
    .await?;
    Ok((first, second, leader))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_jobs_outlast_the_replica_that_works() {
    scenario(async |world| {
        configure(world).await?;
        let kwok = Kwok::start(world, NODES)?;
        let pods =
            Record::<Pod>::begin(Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace));
        let pods = Arc::new(pods);
        let build = world.buildkite.build(&world.repository.url, &scale::steps(&kwok, FATES)).await?;
        let (mut first, _second, leader) = replicas(world).await?;
        eventually_for(JOBS, "every job is under way", async || {
            let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
            let running = pods.seen_if(runs).len();
            ensure!(running == JOBS, "{running} run");
            Ok(Some(()))
        })
        .await?;

        first.kill()?;
        let begin = Instant::now();
        let takeover = async {
            world.leader_after(Some(&leader)).await?;
            Ok(begin.elapsed())
        };
        // Agents take jobs, and end them, while nobody works.
        let (took, played) = tokio::join!(takeover, scale::play(world, &pods, &build.jobs));
        let took: Result<Duration> = took;
        let took = took?;
        played?;
        println!("another replica has taken over after {took:?}");
        assert!(took < LONG, "it took {took:?}");

        eventually_for(JOBS, "all jobs have ended", async || {
            let ended = scale::ends(&world.operator_log()).len();
            ensure!(ended >= JOBS, "{ended} have ended");
            Ok(Some(()))
        })
        .await?;
        world.cluster.no_pods().await?;
        let ended = scale::ends(&world.operator_log());
        let jobs: HashSet<_> = ended.iter().map(|(job, _)| job).collect();
        assert_eq!((jobs.len(), ended.len()), (JOBS, JOBS), "each has ended once");
        assert_eq!(pods.seen().len(), JOBS, "each job had one pod");
        scale::assert_buildkite_agrees(world, &build.jobs).await?;
        kwok.remove()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_freezes_at_work_ends_when_it_wakes_and_doubles_nothing() {
    const MANY: usize = 60;
    scenario(async |world| {
        configure(world).await?;
        let (mut first, _second, leader) = replicas(world).await?;
        let crowd = world.crowd(MANY).await?;
        crowd.pods(MANY / 6).await?;
        first.freeze()?;
        world.leader_after(Some(&leader)).await?;
        crowd.pods(MANY).await?;
        first.thaw()?;
        let status = first.exit().await?;
        assert!(!status.success(), "{status}");
        assert!(world.operator_log().contains("the Lease is lost"), "it says why");
        let more = world.crowd(5).await?;
        more.pods(MANY + 5).await?;
        crowd.assert_none_twice();
        more.assert_none_twice();
        for job in &more.jobs {
            world.buildkite.cancel(job.id).await?;
        }
        crowd.cancel().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_leaves_gives_its_place_to_the_other_at_once() {
    scenario(async |world| {
        configure(world).await?;
        let (mut first, mut second, leader) = replicas(world).await?;
        let crowd = world.crowd(10).await?;
        crowd.pods(10).await?;
        let begin = Instant::now();
        assert!(first.stop().await?.success());
        let stopped = begin.elapsed();
        world.leader_after(Some(&leader)).await?;
        println!("stopped after {stopped:?}; another replica has taken over after {:?}", begin.elapsed());
        assert!(world.operator_log().contains("the Lease is given back"), "it says so");
        let more = world.crowd(10).await?;
        more.pods(20).await?;
        crowd.assert_none_twice();
        more.assert_none_twice();
        for job in &more.jobs {
            world.buildkite.cancel(job.id).await?;
        }
        crowd.cancel().await?;
        assert!(second.stop().await?.success());
        assert_eq!(world.leader().await?, None, "the last one has given it back");
        Ok(())
    })
    .await;
}
