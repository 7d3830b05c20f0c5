//! The operator ends at any point between a listing and the creation of pods: no job is stranded, none is taken twice.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use std::time::{Duration, Instant};

use anyhow::Result;
use bk_e2e::{
    World,
    proxy::{Hold, Proxy},
    scenario,
};
use buildkite_local::{Action, Fault};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use rstest::rstest;

const JOBS: usize = 500;
/// How soon after the restart jobs go on, and after one another.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// A call that is held while the operator ends.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// One of Buildkite's, by method and path.
    Buildkite(&'static str, &'static str),
    /// One of the API server's, by how its path ends.
    Post(&'static str),
    /// The written choice.
    Intent,
}

/// The calls in the order in which the operator makes them; how many of the same kind go before; and whether the server has
/// done its part already.
const POINTS: [(Call, usize, bool); 14] = [
    (Call::Buildkite("POST", "/v3/stacks/register"), 0, false),
    (Call::Buildkite("POST", "/v3/stacks/register"), 0, true),
    (Call::Buildkite("GET", "/v3/stacks/*/scheduled-jobs"), 0, false),
    (Call::Buildkite("GET", "/v3/stacks/*/scheduled-jobs"), 0, true),
    (Call::Intent, 0, false),
    (Call::Intent, 0, true),
    (Call::Buildkite("PUT", "/v3/stacks/*/scheduled-jobs/batch-reserve"), 0, false),
    (Call::Buildkite("PUT", "/v3/stacks/*/scheduled-jobs/batch-reserve"), 0, true),
    (Call::Buildkite("GET", "/v3/stacks/*/jobs/*"), 10, false),
    (Call::Buildkite("GET", "/v3/stacks/*/jobs/*"), 30, true),
    (Call::Post("/buildjobs"), 20, false),
    (Call::Post("/buildjobs"), 20, true),
    (Call::Post("/pods"), 20, false),
    (Call::Post("/pods"), 20, true),
];

/// Holds a call; what is held is refused when the next one is.
fn hold(world: &World, proxy: &Proxy, call: Call, skip: usize, done: bool) -> Result<()> {
    world.buildkite.faults.clear();
    let post = |method: Method, path: &'static str| Hold { method, path, skip, done };
    proxy.hold(match call {
        Call::Buildkite(..) => None,
        Call::Post(path) => Some(post(Method::POST, path)),
        Call::Intent => Some(post(Method::PATCH, "/configmaps/buildkite-operator-intent-bk-operator")),
    });
    if let Call::Buildkite(method, path) = call {
        let long = 600.0;
        let action = if done { Action::WaitAfter(long) } else { Action::WaitBefore(long) };
        let (method, skip) = (Some(method.to_owned()), u64::try_from(skip)?);
        let fault = Fault { method, skip, times: Some(1), ..Fault::always(path, action) };
        world.buildkite.faults.add(fault)?;
    }
    Ok(())
}

/// Waits until the call is held, and not longer.
async fn held(world: &World, proxy: &Proxy, call: Call) -> Result<()> {
    if !matches!(call, Call::Buildkite(..)) {
        return proxy.held().await;
    }
    while world.buildkite.faults.list().iter().all(|fault| fault.hits == 0) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[rstest]
#[case::killed(false)]
#[case::stopped(true)]
#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_jobs_outlast_an_operator_that_ends_at_any_call(#[case] politely: bool) {
    scenario(async |world| {
        world
            .cluster
            .configure("job_spawner_config", &format!("{{maxInFlight: {JOBS}, stackKey: bk-operator}}"))
            .await?;
        let proxy = Proxy::serve(&world.environment).await?;
        let crowd = world.crowd(JOBS).await?;
        for (call, skip, done) in POINTS {
            hold(world, &proxy, call, skip, done)?;
            let mut operator = world.operator_through(&proxy).await?;
            let reached = tokio::time::timeout(Duration::from_mins(1), held(world, &proxy, call)).await;
            assert!(reached.is_ok(), "the operator gets to {call:?}");
            if politely {
                let begin = Instant::now();
                assert!(operator.stop().await?.success());
                println!("{call:?} {done}: stopped in {:?}", begin.elapsed());
            } else {
                operator.kill()?;
            }
        }
        world.buildkite.faults.clear();
        proxy.hold(None);
        let restarted = Timestamp::now();
        let _operator = world.operator_through(&proxy).await?;
        let pause = crowd.all_go_on(restarted).await?;
        assert!(pause < PAUSE, "for {pause:#} nothing was done");
        crowd.assert_none_twice();
        crowd.cancel().await
    })
    .await;
}
