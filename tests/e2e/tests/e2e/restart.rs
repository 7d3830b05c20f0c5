//! The operator is killed with SIGKILL while jobs run, and started again: each job still ends exactly once.

use bk_e2e::{eventually, scenario};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_the_operator_and_end_exactly_once() {
    scenario(async |world| {
        let mut operator = world.process().await?;
        // Three jobs pass and one fails; each says when it starts and runs long enough to be caught running.
        let steps = r"
agents: {queue: bk-operator}
steps:
  - {key: pass, command: 'echo started $((40 + 2)); sleep 4', parallelism: 3}
  - {key: fail, command: 'echo started $((40 + 2)); sleep 4; exit 5'}
";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        world.buildkite.log_with(build.jobs[0].id, "started 42").await?;
        operator.kill()?;
        // While nobody is there, running jobs end and a new one comes.
        let late = world
            .buildkite
            .build(&world.repository.url, "steps: [{command: echo late, agents: {queue: bk-operator}}]")
            .await?;
        world.buildkite.ended(build.jobs[0].id).await?;

        operator = world.process().await?;
        // Again, at another point of the jobs' lives: as soon as the new one has a pod.
        eventually("the late job has a pod", async || {
            let id = late.jobs[0].id.to_string();
            let pods = world.cluster.pods().await?;
            Ok(pods
                .iter()
                .any(|pod| pod.metadata.name.as_deref().is_some_and(|name| name.contains(&id)))
                .then_some(()))
        })
        .await?;
        operator.kill()?;
        let _operator = world.process().await?;

        for job in build.jobs.iter().chain(&late.jobs) {
            let ended = world.buildkite.ended(job.id).await?;
            let expected = if ended.step_key.as_deref() == Some("fail") { 5 } else { 0 };
            let log = world.buildkite.log(job.id).await?;
            assert_eq!(
                (ended.job_state.as_str(), ended.exit_status),
                ("finished", Some(expected)),
                "log: {log}"
            );
            let starts = log.matches("started 42").count() + log.matches("late\r\n").count();
            assert_eq!(starts, 1, "the command ran exactly once: {log}");
        }
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_stop_deregisters_and_succeeds() {
    scenario(async |world| {
        let mut operator = world.process().await?;
        eventually("the operator has registered", async || {
            Ok(world.operator_log().contains("registered with Buildkite").then_some(()))
        })
        .await?;
        let status = operator.stop().await?;
        assert!(status.success(), "{status}");
        assert!(world.operator_log().contains("deregistered from Buildkite"), "{}", world.operator_log());
        Ok(())
    })
    .await;
}
