//! Two replicas: one works, the other stands by and takes over. Whatever becomes of the first, each job ends once; so it does when the
//! chart is upgraded.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::{collections::HashSet, sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use bk_e2e::{
    World, buildkite::Job, eventually, eventually_for, kwok::Kwok, operator::Operator, record::Record,
    scenario, scenario_installed,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::scale;

/// How many jobs pass, fail, and are cancelled while they run.
const FATES: [usize; 3] = [160, 20, 20];
const JOBS: usize = FATES[0] + FATES[1] + FATES[2];
const NODES: usize = 20;

/// How long it may take until another replica works, on a machine that is busy with other tests: ten seconds are meant, and
/// `cargo xtask bench --filter operator-takeover` measures them.
const LONG: SignedDuration = SignedDuration::from_secs(30);

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

/// Two hundred jobs on nodes of kwok.
struct Hundreds<'a> {
    world: &'a World,
    kwok: Kwok<'a>,
    pods: Arc<Record<Pod>>,
    jobs: Vec<Job>,
}

impl<'a> Hundreds<'a> {
    async fn submit(world: &'a World) -> Result<Self> {
        configure(world).await?;
        let kwok = Kwok::start(world, NODES)?;
        let api = Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
        let pods = Arc::new(Record::<Pod>::begin(api));
        let build = world.buildkite.build(&world.repository.url, &scale::steps(&kwok, FATES)).await?;
        Ok(Self { world, kwok, pods, jobs: build.jobs })
    }

    async fn under_way(&self) -> Result<()> {
        eventually_for(JOBS, "every job is under way", async || {
            let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
            let running = self.pods.seen_if(runs).len();
            ensure!(running == JOBS, "{running} run");
            Ok(Some(()))
        })
        .await
    }

    /// Agents take the jobs, and end them.
    async fn play(&self) -> Result<()> {
        scale::play(self.world, &self.pods, &self.jobs).await
    }

    /// Each has ended, once, as it should, and nothing is left of it.
    async fn each_has_ended_once(self) -> Result<()> {
        let Self { world, kwok, pods, jobs } = self;
        eventually_for(JOBS, "all jobs have ended", async || {
            let ended = scale::ends(&world.operator_log()).len();
            ensure!(ended >= JOBS, "{ended} have ended");
            Ok(Some(()))
        })
        .await?;
        world.cluster.no_pods().await?;
        let ended = scale::ends(&world.operator_log());
        let distinct: HashSet<_> = ended.iter().map(|(job, _)| job).collect();
        assert_eq!((distinct.len(), ended.len()), (JOBS, JOBS), "each has ended once");
        assert_eq!(pods.seen().len(), JOBS, "each job had one pod");
        scale::assert_buildkite_agrees(world, &jobs).await?;
        kwok.remove()
    }
}

/// Waits until the operator has written something for a job since `mark`, and returns when that was.
async fn first_work(world: &World, mark: Timestamp) -> Result<Timestamp> {
    eventually("another replica works for a job", async || {
        let calls = world.api_calls(mark)?;
        let work =
            calls.iter().filter(|call| call.is_write() && call.resource != "leases" && call.code < 300);
        Ok(work.map(|call| call.at).min())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_jobs_outlast_the_replica_that_works() {
    scenario(async |world| {
        let hundreds = Hundreds::submit(world).await?;
        let (mut first, _second, leader) = replicas(world).await?;
        hundreds.under_way().await?;
        first.kill()?;
        let killed = Timestamp::now();
        // Agents take jobs, and end them, while nobody works.
        let (worked, played) = tokio::join!(first_work(world, killed), hundreds.play());
        played?;
        let took = worked?.duration_since(killed);
        println!("another replica has worked for a job {took:#} after the first was killed");
        assert!(took < LONG, "it took {took:#}");
        assert_ne!(world.leader().await?, Some(leader), "another replica has the Lease");
        hundreds.each_has_ended_once().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_jobs_outlast_an_upgrade_of_the_chart() {
    scenario_installed(async |world| {
        let hundreds = Hundreds::submit(world).await?;
        let release = world.release().await?;
        hundreds.under_way().await?;
        let leader = world.leader_after(None).await?;
        // Agents take jobs, and end them, while pods of the operator come and go.
        let (upgraded, played) =
            tokio::join!(release.upgrade("podAnnotations.upgraded=once"), hundreds.play());
        upgraded.and(played)?;
        assert_ne!(world.leader().await?, Some(leader), "another replica works");
        hundreds.each_has_ended_once().await
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
