//! Agents that die with their pods, or without them: the operator ends their jobs for them, in seconds and with the true reason.

#![allow(clippy::print_stdout, reason = "figures to look at, with RUST_TEST_NOCAPTURE=1")]

use anyhow::{Context, Result};
use bk_api::Phase;
use bk_e2e::{
    Run, World,
    agent::{Broker, PlayedAgent},
    buildkite::Job,
    eventually,
    node::PlayedNode,
    run::PROMPT,
    scenario,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;

/// A step whose command runs until it is stopped, and that is tried again if its agent is lost.
const RETRIED: &str = "{command: 'echo on its way; sleep 600', retry: {automatic: [{exit_status: -1, signal_reason: agent_stop, limit: 1}]}}";
const UNDER_WAY: &str = "on its way\r\n";

/// What kills an agent.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// Its process.
    AgentKilled,
    /// Its pod, at once and for good.
    ForceDeleted,
}

fn strike(world: &World, blow: Blow, pod: &str) -> Result<()> {
    let kill = "for dir in /proc/[0-9]*; do [ \"$(cat $dir/comm)\" != buildkite-agent ] || kill -9 ${dir#/proc/}; done";
    match blow {
        // The shell may be killed with the container.
        Blow::AgentKilled => {
            drop(world.cluster.try_kubectl(&["exec", pod, "-c", "agent", "--", "sh", "-c", kill], None)?);
        }
        Blow::ForceDeleted => {
            world.cluster.kubectl(&["delete", "pod", pod, "--force", "--grace-period=0"], None)?;
        }
    }
    Ok(())
}

#[rstest]
#[case::the_agent_is_killed(Blow::AgentKilled, "AgentLost")]
#[case::the_pod_is_deleted_by_force(Blow::ForceDeleted, "PodDeleted")]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_agent_dies_is_ended_at_once_and_tried_again(#[case] blow: Blow, #[case] code: &str) {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let run = world.submit(RETRIED).await?;
        run.output(UNDER_WAY).await?;
        let pod = run.pod(1).await?.metadata.name.context("it has a name")?;
        let struck = Timestamp::now();
        strike(world, blow, &pod)?;
        let job = world.buildkite.ended(run.id).await?;
        let took = Timestamp::now().duration_since(struck);
        println!("{blow:?}: the job has ended {took:#} later");
        assert!(took <= PROMPT, "it took {took:#}: {job:?}");
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(-1)), "{job:?}");
        assert_eq!(job.signal_reason.as_deref(), Some("agent_stop"), "{job:?}");
        let log = world.buildkite.log_with(run.id, "The job was ended by buildkite-operator").await?;
        assert!(log.contains(UNDER_WAY.trim()) && log.contains(code), "{log}");
        let next = world.buildkite.retried(run.id).await?;
        assert_ne!(next.id, run.id);
        world.buildkite.cancel(next.id).await?;
        let end = run.end().await?;
        end.assert_failed(code).assert_told(code);
        Ok(())
    })
    .await;
}

/// A job that runs on a node that the test plays, as its agent, which falls silent.
async fn running_on<'a>(world: &'a World, node: &PlayedNode) -> Result<(Run<'a>, Pod, PlayedAgent)> {
    let spec = format!("{}, containers: [{{image: any, command: ['true']}}]", node.selection());
    let run = world.submit(&format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}")).await?;
    let pod = node.placed(&run).await?;
    node.run(&pod).await?;
    let broker = Broker::of(world).await?;
    let agent = broker.register(&broker.proven_ticket(&pod).await?).await?;
    agent.connect().await?;
    agent.take(run.id).await?;
    run.status("running", |status| status.phase == Phase::Running).await?;
    Ok((run, pod, agent))
}

fn assert_agent_stopped(job: &Job) {
    assert_eq!((job.exit_status, job.signal_reason.as_deref()), (Some(-1), Some("agent_stop")), "{job:?}");
}

/// The control plane alone takes up to a minute to take the pods of such a node away.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_node_is_deleted_is_ended_and_not_run_again() {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.process().await?;
        let (run, _pod, _agent) = running_on(world, &node).await?;
        let deleted = Timestamp::now();
        node.remove().await?;
        let job = world.buildkite.ended(run.id).await?;
        let took = Timestamp::now().duration_since(deleted);
        println!("the node was deleted: the job has ended {took:#} later");
        assert!(took <= PROMPT, "it took {took:#}: {job:?}");
        assert_agent_stopped(&job);
        let said = run.status("over", |status| status.phase.is_terminal()).await?;
        let message = said.verdict.map(|verdict| verdict.message).unwrap_or_default();
        assert!(message.contains(&format!("its node {} was deleted", node.name)), "{message}");
        let end = run.end().await?;
        end.assert_failed("NodeLost").assert_told("NodeLost");
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}

/// Somebody has deleted them while no operator was there: nobody else knows of the job any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_build_job_is_gone_with_its_pod_is_ended() {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let mut operator = world.process().await?;
        let (run, pod, _agent) = running_on(world, &node).await?;
        operator.kill()?;
        world.cluster.kubectl(&["delete", "buildjob", &run.name, "--wait=false"], None)?;
        let _operator = world.process().await?;
        eventually("its pod is about to go", async || {
            Ok(run.pods().iter().any(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
        })
        .await?;
        assert_eq!(world.buildkite.job(run.id).await?.job_state, "running", "its agent may yet end it");
        node.let_go(&pod).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(-1)), "{job:?}");
        let log = world.buildkite.log_with(run.id, "The job was ended by buildkite-operator").await?;
        assert!(log.contains("BuildJobDeleted"), "{log}");
        node.remove().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_leaves_a_node_that_is_about_to_go() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "nodeLeaving: interrupt").await?;
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.process().await?;
        let (run, pod, _agent) = running_on(world, &node).await?;
        node.taint("karpenter.sh/disrupted", "NoSchedule").await?;
        eventually("its pod is evicted", async || {
            Ok(run.pods().iter().any(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
        })
        .await?;
        node.let_go(&pod).await?;
        assert_agent_stopped(&world.buildkite.ended(run.id).await?);
        let end = run.end().await?;
        end.assert_failed("NodeDrained").assert_told("NodeDrained");
        node.remove().await
    })
    .await;
}

/// The last word is the agent's if it has spoken, also while nobody listens: what comes second changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_its_agent_has_ended_stays_as_it_is() {
    scenario(async |world| {
        let node = PlayedNode::create(&world.cluster).await?;
        let mut operator = world.process().await?;
        let (run, pod, agent) = running_on(world, &node).await?;
        operator.kill()?;
        // It does not live to say goodbye.
        agent.finish(run.id, 0).await?;
        node.let_go(&pod).await?;
        let _operator = world.process().await?;
        let end = run.end().await?;
        assert_eq!((end.job.exit_status, end.job.signal_reason.as_deref()), (Some(0), None), "{end:?}");
        // Its pod has not lived to tell how it ended.
        end.assert_failed("ResultUnknown");
        assert_eq!((end.detail.as_str(), end.pods.len()), ("", 1), "nobody is told of a loss: {end:?}");
        node.remove().await
    })
    .await;
}

/// Its agent, which is stopped with its pod, was to say so, and did not live to.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ran_for_too_long_is_ended_though_its_agent_is_lost() {
    scenario(async |world| {
        world.cluster.configure("pod_config", "timeouts: { runSeconds: 5 }").await?;
        let node = PlayedNode::create(&world.cluster).await?;
        let _operator = world.process().await?;
        let (run, pod, _agent) = running_on(world, &node).await?;
        run.status("over", |status| status.phase == Phase::TimedOut).await?;
        assert_eq!(world.buildkite.job(run.id).await?.job_state, "running", "its agent may yet end it");
        let gone = Timestamp::now();
        node.let_go(&pod).await?;
        let job = world.buildkite.ended(run.id).await?;
        let took = Timestamp::now().duration_since(gone);
        assert!(took <= PROMPT, "it took {took:#}: {job:?}");
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(-1)), "{job:?}");
        let log = world.buildkite.log_with(run.id, "time limit of 5 s").await?;
        assert!(log.contains("The job was ended by buildkite-operator"), "{log}");
        assert_eq!(run.end().await?.status.phase, Phase::TimedOut, "what is on record stays");
        node.remove().await
    })
    .await;
}
