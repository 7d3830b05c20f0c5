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
    proxy::{Failure, Proxy},
    scenario,
};
use buildkite_local::{Action, Answer, Fault};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};

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
const CALLS: [(&str, &str); 6] = [
    ("POST", "/v3/stacks/register"),
    ("GET", "/v3/stacks/*/scheduled-jobs"),
    ("PUT", "/v3/stacks/*/scheduled-jobs/batch-reserve"),
    ("POST", "/v3/stacks/*/jobs/get-states"),
    ("GET", "/v3/stacks/*/jobs/*"),
    ("POST", "/v3/stacks/*/jobs/*/finish"),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_call_to_buildkite_may_fail_in_each_way() {
    scenario(async |world| {
        many(world).await?;
        let error = Action::Answer(Answer { status: 500, body: None, headers: [].into() });
        for (method, path) in CALLS {
            for action in [error.clone(), Action::Close, Action::LoseAnswer, Action::CutBody] {
                let method = Some(method.to_owned());
                let fault = Fault { method, times: Some(1), ..Fault::always(path, action) };
                world.buildkite.faults.add(fault)?;
            }
        }
        let crowd = world.crowd(20).await?;
        let bad = "agents: {queue: bk-operator}\nsteps: [{command: x, plugins: [{kubernetes: {podSpec: {none: 1}}}]}]";
        let bad = world.buildkite.build(&world.repository.url, bad).await?.jobs[0].id;
        let begin = Instant::now();
        let _operator = world.operator().await?;
        crowd.pods(20).await?;
        println!("all jobs have pods after {:?}", begin.elapsed());
        let job = world.buildkite.ended(bad).await?;
        println!("the bad one has ended after {:?}", begin.elapsed());
        assert_eq!((job.exit_status, job.agent), (Some(-1), None));
        assert_eq!(job.events.len(), 1, "it was told once: {:?}", job.events);
        eventually("every fault has struck", async || {
            let left: Vec<_> =
                world.buildkite.faults.list().into_iter().filter(|fault| fault.hits == 0).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await?;
        println!("every fault has struck after {:?}", begin.elapsed());
        crowd.assert_none_twice();
        crowd.cancel().await
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
        ];
        let kinds =
            [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS, StatusCode::GATEWAY_TIMEOUT];
        for (method, path) in calls {
            for status in kinds {
                proxy.fail(Failure { method: method.clone(), path, status, times: 1 });
            }
        }
        let crowd = world.crowd(20).await?;
        let begin = Instant::now();
        let _operator = world.operator_through(&proxy).await?;
        crowd.pods(20).await?;
        println!("all jobs have pods after {:?}", begin.elapsed());
        eventually("every failure has come", async || {
            ensure!(proxy.left() == 0, "{} are left", proxy.left());
            Ok(Some(()))
        })
        .await?;
        crowd.assert_none_twice();
        crowd.cancel().await
    })
    .await;
}
