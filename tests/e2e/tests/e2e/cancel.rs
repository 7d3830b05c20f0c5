//! Cancelled in Buildkite: gone at any phase, never reported as failed.

use bk_api::names;
use bk_e2e::{eventually, scenario};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_a_node_goes_away() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = r"
agents: {queue: bk-operator}
steps:
  - plugins:
      - kubernetes:
          podSpec: {nodeSelector: {no-node: has-this}, containers: [{image: any, command: ['true']}]}
";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;
        let name = names::build_job(&id.to_string());
        let waiting = world
            .cluster
            .build_job_with(&name, "waiting for a node", |job| {
                job.status.as_ref().and_then(|status| status.waiting_for.as_ref()).is_some()
            })
            .await?;
        let reason = waiting.status.and_then(|status| status.waiting_for).unwrap_or_default();
        assert!(reason.starts_with("a node (Unschedulable: 0/1 nodes are available"), "{reason}");

        world.buildkite.cancel(id).await?;
        world.cluster.no_pods().await?;
        eventually("the BuildJob is gone", async || {
            Ok(world.cluster.build_job(&name).await?.is_none().then_some(()))
        })
        .await?;
        let job = world.buildkite.job(id).await?;
        assert_eq!(job.job_state, "canceled");
        assert!(job.agent.is_none(), "no agent was ever involved: {job:?}");
        Ok(())
    })
    .await;
}
