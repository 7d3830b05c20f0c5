//! Jobs from Buildkite's queue, from listing to the last trace.

use anyhow::Result;
use bk_api::{BuildJob, Phase, VerdictCode, names};
use bk_e2e::scenario;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_checkout_passes_and_leaves_nothing() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: ./hello.sh, key: hello}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;

        let job = world.buildkite.ended(id).await?;
        let log = world.buildkite.log(id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "log: {log}");
        assert!(log.contains("hello from the repository"), "the command's output arrives: {log}");
        assert!(log.contains("Preparing working directory"), "the checkout's output arrives: {log}");

        world.cluster.no_pods().await?;
        bk_e2e::eventually("the BuildJob is gone", async || {
            let left = world.cluster.build_job(&names::build_job(&id.to_string())).await?;
            Ok(left.is_none().then_some(()))
        })
        .await?;
        assert_lines_name_the_job(&world.operator_log(), &id.to_string())
    })
    .await;
}

/// Every log line that concerns a job carries the job's UUID and the BuildJob's name.
fn assert_lines_name_the_job(log: &str, uuid: &str) -> Result<()> {
    let mut concerned = 0;
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let message = line["message"].as_str().unwrap_or_default();
        if ["BuildJob created", "created", "job", "job ended", "BuildJob deleted", "deleted"]
            .contains(&message)
        {
            concerned += 1;
            assert_eq!(line["span"]["job_uuid"], uuid, "{line}");
            assert_eq!(line["span"]["build_job"], names::build_job(uuid), "{line}");
        }
    }
    assert!(concerned >= 4, "the log tells the job's story: {log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_status_arrives_as_it_is() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = "agents: {queue: bk-operator}\nsteps: [{command: exit 3}]";
        let build = world.buildkite.build(&world.repository.url, steps).await?;
        let id = build.jobs[0].id;

        let job = world.buildkite.ended(id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(3)));

        let name = names::build_job(&id.to_string());
        let build_job = world
            .cluster
            .build_job_with(&name, "over", BuildJob::is_terminal)
            .await?
            .status
            .unwrap_or_default();
        assert_eq!((build_job.phase, build_job.exit_status), (Phase::Failed, Some(3)));
        let verdict = build_job.verdict.expect("an ended job has a verdict");
        assert_eq!(verdict.code, VerdictCode::CommandFailed);
        assert_eq!(verdict.message, "container container-0 ended with exit status 3");
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_the_images_that_a_pod_spec_names_after_the_checkout() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let steps = format!(
            r#"
agents: {{queue: bk-operator}}
steps:
  - key: two
    plugins:
      - kubernetes:
          podSpec:
            containers:
              - image: {image}
                command: ["cat hello.txt; busybox | head -n 1; echo first > turn"]
              - image: {image}
                command: [cat]
                args: [turn]
"#,
            image = world.environment.toolbox_image
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let job = world.buildkite.ended(build.jobs[0].id).await?;
        let log = world.buildkite.log(build.jobs[0].id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "log: {log}");
        assert!(log.contains("hello from the repository"), "the checkout is shared: {log}");
        assert!(log.contains("BusyBox v"), "it is the other image: {log}");
        assert!(
            log.contains("first\r\n") || log.contains("first\n"),
            "the second container follows the first: {log}"
        );
        world.cluster.no_pods().await
    })
    .await;
}
