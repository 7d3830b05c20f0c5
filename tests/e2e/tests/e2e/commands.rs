//! What the operator says when the cluster is not ready for it.

use anyhow::Result;
use bk_e2e::{World, eventually, scenario};

/// Runs the operator where it must fail, and returns its one line.
async fn fails(world: &World) -> Result<String> {
    let mut operator = world.process().await?;
    let status = operator.exit().await?;
    assert_eq!(status.code(), Some(1));
    let log = operator.log()?;
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{log}");
    assert!(!log.contains("panicked") && !log.contains("backtrace"), "{log}");
    Ok(errors[0].to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_token_is_named_with_the_cure_and_waited_for() {
    scenario(async |world| {
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token"], None)?;
        let _operator = world.operator().await?;
        let namespace = &world.cluster.namespace;
        let told = |text: &str| Ok(world.operator_log().contains(text).then_some(()));
        let missing = format!("Secret {namespace}/buildkite-agent-token with key BUILDKITE_AGENT_TOKEN");
        eventually("the operator says what is missing", async || told(&missing)).await?;
        assert!(world.operator_log().contains("kubectl --namespace"));
        let token = &world.buildkite.agent_token;
        world.cluster.create_secret("buildkite-agent-token", "BUILDKITE_AGENT_TOKEN", token).await?;
        eventually("the operator goes on", async || told("registered with Buildkite")).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_told_and_not_shown() {
    scenario(async |world| {
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token"], None)?;
        world.cluster.create_secret("buildkite-agent-token", "BUILDKITE_AGENT_TOKEN", "wrong-token").await?;
        let _operator = world.operator().await?;
        eventually("the operator says what is wrong", async || {
            let told = "cannot identify the agent token: Buildkite answered 401";
            Ok(world.operator_log().contains(told).then_some(()))
        })
        .await?;
        assert!(!world.operator_log().contains("wrong-token"));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_agents_could_not_use_is_refused() {
    scenario(async |world| {
        world.cluster.kubectl(&["delete", "secret", "buildkite-agent-token"], None)?;
        let token = format!("{}\n", world.buildkite.agent_token);
        world.cluster.create_secret("buildkite-agent-token", "BUILDKITE_AGENT_TOKEN", &token).await?;
        let _operator = world.operator().await?;
        eventually("the operator says what is wrong", async || {
            Ok(world.operator_log().contains("begins or ends with white space").then_some(()))
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_names_its_key() {
    scenario(async |world| {
        world.cluster.configure("job_spawner_config", "quue: x").await?;
        let line = fails(world).await?;
        assert!(line.contains("ConfigMap buildkite-operator-config, key `job_spawner_config`"), "{line}");
        assert!(line.contains("quue"), "{line}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_cannot_do_more_than_its_role_says() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let who = world.cluster.operator_user();
        for (question, answer) in [
            ("create buildjobs", "yes"),
            ("get secrets/buildkite-agent-token", "yes"),
            ("get secrets/another", "no"),
            ("list secrets", "no"),
            ("create secrets", "no"),
            ("delete configmaps", "no"),
            ("update pods", "no"),
            ("create pods --subresource=exec", "no"),
            ("get nodes", "yes"),
            ("patch nodes", "no"),
            ("update buildjobs", "no"),
        ] {
            let mut args = vec!["auth", "can-i", "--as", &who];
            args.extend(question.split(' '));
            let output = world.cluster.try_kubectl(&args, None)?;
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), answer, "{question}");
        }
        // A Role counts for its own namespace as an object, whatever name `can-i` is asked about.
        for (namespace, allowed) in [(world.cluster.namespace.as_str(), true), ("default", false)] {
            let output = world.cluster.try_kubectl(&["get", "namespace", namespace, "--as", &who], None)?;
            assert_eq!(output.status.success(), allowed, "get namespace {namespace}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_token_is_in_no_object_but_its_secret() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: 'echo on its way; sleep 600'}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        world.buildkite.log_with(build.jobs[0].id, "on its way\r\n").await?;
        let objects =
            world.cluster.kubectl(&["get", "pods,buildjobs,configmaps,events", "-o", "yaml"], None)?;
        assert!(objects.contains("kind: Pod") && !objects.contains(&world.buildkite.agent_token));
        assert!(!world.operator_log().contains(&world.buildkite.agent_token));
        Ok(())
    })
    .await;
}
