//! Servers that fail, go away, or have no room for a while: jobs wait, none is lost, none is taken twice.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bk_e2e::{
    World,
    crowd::Crowd,
    eventually,
    gate::Gate,
    operator::Operator,
    proxy::{Failure, Kind, Proxy},
    scenario,
};
use buildkite_local::{Action, Answer, Fault};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use uuid::Uuid;

const JOBS: usize = 100;
/// How long a server is away.
const AWAY: Duration = Duration::from_secs(10);
/// How soon afterwards jobs go on, and after one another.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

async fn many(world: &World) -> Result<()> {
    world
        .cluster
        .configure("job_spawner_config", &format!("{{maxInFlight: {JOBS}, stackKey: bk-operator}}"))
        .await
}

/// An operator in the midst of many jobs, with a gate on its way to the API server.
struct Midst<'a> {
    gate: Gate,
    crowd: Crowd<'a>,
    _proxy: Proxy,
    _operator: Operator,
}

impl<'a> Midst<'a> {
    async fn of(world: &'a World) -> Result<Self> {
        many(world).await?;
        let proxy = Proxy::serve(&world.environment).await?;
        let gate = Gate::to(&proxy.url).await?;
        let crowd = world.crowd(JOBS).await?;
        let operator = world.operator_behind(&gate).await?;
        crowd.pods(10).await?;
        Ok(Self { gate, crowd, _proxy: proxy, _operator: operator })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_goes_away_holds_jobs_up_and_loses_none() {
    scenario(async |world| {
        let midst = Midst::of(world).await?;
        midst.gate.close();
        tokio::time::sleep(AWAY).await;
        midst.gate.open().await?;
        let pause = midst.crowd.all_go_on(Timestamp::now()).await?;
        assert!(pause < PAUSE, "for {pause:#} nothing was done");
        midst.crowd.assert_none_twice();
        midst.crowd.cancel().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_falls_silent_holds_jobs_up_and_loses_none() {
    scenario(async |world| {
        let midst = Midst::of(world).await?;
        midst.gate.fall_silent();
        tokio::time::sleep(AWAY).await;
        midst.gate.speak();
        midst.crowd.pods(JOBS).await?;
        midst.crowd.assert_none_twice();
        midst.crowd.cancel().await
    })
    .await;
}

/// A job that runs ends meanwhile, and one that comes meanwhile is taken soon after.
#[tokio::test(flavor = "multi_thread")]
async fn a_buildkite_that_goes_away_costs_no_job_anything_but_time() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let running = world.submit("{command: 'echo started $((40 + 2)); sleep 5; echo ended'}").await?;
        running.output("started 42").await?;
        let away = Action::Answer(Answer { status: 503, body: None, headers: [].into() });
        world.buildkite.faults.add(Fault::always("/v3/**", away))?;
        let waiting = world.submit("{command: ./hello.sh}").await?;
        tokio::time::sleep(2 * AWAY).await;
        assert!(waiting.build_job().is_none(), "nobody can have heard of it");
        world.buildkite.faults.clear();
        let back = Instant::now();
        waiting.pod(1).await?;
        let took = back.elapsed();
        println!("the job that came meanwhile has a pod {took:?} after Buildkite came back");
        assert!(took < Duration::from_secs(30), "intake resumed after {took:?}");
        for (run, text) in [(&running, "started 42"), (&waiting, "hello from the repository")] {
            let job = world.buildkite.ended(run.id).await?;
            assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
            let log = world.buildkite.log(run.id).await?;
            assert_eq!(log.matches(text).count(), 1, "it ran once: {log}");
            assert_eq!(run.pods().len(), 1);
        }
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_lifted_lets_all_jobs_go_on() {
    scenario(async |world| {
        many(world).await?;
        world.cluster.quota(10).await?;
        let crowd = world.crowd(JOBS).await?;
        let _operator = world.operator().await?;
        world.cluster.wait_for_room(JOBS - 10).await?;
        let mark = Timestamp::now();
        world.cluster.quota(2 * JOBS).await?;
        let pause = crowd.all_go_on(mark).await?;
        assert!(pause < PAUSE, "for {pause:#} nothing was done");
        crowd.assert_none_twice();
        crowd.cancel().await
    })
    .await;
}

/// What the spawner and the controller ask of Buildkite for jobs that no agent has.
const CALLS: [(&str, &str); 7] = [
    ("POST", "/v3/stacks/register"),
    ("GET", "/v3/stacks/*/scheduled-jobs"),
    ("PUT", "/v3/stacks/*/scheduled-jobs/batch-reserve"),
    ("POST", "/v3/stacks/*/jobs/get-states"),
    ("GET", "/v3/stacks/*/jobs/*"),
    ("POST", "/v3/stacks/*/jobs/*/finish"),
    ("POST", "/v3/stacks/*/notifications"),
];

/// A job that ends without a pod.
async fn bad(world: &World) -> Result<Uuid> {
    let steps =
        "agents: {queue: bk-operator}\nsteps: [{command: x, plugins: [{kubernetes: {podSpec: {none: 1}}}]}]";
    Ok(world.buildkite.build(&world.repository.url, steps).await?.jobs[0].id)
}

/// It has ended as it should, and Buildkite was told once.
async fn ends_badly(world: &World, id: Uuid) -> Result<()> {
    let job = world.buildkite.ended(id).await?;
    assert_eq!((job.exit_status, job.agent), (Some(-1), None));
    assert_eq!(job.events.len(), 1, "it was told once: {:?}", job.events);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_to_buildkite_may_fail_in_each_way() {
    scenario(async |world| {
        many(world).await?;
        let error = Action::Answer(Answer { status: 500, body: None, headers: [].into() });
        // Once: nothing succeeds between this and the registration, and pauses grow.
        world.buildkite.faults.add(Fault { times: Some(1), ..Fault::always("/v3/token", Action::Close) })?;
        for (method, path) in CALLS {
            for action in [error.clone(), Action::Close, Action::LoseAnswer, Action::CutBody] {
                let method = Some(method.to_owned());
                let fault = Fault { method, times: Some(1), ..Fault::always(path, action) };
                world.buildkite.faults.add(fault)?;
            }
        }
        let crowd = world.crowd(20).await?;
        let bad = bad(world).await?;
        let begin = Instant::now();
        let mut operator = world.process().await?;
        crowd.pods(20).await?;
        println!("all jobs have pods after {:?}", begin.elapsed());
        ends_badly(world, bad).await?;
        println!("the bad one has ended after {:?}", begin.elapsed());
        eventually("every fault has struck", async || {
            let left: Vec<_> =
                world.buildkite.faults.list().into_iter().filter(|fault| fault.hits == 0).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await?;
        println!("every fault has struck after {:?}", begin.elapsed());
        crowd.assert_none_twice();
        crowd.cancel().await?;
        // Nobody waits for a goodbye that is not heard.
        world.buildkite.faults.add(Fault::always("/v3/stacks/*/deregister", Action::Close))?;
        assert!(operator.stop().await?.success());
        assert!(
            world.operator_log().contains("cannot deregister from Buildkite"),
            "{}",
            world.operator_log()
        );
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_to_the_api_server_may_fail() {
    scenario(async |world| {
        many(world).await?;
        let proxy = Proxy::serve(&world.environment).await?;
        let calls = [
            (Method::GET, "/buildkite-operator-intent-bk-operator"),
            (Method::PATCH, "/buildkite-operator-intent-bk-operator"),
            (Method::POST, "/buildjobs"),
            (Method::GET, "/pods"),
            (Method::POST, "/pods"),
            (Method::GET, "/events"),
            (Method::PATCH, "/status"),
            (Method::DELETE, "/pods/*"),
            (Method::DELETE, "/buildjobs/*"),
        ];
        let kinds =
            [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS, StatusCode::GATEWAY_TIMEOUT];
        for (method, path) in calls {
            for kind in kinds.map(Kind::Answer).into_iter().chain([Kind::Cut]) {
                proxy.fail(Failure { method: method.clone(), path, kind, times: 1 });
            }
        }
        let crowd = world.crowd(20).await?;
        let bad = bad(world).await?;
        let begin = Instant::now();
        let _operator = world.operator_through(&proxy).await?;
        crowd.pods(20).await?;
        println!("all jobs have pods after {:?}", begin.elapsed());
        ends_badly(world, bad).await?;
        crowd.assert_none_twice();
        crowd.cancel().await?;
        println!("none of them is left after {:?}", begin.elapsed());
        eventually("every failure has come", async || {
            ensure!(proxy.left() == 0, "{:?} are left", proxy.to_come());
            Ok(Some(()))
        })
        .await
    })
    .await;
}
