//! Jobs outside Buildkite's clusters: found by GraphQL, reserved by our own record, ended by an agent of our own.

use anyhow::Result;
use bk_api::{config::API_TOKEN_KEY, names};
use bk_e2e::{World, eventually, scenario_with};
use buildkite_local::Config;

fn unclustered() -> Config {
    Config { unclustered: true, ..Config::default() }
}

/// Says that jobs come by GraphQL, with this token.
async fn configure(world: &World, token: &str) -> Result<()> {
    world.cluster.create_secret("buildkite-api-token", API_TOKEN_KEY, token).await?;
    let config =
        format!("intake: graphql\ngraphqlEndpoint: {}/v1\ntags: [cluster=prod]\n", world.buildkite.url);
    world.cluster.configure("job_spawner_config", &config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_fail_and_are_cancelled_as_in_a_cluster() {
    scenario_with(unclustered(), async |world| {
        configure(world, &world.buildkite.api_token).await?;
        let _operator = world.operator().await?;
        let steps = format!(
            r#"
agents: {{queue: bk-operator, cluster: prod}}
steps:
  - {{command: ./hello.sh}}
  - plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: {image}, command: ["cat hello.txt; exit 3"]}}]}}}}}}]
  - {{command: x, plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: x, comand: [y]}}]}}}}}}]}}
  - {{command: x, plugins: [{{kubernetes: {{podSpec: {{nodeSelector: {{no-node: has-this}}, containers: [{{image: any}}]}}}}}}]}}
  - {{command: x, agents: {{queue: bk-operator, cluster: staging}}}}
"#,
            image = world.environment.toolbox_image
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let [passed, failed, refused, waiting, foreign] = &build.jobs[..] else { panic!("{build:?}") };

        let job = world.buildkite.ended(passed.id).await?;
        let log = world.buildkite.log(passed.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "log: {log}");
        assert!(log.contains("hello from the repository"), "{log}");
        let job = world.buildkite.ended(failed.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(3)));

        let job = world.buildkite.ended(refused.id).await?;
        assert_eq!((job.exit_status, job.signal_reason.as_deref()), (Some(-1), Some("stack_error")));
        let log = world.buildkite.log(refused.id).await?;
        let reason = "spec.kubernetes.podSpec.containers[0].comand: unknown key `comand`; did you mean `command`?";
        assert!(log.contains(reason), "{log}");

        let name = names::build_job(&waiting.id.to_string());
        world.cluster.build_job_with(&name, "there", |_| true).await?;
        world.buildkite.cancel(waiting.id).await?;
        eventually("the BuildJob is gone", async || {
            Ok(world.cluster.build_job(&name).await?.is_none().then_some(()))
        })
        .await?;
        let job = world.buildkite.job(waiting.id).await?;
        assert_eq!(job.job_state, "canceled");
        assert!(job.agent.is_none(), "no agent was ever involved: {job:?}");

        assert_eq!(world.buildkite.job(foreign.id).await?.job_state, "scheduled", "its tag is not ours");
        world.cluster.no_pods().await
    })
    .await;
}

/// The command line of the first controller: an API token, and nothing in the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_token_on_the_command_line_is_enough() {
    scenario_with(unclustered(), async |world| {
        let flags = [
            "--intake=graphql".to_owned(),
            format!("--graphql-endpoint={}/v1", world.buildkite.url),
            format!("--token={}", world.buildkite.api_token),
        ];
        let _operator = world.operator_given(None, flags).await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: ./hello.sh}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let ended = world.buildkite.ended(build.jobs[0].id).await?;
        let log = world.buildkite.log(build.jobs[0].id).await?;
        assert_eq!((ended.job_state.as_str(), ended.exit_status), ("finished", Some(0)), "{log}");
        assert!(log.contains("hello from the repository"), "{log}");
        assert!(!world.operator_log().contains(&world.buildkite.api_token), "it is in no log");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_takes_nothing_twice() {
    scenario_with(unclustered(), async |world| {
        configure(world, &world.buildkite.api_token).await?;
        let mut operator = world.process().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: ./hello.sh}, {command: ./hello.sh}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let name = names::build_job(&build.jobs[0].id.to_string());
        world.cluster.build_job_with(&name, "there", |_| true).await?;
        operator.kill()?;
        let _operator = world.operator().await?;
        for job in &build.jobs {
            let ended = world.buildkite.ended(job.id).await?;
            let log = world.buildkite.log(job.id).await?;
            assert_eq!((ended.job_state.as_str(), ended.exit_status), ("finished", Some(0)), "{log}");
            let created = world
                .operator_log()
                .lines()
                .filter(|line| line.contains("BuildJob created") && line.contains(&job.id.to_string()))
                .count();
            assert!(created <= 1, "{}", world.operator_log());
        }
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_that_is_wrong_is_named() {
    scenario_with(unclustered(), async |world| {
        configure(world, "wrong-token").await?;
        let _operator = world.operator().await?;
        eventually("the operator says which token is refused", async || {
            let log = world.operator_log();
            let said = "cannot list scheduled jobs with the API token: Buildkite answered 401";
            Ok(log.contains(said).then_some(()))
        })
        .await?;
        assert!(!world.operator_log().contains("wrong-token"));
        Ok(())
    })
    .await;
}
