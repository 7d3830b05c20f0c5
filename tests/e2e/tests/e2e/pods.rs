//! Ways to make a job's pod: init containers of the operator's own, workspaces that stay, plugins that are none, other users.

use anyhow::ensure;
use bk_e2e::{World, eventually, scenario};

/// Runs a step and returns its log; it must pass.
async fn passes(world: &World, step: &str) -> anyhow::Result<String> {
    let steps = format!("agents: {{queue: bk-operator}}\nsteps:\n{step}");
    let build = world.buildkite.build(&world.repository.url, &steps).await?;
    let job = world.buildkite.ended(build.jobs[0].id).await?;
    let log = world.buildkite.log(build.jobs[0].id).await?;
    assert_eq!(job.exit_status, Some(0), "{log}");
    Ok(log)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_delivers_the_agent_and_others_check_images() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "agentDelivery: init\nimageCheck: init").await?;
        let _operator = world.operator().await?;
        let image = &world.environment.toolbox_image;
        let step = format!("- {{command: ./hello.sh, image: \"{image}\"}}");
        assert!(passes(world, &step).await?.contains("hello from the repository"));
        // The kubelet tells of them in its own time.
        eventually("events tell that init containers have run", async || {
            let list = world
                .cluster
                .kubectl(&["get", "events", "-o", "jsonpath={.items[*].involvedObject.fieldPath}"], None)?;
            let has_run = |name: &str| list.contains(&format!("initContainers{{{name}}}"));
            ensure!(["copy-agent", "imagecheck-0"].into_iter().all(has_run), "{list}");
            Ok(Some(()))
        })
        .await?;
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_stays_serves_the_next_job() {
    scenario(async |world| {
        let directory = tempfile::tempdir()?;
        let path = directory.path().display();
        world.cluster.configure("pod_config", &format!("workspaceVolume: {{hostPath: {{path: {path}}}}}\nworkspaceSubPathExpr: $(BUILDKITE_PIPELINE_SLUG)/one")).await?;
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: './hello.sh; touch ../left-behind'}, wait, {command: 'ls ..; ./hello.sh'}, \
                     {command: 'ls ..; ./hello.sh', env: {BK_OPERATOR_WORKSPACE_SUB_PATH_EXPR: $$(BUILDKITE_PIPELINE_SLUG)/two}}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let [first, _wait, second, apart] = &build.jobs[..] else { panic!("{build:?}") };
        for (job, is_second) in [(first, false), (second, true), (apart, false)] {
            let ended = world.buildkite.ended(job.id).await?;
            let log = world.buildkite.log(job.id).await?;
            assert_eq!(ended.exit_status, Some(0), "{log}");
            assert_eq!(log.contains("left-behind\r\n"), is_second, "{log}");
        }
        world.cluster.no_pods().await
    })
    .await;
}

/// The names are no repositories: whoever tried to clone them would fail.
#[tokio::test(flavor = "multi_thread")]
async fn plugins_that_carry_options_are_not_cloned() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step = "- command: ./hello.sh\n  plugins:\n  - buildkite-operator#v0.0.1: {}\n  - kubernetes#v9: {podSpec: {}}\n";
        let log = passes(world, step).await?;
        assert!(log.contains("already checked out") && !log.contains("git clone -v --recursive -- https"), "{log}");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_different_users_share_the_checkout() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let (image, agent) = (&world.environment.toolbox_image, &world.environment.agent_image);
        let step = format!(
            "- plugins:\n  - kubernetes:\n      podSpec:\n        containers:\n\
             \x20       - {{image: \"{image}\", command: [\"./hello.sh; id; echo first > turn\"], securityContext: {{runAsUser: 3333}}}}\n\
             \x20       - {{image: \"{agent}\", command: [\"cat turn; id; rm turn; touch ~/mine; git log\"], securityContext: {{runAsUser: 4444}}}}\n"
        );
        let log = passes(world, &step).await?;
        for expected in ["hello from the repository", "uid=3333", "uid=4444", "first", "Author: Test"] {
            assert!(log.contains(expected), "{expected}: {log}");
        }
        world.cluster.no_pods().await
    })
    .await;
}

/// The hooks are the operator's, and run in every container of the job, also where nobody looks at its image first.
#[tokio::test(flavor = "multi_thread")]
async fn hooks_on_a_volume_run_in_every_job_and_images_need_not_be_checked() {
    scenario(async |world| {
        let hooks = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hooks}\ndata:\n  pre-command: |\n    #!/bin/sh\n    echo the hook says $((40 + 2))\n";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(hooks))?;
        let config = "imageCheck: none\nagentConfig: {hooksVolume: {configMap: {name: hooks, defaultMode: 493}}}";
        world.cluster.configure("pod_config", config).await?;
        let _operator = world.operator().await?;
        let other = format!("- {{command: ./hello.sh, image: \"{}\"}}", world.environment.toolbox_image);
        for step in ["- {command: ./hello.sh}", &other] {
            let log = passes(world, step).await?;
            for expected in ["the hook says 42", "hello from the repository"] {
                assert!(log.contains(expected), "{step} {expected}: {log}");
            }
        }
        world.cluster.no_pods().await
    })
    .await;
}
