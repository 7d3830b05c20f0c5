//! Cancelled in Buildkite: gone at any phase, never reported as failed.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use bk_e2e::{
    eventually,
    registry::{Manner, Registry},
    scenario,
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_stops() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: 'echo on its way; sleep 600'}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;
        world.buildkite.log_with(id, "on its way\r\n").await?;

        world.buildkite.cancel(id).await?;
        let job = world.buildkite.ended(id).await?;
        assert_eq!((job.job_state.as_str(), job.signal_reason.as_deref()), ("canceled", Some("cancel")));
        world.cluster.no_pods().await?;
        assert!(!world.operator_log().contains("\"phase\":\"Failed\""), "a cancelled job has not failed");
        Ok(())
    })
    .await;
}

/// How soon a cancelled job goes on a machine that does much else. It is two seconds at most where nothing else runs.
const SOON: SignedDuration = SignedDuration::from_secs(8);

/// What a job waits for when it is cancelled.
#[derive(Clone, Copy)]
enum Wait {
    /// There is no room for its pod.
    Room,
    /// No node takes its pod.
    Node,
    /// Its image cannot be had.
    Image,
}

#[rstest]
#[case::for_room(Wait::Room, "exceeded quota")]
#[case::for_a_node(Wait::Node, "a node (Unschedulable: 0/1 nodes are available")]
#[case::for_an_image(Wait::Image, "image")]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_goes_away_soon(#[case] wait: Wait, #[case] reason: &str) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let spec = match wait {
            Wait::Room => {
                world.cluster.quota(0).await?;
                "containers: [{image: any}]".to_owned()
            }
            Wait::Node => "nodeSelector: {no-node: has-this}, containers: [{image: any}]".to_owned(),
            Wait::Image => format!("containers: [{{image: '{}'}}]", registry.image(Manner::Broken)),
        };
        let _operator = world.operator().await?;
        let run = world.submit(&format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}")).await?;
        run.waiting_for(reason).await?;

        let cancelled = Timestamp::now();
        world.buildkite.cancel(run.id).await?;
        eventually("the BuildJob is gone", async || {
            Ok(world.cluster.build_job(&run.name).await?.is_none().then_some(()))
        })
        .await?;
        world.cluster.no_pods().await?;
        let job = world.buildkite.job(run.id).await?;
        assert_eq!(job.job_state, "canceled");
        assert!(job.agent.is_none(), "no agent was ever involved: {job:?}");
        assert!(world.operator_log().contains("\"phase\":\"Canceled\""), "{}", world.operator_log());

        let calls = world.api_calls(cancelled)?;
        let last = calls.iter().filter(|call| call.verb == "delete").map(|call| call.at).max();
        let took = last.expect("the BuildJob was deleted").duration_since(cancelled);
        println!("it was gone {took:#} after the cancellation");
        assert!(took <= SOON, "it took {took:#}: {calls:?}");
        Ok(())
    })
    .await;
}
