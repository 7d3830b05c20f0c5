//! What stays of a job after its end, for how long, and what is never left behind.

use anyhow::Result;
use bk_api::{BuildJob, Phase};
use bk_e2e::{World, eventually, scenario};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

/// Waits until a BuildJob is gone, and returns how long after its end, which is rounded down to the second, that was.
async fn stay(world: &World, job: &BuildJob) -> Result<SignedDuration> {
    let name = job.name_any();
    eventually("the BuildJob is gone", async || {
        Ok(world.cluster.build_job(&name).await?.is_none().then_some(()))
    })
    .await?;
    let ended = job.status_or_default().finished_at.expect("what has ended has a time").0;
    Ok(Timestamp::now().duration_since(ended))
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_stay_as_long_as_configured_and_pods_only_of_those_that_failed() {
    scenario(async |world| {
        let config = "succeededTtlSeconds: 6\nfailedTtlSeconds: 6\nkeepPodOnFailure: true";
        world.cluster.configure("pod_config", config).await?;
        let _operator = world.operator().await?;
        let passing = world.submit("{command: ./hello.sh}").await?;
        let failing = world.submit("{command: exit 3}").await?;
        let over = |status: &bk_api::BuildJobStatus| status.phase.is_terminal();
        assert_eq!(passing.status("over", over).await?.phase, Phase::Succeeded);
        assert_eq!(failing.status("over", over).await?.phase, Phase::Failed);
        eventually("the pod of the job that passed is gone", async || {
            let left: Vec<String> = world.cluster.pods().await?.iter().map(ResourceExt::name_any).collect();
            Ok((left == [failing.name.clone()]).then_some(()))
        })
        .await?;
        for run in [&passing, &failing] {
            let job = run.build_job().expect("it was seen");
            let stayed = stay(world, &job).await?;
            assert!(stayed >= SignedDuration::from_secs(5), "{} was there for {stayed:#}", run.name);
        }
        world.cluster.no_pods().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_belongs_to_nobody_is_removed() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let manifest = "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {name: parent}\n\
                        spec: {image: any, command: x, nodeRequirements: [{key: no-node, operator: Exists}]}\n";
        world.cluster.kubectl(&["apply", "-f", "-"], Some(manifest))?;
        eventually("it has a pod", async || Ok((world.cluster.pods().await?.len() == 1).then_some(()))).await?;
        world.cluster.kubectl(&["delete", "buildjob", "parent", "--cascade=orphan"], None)?;
        let pods = world.cluster.pods().await?;
        assert!(pods.len() == 1 && pods[0].owner_references().is_empty(), "it is an orphan: {pods:?}");
        world.cluster.no_pods().await
    })
    .await;
}
