//! A node whose kubelet stops, and comes back. It is the one that all tests share: `cargo xtask test` runs this by itself.

#![allow(clippy::print_stdout, reason = "figures to look at, with RUST_TEST_NOCAPTURE=1")]

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use bk_e2e::{World, eventually_for, run::PROMPT, scenario};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Api;

const RETRIED: &str =
    "{command: 'echo on its way; sleep 600', retry: {automatic: [{signal_reason: agent_stop, limit: 1}]}}";

/// A kubelet that is stopped for as long as this lives.
struct Stopped {
    kubelet: u32,
    /// What started it on its node: nsenter stops when the program that it waits for does, and does not go on with it.
    starter: u32,
}

impl Stopped {
    fn now(kubelet: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{kubelet}/status"))?;
        let starter = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let starter = starter.context("a process has a parent")?.trim().parse()?;
        signal(kubelet, "STOP")?;
        Ok(Self { kubelet, starter })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The cluster is of no use to anybody if this fails.
        for process in [self.kubelet, self.starter] {
            signal(process, "CONT").expect("the kubelet can go on");
        }
    }
}

fn signal(process: u32, name: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", &format!("kill -s {name} {process}")]).status()?;
    ensure!(status.success(), "cannot send {name} to process {process}");
    Ok(())
}

/// The process of the kubelet of a node of this machine, which is called as its host is.
fn kubelet(node: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        if name.trim() != "kubelet" {
            continue;
        }
        let target = process.to_string();
        let host = Command::new("nsenter").args(["--target", &target, "--uts", "hostname"]).output()?;
        if String::from_utf8_lossy(&host.stdout).trim() == node {
            return Ok(process);
        }
    }
    anyhow::bail!("node {node} has no kubelet on this machine")
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Waits until the API server shows the node like this, and says since when.
async fn shown(world: &World, node: &str, status: &str) -> Result<Timestamp> {
    let nodes = Api::<Node>::all(world.cluster.client.clone());
    eventually_for(3, &format!("node {node} is {status}"), async || {
        let node = nodes.get(node).await?;
        let condition = ready(&node).context("it says whether it is ready")?;
        ensure!(condition.status == status, "it is {}", condition.status);
        Ok(Some(condition.last_transition_time.clone().context("it has a time")?.0))
    })
    .await
}

#[ignore = "stops the kubelet that all tests share; cargo xtask test runs it by itself"]
#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_a_node_that_is_lost_is_ended_and_tried_again_and_the_nodes_return_changes_nothing() {
    scenario(async |world| {
        let _operator = world.operator().await?;
        let run = world.submit(RETRIED).await?;
        run.output("on its way\r\n").await?;
        let pod = run.pod(1).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("it is on a node")?;
        let stopped = Stopped::now(kubelet(&node)?)?;
        let silent = shown(world, &node, "Unknown").await?;
        let job = world.buildkite.ended(run.id).await?;
        let took = Timestamp::now().duration_since(silent);
        println!("the kubelet was stopped: the job has ended {took:#} after the node was shown to be silent");
        assert!(took <= PROMPT, "it took {took:#}: {job:?}");
        assert_eq!(
            (job.exit_status, job.signal_reason.as_deref()),
            (Some(-1), Some("agent_stop")),
            "{job:?}"
        );
        let id = run.id;
        let retried = world.buildkite.retried(id).await?;
        drop(stopped);
        shown(world, &node, "True").await?;
        world.buildkite.log_with(retried.id, "on its way\r\n").await?;
        let later = world.buildkite.job(id).await?;
        assert_eq!(
            (later.exit_status, later.signal_reason.as_deref()),
            (Some(-1), Some("agent_stop")),
            "{later:?}"
        );
        world.buildkite.cancel(retried.id).await?;
        let end = run.end().await?;
        end.assert_failed("NodeLost").assert_told("NodeLost").assert_detail(&node);
        assert_eq!(end.pods.len(), 1, "nothing is run twice: {end:?}");
        Ok(())
    })
    .await;
}
