//! Cancelled in Buildkite: gone at any phase, never reported as failed.

#![allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]

use bk_e2e::{
    eventually,
    registry::{Manner, Registry},
    scenario,
};
use jiff::SignedDuration;
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

        let took = run.cancel().await?;
        let job = world.buildkite.job(run.id).await?;
        assert_eq!(job.job_state, "canceled");
        assert!(job.agent.is_none(), "no agent was ever involved: {job:?}");
        assert!(world.operator_log().contains("\"phase\":\"Canceled\""), "{}", world.operator_log());

        println!("it was gone {took:#} after the cancellation");
        assert!(took <= SOON, "it took {took:#}");
        Ok(())
    })
    .await;
}

/// The claim is its pod's, and nobody provides a volume for it here: its pod waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_of_its_own_goes_with_a_cancelled_job() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let volume = "{ephemeral: {volumeClaimTemplate: {spec: {storageClassName: none-such, accessModes: [ReadWriteOnce], \
                      resources: {requests: {storage: 1Mi}}}}}}";
        let step = format!("{{command: x, plugins: [{{buildkite-operator#v0.0.1: {{workspace_volume: {volume}}}}}]}}");
        let run = world.submit(&step).await?;
        let claims = || world.cluster.kubectl(&["get", "persistentvolumeclaims", "-o", "name"], None);
        eventually("it has a claim", async || Ok(claims()?.contains(&run.name).then_some(()))).await?;
        world.buildkite.cancel(run.id).await?;
        world.cluster.no_pods().await?;
        eventually("no claim is left", async || {
            let left = claims()?;
            anyhow::ensure!(left.trim().is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
        assert_eq!(world.buildkite.job(run.id).await?.job_state, "canceled");
        Ok(())
    })
    .await;
}
