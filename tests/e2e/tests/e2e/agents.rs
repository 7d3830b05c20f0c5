//! Agents that do not come to have the job, or do not keep it, and jobs that take too long.

use bk_api::{Phase, config::TOKEN_KEY};
use bk_e2e::{
    agent::PlayedAgent,
    eventually,
    registry::{Manner, Registry},
    scenario,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_register_is_replaced_twice_and_then_given_up() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "agentCredentials: secret").await?;
        // The operator has the token from elsewhere: only agents meet the one in the Secret.
        let _operator = world.operator_with_token().await?;
        eventually("the operator has registered", async || {
            Ok(world.operator_log().contains("registered with Buildkite").then_some(()))
        })
        .await?;
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token"], None)?;
        world.cluster.create_secret("buildkite-agent-token", TOKEN_KEY, "revoked").await?;
        let end = world.submit("{command: x}").await?.end().await?;
        end.assert_refused("AgentNotRegistered").assert_exit_status(-1).assert_detail("3 attempts");
        assert_eq!(end.pods.len(), 3, "{end:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_another_agent_took_is_left_to_it() {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{}', command: ['true']}}]}}}}}}]}}",
            registry.image(Manner::Broken)
        );
        let run = world.submit(&step).await?;
        run.waiting_for("image").await?;
        let rival = PlayedAgent::register(&world.buildkite, "rival").await?;
        rival.take(run.id).await?;
        registry.release();
        let id = run.id;
        let end = run.end().await?;
        end.assert_failed("NotAcquired").assert_told("NotAcquired");
        assert_eq!(end.job.job_state, "running", "the other agent still has it: {end:?}");
        rival.finish(id, 0).await?;
        assert_eq!(world.buildkite.ended(id).await?.exit_status, Some(0), "and ends it as it likes");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_while_the_job_runs_is_lost() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{}', \
             command: ['echo on its way; sleep 600']}}]}}}}}}]}}",
            world.environment.toolbox_image
        );
        let run = world.submit(&step).await?;
        run.output("on its way\r\n").await?;
        let kill = "for dir in /proc/[0-9]*; do \
                    [ \"$(cat $dir/comm)\" != buildkite-agent ] || kill -9 ${dir#/proc/}; \
                    done";
        world.cluster.kubectl(&["exec", &run.name, "-c", "agent", "--", "sh", "-c", kill], None)?;
        let end = run.end().await?;
        end.assert_failed("AgentLost").assert_told("AgentLost");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_deadline_passes_is_stopped() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step =
            "{command: 'echo on its way; sleep 600', plugins: [{kubernetes: {jobActiveDeadlineSeconds: 6}}]}";
        let run = world.submit(step).await?;
        run.output("on its way\r\n").await?;
        let end = run.end().await?;
        assert_eq!(end.status.phase, Phase::TimedOut, "{end:?}");
        assert_eq!(end.status.verdict.as_ref().map(|verdict| verdict.code.as_str()), Some("TimedOut"));
        end.assert_told("TimedOut");
        assert_ne!(end.job.exit_status, Some(0), "{end:?}");
        Ok(())
    })
    .await;
}
