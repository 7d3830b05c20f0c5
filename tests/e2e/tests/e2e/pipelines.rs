//! Pipelines as authors write them: tags that choose a cluster, and options by variables and by the plugin.

use anyhow::Result;
use bk_api::{BuildJob, names};
use bk_e2e::{World, eventually, record::Record, repository::Repository, scenario};
use kube::{Api, ResourceExt};
use uuid::Uuid;

/// As the documents show them.
const QUEUE: &str = r#"
steps:
  - command: "build.sh"
    agents:
      queue: bk-operator
"#;

const CLUSTERS: &str = r#"
steps:
  - command: "deploy-gke.sh"
    agents:
      queue: bk-operator
      cluster: gke-prod
  - command: "deploy-eks.sh"
    agents:
      queue: bk-operator
      cluster: eks-prod
"#;

const VARIABLES: &str = r#"
steps:
  - command: "build.sh"
    agents:
      queue: bk-operator
    env:
      BK_OPERATOR_BUILD_ENVIRONMENT: name-of-build-environment
      BK_OPERATOR_LOG_PATHS: /path/to/log/file/1.log;/path/to/log/file/2.log
"#;

const PLUGIN: &str = r#"
steps:
  - command: "build.sh"
    agents:
      queue: bk-operator
    plugins:
    - buildkite-operator#v0.0.1:
        build_environment: name-of-build-environment
        log_paths:
        - "/path/to/log/file/1.log"
        - "/path/to/log/file/2.log"
"#;

fn scripts(world: &World) -> Result<Repository> {
    Repository::serve(
        world.environment.host,
        &[
            ("build.sh", "#!/bin/sh\necho \"built in ${PLACE:-the agent's image}\"\n"),
            ("deploy-gke.sh", "#!/bin/sh\necho deployed to gke\n"),
            ("deploy-eks.sh", "#!/bin/sh\necho deployed to eks\n"),
        ],
    )
}

fn make_environment(world: &World) -> Result<()> {
    let manifest = format!(
        "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildEnvironment\n\
         metadata: {{name: name-of-build-environment}}\n\
         spec: {{image: \"{}\", env: [{{name: PLACE, value: the environment}}]}}\n",
        world.environment.toolbox_image
    );
    world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest)).map(drop)
}

/// Waits until a job has passed, and returns its log.
async fn passed(world: &World, id: Uuid) -> Result<String> {
    let job = world.buildkite.ended(id).await?;
    let log = world.buildkite.log(id).await?;
    assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}\n{log}");
    Ok(log)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_in_the_queue_runs_and_tags_choose_the_cluster() {
    scenario(async |world| {
        world.cluster.configure("job_spawner_config", "tags: [cluster=gke-prod]").await?;
        let repository = scripts(world)?;
        let _operator = world.operator().await?;
        let builds = [
            world.buildkite.build(&repository.url, QUEUE).await?,
            world.buildkite.build(&repository.url, CLUSTERS).await?,
        ];
        let log = passed(world, builds[0].jobs[0].id).await?;
        assert!(log.contains("built in the agent's image"), "{log}");
        let log = passed(world, builds[1].jobs[0].id).await?;
        assert!(log.contains("deployed to gke"), "{log}");
        // It was there before the other one was taken, and is nobody's here.
        let other = world.buildkite.job(builds[1].jobs[1].id).await?;
        assert_eq!(other.job_state, "scheduled", "{other:?}");
        Ok(())
    })
    .await;
}

/// Runs one of the two ways to set options, and sees that the job had what it asked for, and was told of what it had not.
async fn options_are_honoured(world: &World, pipeline: &str) -> Result<()> {
    make_environment(world)?;
    let repository = scripts(world)?;
    let record: Record<BuildJob> =
        Record::begin(Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace));
    let _operator = world.operator().await?;
    let build = world.buildkite.build(&repository.url, pipeline).await?;
    let id = build.jobs[0].id;
    let log = passed(world, id).await?;
    assert!(log.contains("built in the environment"), "{log}");
    let mut clones = log.lines().filter(|line| line.contains("git clone"));
    assert!(clones.all(|line| line.contains(&repository.url)), "nobody clones the plugin: {log}");
    let name = names::build_job(&id.to_string());
    let job = record.seen().into_iter().find(|job| job.name_any() == name).expect("it had a BuildJob");
    let exporter = job.spec.log_exporter.clone().expect("the paths are in its spec");
    assert_eq!(exporter.paths, ["/path/to/log/file/1.log", "/path/to/log/file/2.log"]);
    let conditions = job.status.map(|status| status.conditions).unwrap_or_default();
    let said = conditions.iter().find(|condition| condition.type_ == "LogsExported");
    assert_eq!(
        said.map(|said| (said.status.as_str(), said.reason.as_str())),
        Some(("False", "NoLogExporter"))
    );
    eventually("the author has been told", async || {
        let events = world.buildkite.job(id).await?.events;
        let told = |text: &String| text.contains("its logs are not exported");
        Ok(events.iter().filter_map(|event| event.detail.as_ref()).any(told).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn options_by_variables_are_honoured() {
    scenario(async |world| options_are_honoured(world, VARIABLES).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_by_the_plugin_are_honoured() {
    scenario(async |world| options_are_honoured(world, PLUGIN).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_are_not_understood_fail_the_job_by_name() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let end = world.submit("{command: x, env: {BK_OPERATOR_LOG_PATH: /x}}").await?.end().await?;
        end.assert_refused("InvalidSpec").assert_detail("did you mean `BK_OPERATOR_LOG_PATHS`?");
        Ok(())
    })
    .await;
}
