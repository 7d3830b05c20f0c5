//! Several operators on one queue, and one that freezes while another goes on: no job is taken twice.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use bk_api::names;
use bk_e2e::{World, audit, buildkite::Job, cluster::Cluster, eventually, operator::Operator, scenario};
use buildkite_local::{Action, Fault};
use jiff::Timestamp;

const DETAILS: &str = "/v3/stacks/*/jobs/*";
const LISTING: &str = "/v3/stacks/*/scheduled-jobs";

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_in_one_namespace_take_each_job_once() {
    scenario(async |world| {
        world.cluster.configure("job_spawner_config", "maxInFlight: 60").await?;
        let crowd = world.crowd(60).await?;
        let _operators = (world.process().await?, world.process().await?);
        crowd.pods(60).await?;
        crowd.assert_none_twice();
        crowd.cancel().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_of_two_namespaces_share_a_queue() {
    scenario(async |world| {
        let other = Cluster::prepare(&world.environment).await?;
        // Neither has room for all of them.
        world.cluster.configure("job_spawner_config", "maxInFlight: 35").await?;
        other.configure("job_spawner_config", "maxInFlight: 35").await?;
        let mark = Timestamp::now();
        let jobs = world.crowd(60).await?.jobs;
        let _operators = (world.process().await?, world.operator_in(&other).await?);
        let taken = async || -> Result<(usize, usize)> {
            Ok((world.cluster.pods().await?.len(), other.pods().await?.len()))
        };
        eventually("all jobs have pods", async || {
            let (here, there) = taken().await?;
            ensure!(here + there == jobs.len(), "{here} here, {there} there");
            Ok(Some(()))
        })
        .await?;
        let mut times = HashMap::<String, usize>::new();
        for cluster in [&world.cluster, &other] {
            for call in audit::calls(&world.environment.audit_log, &cluster.operator_user(), mark)? {
                if call.verb == "create" && call.resource == "pods" && call.code == 201 {
                    *times.entry(call.name.unwrap_or_default()).or_default() += 1;
                }
            }
        }
        assert_eq!(times.len(), jobs.len());
        assert!(times.values().all(|times| *times == 1), "{times:?}");
        let (here, there) = taken().await?;
        assert!(here >= 25 && there >= 25, "{here} here, {there} there");
        for job in &jobs {
            world.buildkite.cancel(job.id).await?;
        }
        world.cluster.no_pods().await?;
        other.no_pods().await?;
        other.remove().await
    })
    .await;
}

/// How often the operator has created something with a name like this.
fn created(world: &World, mark: Timestamp, resource: &str, name: &str) -> Result<usize> {
    let calls = world.api_calls(mark)?;
    let same = |call: &&audit::ApiCall| {
        call.verb == "create"
            && call.resource == resource
            && call.name.as_deref().is_some_and(|n| n.starts_with(name))
    };
    Ok(calls.iter().filter(same).filter(|call| call.code == 201).count())
}

/// The first one has read a job and is about to make a BuildJob of it when it freezes. The second one sees the job to its
/// end, and leaves no trace of it. Then the first one wakes.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_freezes_and_wakes_doubles_nothing() {
    scenario(async |world| {
        let mark = Timestamp::now();
        let faults = &world.buildkite.faults;
        let method = Some("GET".to_owned());
        faults.add(Fault { method, ..Fault::always(DETAILS, Action::WaitAfter(4.0)) })?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: 'echo once', parallelism: 3}]";
        let jobs = world.buildkite.build(&world.repository.url, steps).await?.jobs;
        let frozen = world.process().await?;
        eventually("it reads the jobs", async || {
            Ok(faults.list().iter().all(|fault| fault.hits == 3).then_some(()))
        })
        .await?;
        frozen.freeze()?;
        faults.clear();
        another_sees_them_through(world, &jobs).await?;
        wake(world, &frozen).await?;
        assert_ran_once(world, mark, &jobs).await
    })
    .await;
}

/// The first one freezes when it has made the BuildJobs, and cannot make the pods yet. The second one sees the jobs to
/// their end; then the first one, which still believes that they wait, wakes.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_freezes_after_it_took_jobs_doubles_nothing() {
    scenario(async |world| {
        let mark = Timestamp::now();
        world.cluster.quota(0).await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: 'echo once', parallelism: 3}]";
        let jobs = world.buildkite.build(&world.repository.url, steps).await?.jobs;
        let frozen = world.process().await?;
        world.cluster.wait_for_room(3).await?;
        frozen.freeze()?;
        world.cluster.quota(10).await?;
        another_sees_them_through(world, &jobs).await?;
        wake(world, &frozen).await?;
        assert_ran_once(world, mark, &jobs).await
    })
    .await;
}

/// Another operator has the jobs run and leaves no trace of them; then it is gone.
async fn another_sees_them_through(world: &World, jobs: &[Job]) -> Result<()> {
    let mut other = world.process().await?;
    for job in jobs {
        let ended = world.buildkite.ended(job.id).await?;
        assert_eq!(ended.exit_status, Some(0), "{ended:?}");
    }
    nothing_is_left(world).await?;
    other.kill()
}

/// Lets it go on until it has listed jobs several times.
async fn wake(world: &World, frozen: &Operator) -> Result<()> {
    let faults = &world.buildkite.faults;
    let method = Some("GET".to_owned());
    faults.add(Fault { method, skip: u64::MAX, ..Fault::always(LISTING, Action::Close) })?;
    frozen.thaw()?;
    eventually("it is at work again", async || {
        Ok(faults.list().iter().all(|fault| fault.matched > 4).then_some(()))
    })
    .await
}

async fn assert_ran_once(world: &World, mark: Timestamp, jobs: &[Job]) -> Result<()> {
    nothing_is_left(world).await?;
    for job in jobs {
        let name = names::build_job(&job.id.to_string());
        assert_eq!(created(world, mark, "pods", &name)?, 1, "pods of {name}");
        let log = world.buildkite.log(job.id).await?;
        assert_eq!(log.matches("once\r\n").count(), 1, "{log}");
    }
    Ok(())
}

async fn nothing_is_left(world: &World) -> Result<()> {
    eventually("no BuildJob is left", async || {
        let left = world.cluster.kubectl(&["get", "buildjobs", "-o", "name"], None)?.lines().count();
        ensure!(left == 0, "{left} are left");
        Ok(Some(()))
    })
    .await?;
    world.cluster.no_pods().await
}
