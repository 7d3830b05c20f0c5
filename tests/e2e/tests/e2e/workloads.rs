//! The same job in a pod of its own and in a `batch/v1` Job, to the end.

use anyhow::Result;
use bk_api::{BuildJob, Phase, names};
use bk_e2e::{World, eventually, scenario};
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt};

async fn batch_jobs(world: &World) -> Result<Vec<Job>> {
    let api = Api::<Job>::namespaced(world.cluster.client.clone(), &world.cluster.namespace);
    Ok(api.list(&kube::api::ListParams::default()).await?.items)
}

async fn nothing_is_left(world: &World) -> Result<()> {
    world.cluster.no_pods().await?;
    eventually("the Job is gone", async || Ok(batch_jobs(world).await?.is_empty().then_some(()))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buildkite_job_runs_in_a_job() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "workload: Job").await?;
        let _operator = world.operator().await?;
        let run = world.submit("{command: ./hello.sh}").await?;
        let id = run.id;
        let pod = run.pod(1).await?;
        assert!(pod.owner_references().iter().any(|owner| owner.kind == "Job"), "{:?}", pod.metadata);
        let job = world.buildkite.ended(id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        assert!(world.buildkite.log(id).await?.contains("hello from the repository"));
        eventually("the BuildJob is gone", async || {
            Ok(world.cluster.build_job(&names::build_job(&id.to_string())).await?.is_none().then_some(()))
        })
        .await?;
        nothing_is_left(world).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_workload_keeps_the_exit_status_of_a_standalone_job() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        for kind in ["Pod", "Job"] {
            let name = format!("in-a-{}", kind.to_lowercase());
            let manifest = format!(
                "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildJob\nmetadata: {{name: {name}}}\n\
                 spec: {{workload: {kind}, image: '{}', command: exit 4}}\n",
                world.environment.toolbox_image
            );
            world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
            let job = world.cluster.build_job_with(&name, "over", BuildJob::is_terminal).await?;
            let status = job.status_or_default();
            assert_eq!((status.phase, status.exit_status), (Phase::Failed, Some(4)), "{kind}: {status:?}");
            assert_eq!(status.job_name.is_some(), kind == "Job", "{status:?}");
            nothing_is_left(world).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_waits_and_can_be_cancelled() {
    scenario(async |world| {
        // No pod may be made, so there is time to suspend the Job, as a queue in the cluster would at once.
        let quota = r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"none"},"spec":{"hard":{"pods":"0"}}}"#;
        world.cluster.kubectl(&["apply", "-f", "-"], Some(quota))?;
        world.cluster.configure("pod_config", "workload: Job").await?;
        let _operator = world.operator().await?;
        let run = world.submit("{command: ./hello.sh}").await?;
        run.waiting_for("exceeded quota").await?;
        world.cluster.kubectl(
            &["patch", "job", &run.name, "--type=merge", "--patch", r#"{"spec":{"suspend":true}}"#],
            None,
        )?;
        run.waiting_for("suspended").await?;
        world.buildkite.cancel(run.id).await?;
        eventually("the BuildJob is gone", async || {
            Ok(world.cluster.build_job(&run.name).await?.is_none().then_some(()))
        })
        .await?;
        nothing_is_left(world).await
    })
    .await;
}
