//! Pods and BuildJobs that are taken away: placed again while no agent has the job, reported once one has.

use anyhow::Result;
use bk_api::{BuildJob, Phase, VerdictCode};
use bk_e2e::{
    Run, World,
    agent::PlayedAgent,
    eventually,
    node::PlayedNode,
    registry::{Manner, Registry},
    scenario,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

fn pods(world: &World) -> Api<Pod> {
    Api::namespaced(world.cluster.client.clone(), &world.cluster.namespace)
}

/// A step whose command runs until it is stopped.
const ENDLESS: &str = "{command: 'echo on its way; sleep 600'}";
/// What it writes when it runs.
const UNDER_WAY: &str = "on its way\r\n";

/// A step whose image can be had once the registry is released, and not before.
fn held(registry: &Registry, more: &str) -> String {
    format!(
        "{{plugins: [{{kubernetes: {{podSpec: {{{more} containers: [{{image: '{}', command: ['true']}}]}}}}}}]}}",
        registry.image(Manner::Broken)
    )
}

/// What a kubelet writes when its node is short of something.
fn evicted(resource: &str) -> Value {
    json!({ "phase": "Failed", "reason": "Evicted",
        "message": format!("The node was low on resource: {resource}. Threshold quantity: 1, available: 0. ") })
}

async fn delete(world: &World, pod: &Pod) -> Result<()> {
    pods(world).delete(&pod.name_any(), &DeleteParams::default()).await?;
    Ok(())
}

async fn evict(world: &World, pod: &Pod) -> Result<()> {
    pods(world).evict(&pod.name_any(), &EvictParams::default()).await?;
    Ok(())
}

async fn give_up(world: &World, pod: &Pod) -> Result<()> {
    let patch = Patch::Strategic(json!({ "status": evicted("memory") }));
    pods(world).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What can be done to a pod.
#[derive(Clone, Copy)]
enum Blow {
    /// Somebody deletes it.
    Deletion,
    /// Somebody asks for it through the eviction API, as `kubectl drain` does.
    Drain,
    /// The kubelet gives it up.
    Eviction,
}

async fn strike(world: &World, blow: Blow, pod: &Pod) -> Result<()> {
    match blow {
        Blow::Deletion => delete(world, pod).await,
        Blow::Drain => evict(world, pod).await,
        Blow::Eviction => give_up(world, pod).await,
    }
}

#[rstest]
#[case::deleted(Blow::Deletion, "PodDeleted")]
#[case::drained(Blow::Drain, "NodeDrained")]
#[case::evicted(Blow::Eviction, "Evicted")]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_lost_while_the_job_runs_is_reported_at_once_and_not_replaced(
    #[case] blow: Blow,
    #[case] code: &str,
) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let run = world.submit(ENDLESS).await?;
        run.output(UNDER_WAY).await?;
        // The kubelet has said all that it has to say of it, and does not write over what the test says.
        eventually("its pod is ready", async || {
            let pods = run.pods();
            let mut conditions =
                pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref()).flatten();
            Ok(conditions.any(|own| own.type_ == "Ready" && own.status == "True").then_some(()))
        })
        .await?;
        let struck = Timestamp::now();
        strike(world, blow, &run.pod(1).await?).await?;
        let end = run.end().await?;
        end.assert_failed(code).assert_told(code);
        // Whoever is told to go has a grace period.
        if matches!(blow, Blow::Eviction) {
            end.assert_prompt("the blow", struck);
        }
        assert!(end.job.agent.is_some(), "an agent had the job: {end:?}");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

#[rstest]
#[case::deleted(Blow::Deletion)]
#[case::drained(Blow::Drain)]
#[case::evicted(Blow::Eviction)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_lost_before_an_agent_has_the_job_is_replaced(#[case] blow: Blow) {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.operator().await?;
        let run = world.submit(&held(&registry, "")).await?;
        run.waiting_for("image").await?;
        strike(world, blow, &run.pod(1).await?).await?;
        run.pod(2).await?;
        registry.release();
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        assert_eq!(run.pods().len(), 2);
        assert!(run.build_job().is_some_and(|job| job.status_or_default().attempt == 1));
        world.cluster.no_pods().await
    })
    .await;
}

/// The kubelet measures what containers have written every ten seconds or so, and evicts by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_writes_more_than_its_limit_is_evicted_and_says_so() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{}', \
             command: ['dd if=/dev/zero of=/much bs=1M count=16; echo on its way; sleep 600'], \
             resources: {{requests: {{ephemeral-storage: 0}}, limits: {{ephemeral-storage: 1Mi}}}}}}]}}}}}}]}}",
            world.environment.toolbox_image
        );
        let run = world.submit(&step).await?;
        run.output(UNDER_WAY).await?;
        let end = run.end().await?;
        end.assert_failed("StorageLimitExceeded")
            .assert_told("StorageLimitExceeded")
            // The kubelet names the container, or the pod if it comes to look at that first.
            .assert_detail("Evicted: ");
        assert!(end.job.agent.is_some(), "an agent had the job: {end:?}");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

/// Evicts whatever pod the job has until it has an end.
async fn evict_all(world: &World, run: &Run<'_>, node: &PlayedNode, resource: &str) -> Result<()> {
    eventually("the job is over", async || {
        for pod in world.cluster.pods().await? {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            let here = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            if here && phase.as_deref() == Some("Pending") {
                node.report(&pod, evicted(resource)).await?;
            }
            if pod.metadata.deletion_timestamp.is_some() {
                node.let_go(&pod).await?;
            }
        }
        Ok(run.build_job().is_some_and(|job| job.is_terminal()).then_some(()))
    })
    .await
}

#[rstest]
#[case::disk_pressure("ephemeral-storage", "DiskPressure")]
#[case::memory_pressure("memory", "Evicted")]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_pods_are_all_evicted_before_they_start_ends_after_the_third(
    #[case] resource: &str,
    #[case] code: &str,
) {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{{}, containers: [{{image: any, command: ['true']}}]}}}}}}]}}",
            node.selection()
        );
        let run = world.submit(&step).await?;
        evict_all(world, &run, &node, resource).await?;
        node.remove().await?;
        let end = run.end().await?;
        end.assert_refused(code).assert_detail(&format!("low on resource: {resource}"));
        assert_eq!(end.pods.len(), 3, "{end:?}");
        Ok(())
    })
    .await;
}

/// A pod spec that prefers this node, does not bear its loss for a second, and runs until it is stopped.
fn on_a_node_that_may_be_lost(world: &World, command: &str) -> String {
    let spec = format!(
        "terminationGracePeriodSeconds: 1, \
         tolerations: [{{key: e2e, operator: Exists}}, \
         {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}}], \
         affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: \
         [{{weight: 100, preference: {{matchExpressions: [{{key: e2e, operator: In, values: [{}]}}]}}}}]}}}}, \
         containers: [{{image: '{}', command: ['{command}']}}]",
        world.cluster.namespace, world.environment.toolbox_image
    );
    format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_a_node_that_is_lost_before_it_starts_goes_to_another_node() {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.operator().await?;
        let run = world.submit(&on_a_node_that_may_be_lost(world, "true")).await?;
        let first = node.placed(&run).await?;
        node.fall_silent().await?;
        // The control plane takes the pod away, but nobody is there to say that it has ended.
        run.pod(2).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        assert!(job.agent.is_some(), "{job:?}");
        node.let_go(&first).await?;
        node.remove().await?;
        world.cluster.no_pods().await?;
        assert_eq!(run.pods().len(), 2);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_a_node_that_is_lost_while_it_runs_is_not_run_again() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: {terminateSeconds: 2}").await?;
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.operator().await?;
        let run = world.submit(&on_a_node_that_may_be_lost(world, "true")).await?;
        let pod = node.placed(&run).await?;
        node.run(&pod).await?;
        let agent = PlayedAgent::register(&world.buildkite, &run.name).await?;
        agent.take(run.id).await?;
        run.status("running", |status| status.phase == Phase::Running).await?;
        node.fall_silent().await?;
        let status = run.status("over", |status| status.phase.is_terminal()).await?;
        assert_eq!(status.verdict.map(|verdict| verdict.code), Some(VerdictCode::NodeLost));
        // The node comes back, and its kubelet ends what it has.
        node.let_go(&pod).await?;
        node.remove().await?;
        let end = run.end().await?;
        end.assert_failed("NodeLost").assert_told("NodeLost");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

/// Gives the node one of something that only this test's pods ask for, so that two cannot be there at once.
fn advertise(world: &World, name: &str) -> Result<()> {
    let node = world.cluster.kubectl(&["get", "nodes", "-l", "!e2e", "-o", "name"], None)?;
    let key = name.replace('/', "~1");
    let patch = json!([
        { "op": "add", "path": format!("/status/capacity/{key}"), "value": "1" },
        { "op": "add", "path": format!("/status/allocatable/{key}"), "value": "1" },
    ])
    .to_string();
    world.cluster.kubectl(
        &[
            "patch",
            node.lines().next().unwrap_or_default(),
            "--subresource=status",
            "--type=json",
            "-p",
            &patch,
        ],
        None,
    )?;
    Ok(())
}

/// A priority class, and a pod of it that wants the same thing.
fn rival(world: &World, resource: &str) -> String {
    let namespace = &world.cluster.namespace;
    format!(
        r#"
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {namespace}}}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {{name: rival}}
spec:
  priorityClassName: {namespace}
  terminationGracePeriodSeconds: 0
  containers:
    - name: rival
      image: {image}
      command: [sleep, "600"]
      resources: {{limits: {{"{resource}": 1}}}}
"#,
        image = world.environment.toolbox_image
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_makes_room_for_a_pod_of_higher_priority_and_says_so() {
    scenario(async |world| {
        let resource = format!("e2e.test/{}", world.cluster.namespace);
        advertise(world, &resource)?;
        let _operator = world.operator().await?;
        let step = format!(
            "{{plugins: [{{kubernetes: {{podSpec: {{containers: [{{image: '{}', \
             command: ['echo on its way; sleep 600'], resources: {{limits: {{'{resource}': 1}}}}}}]}}}}}}]}}",
            world.environment.toolbox_image
        );
        let run = world.submit(&step).await?;
        run.output(UNDER_WAY).await?;
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&rival(world, &resource)))?;
        eventually("the rival has the place", async || {
            let rival = pods(world).get("rival").await?;
            Ok(rival.spec.and_then(|spec| spec.node_name))
        })
        .await?;
        delete(world, &pods(world).get("rival").await?).await?;
        world.cluster.kubectl(&["delete", "priorityclass", &world.cluster.namespace], None)?;
        let end = run.end().await?;
        end.assert_failed("Preempted").assert_told("Preempted");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_job_that_is_deleted_before_an_agent_has_the_job_ends_it_in_buildkite() {
    scenario(async |world| {
        let registry = Registry::serve(&world.environment).await?;
        let _operator = world.operator().await?;
        let run = world.submit(&held(&registry, "")).await?;
        run.waiting_for("image").await?;
        world.cluster.kubectl(&["delete", "buildjob", &run.name, "--wait=false"], None)?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(-1)), "{job:?}");
        assert_eq!(job.signal_reason.as_deref(), Some("stack_error"));
        world.cluster.no_pods().await?;
        gone(world, &run).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_job_that_is_deleted_while_the_job_runs_takes_its_pod_along() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let run = world.submit(ENDLESS).await?;
        run.output(UNDER_WAY).await?;
        world.cluster.kubectl(&["delete", "buildjob", &run.name, "--wait=false"], None)?;
        let job = world.buildkite.ended(run.id).await?;
        assert_ne!(job.exit_status, Some(0), "{job:?}");
        assert!(
            job.events.iter().any(|event| {
                event.detail.as_deref().is_some_and(|detail| detail.contains("BuildJobDeleted"))
            }),
            "Buildkite was told: {job:?}"
        );
        world.cluster.no_pods().await?;
        gone(world, &run).await
    })
    .await;
}

async fn gone(world: &World, run: &Run<'_>) -> Result<()> {
    eventually("the BuildJob is gone", async || {
        Ok(world.cluster.build_job(&run.name).await?.is_none().then_some(()))
    })
    .await?;
    let ended = |job: BuildJob| job.status_or_default().phase;
    assert_ne!(run.build_job().map(ended), Some(Phase::Succeeded));
    Ok(())
}
