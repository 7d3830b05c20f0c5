//! The configuration changes while the operator works: what can be used takes effect, what cannot is refused, and jobs run on.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bk_api::config::CONFIG_MAP;
use bk_e2e::{World, eventually, scenario};

use crate::queues::{free_address, page, ready};

const ONE_QUEUE: (&str, &str) = ("job_spawner_config", "{queue: bk-operator, maxInFlight: 1}");
const TWO_QUEUES: (&str, &str) =
    ("job_spawner_config", "{queues: [{key: bk-operator}, {key: second}], maxInFlight: 3}");
const BROKEN: (&str, &str) = ("log_exporter_config", "enabled: true\nsinks: {a: {loki: {url: nowhere}}}\n");
const WHY: &str = "key `log_exporter_config`: `sinks.a.loki.url` must begin with http:// or https://";

/// Runs until it is told to end.
const HELD: &str =
    "{command: 'echo started $((40 + 2)); until [ -e /workspace/go ]; do sleep 0.2; done; cat hello.txt'}";

/// Waits until the operator's numbers have this line.
async fn number(world: &World, address: SocketAddr, line: &str) -> Result<()> {
    eventually(&format!("the numbers have {line}"), async || {
        let (_, metrics) = page(world, address, "/metrics").await?;
        let name = line.split([' ', '{']).next().unwrap_or_default();
        let found: Vec<&str> = metrics.lines().filter(|found| found.contains(name)).collect();
        ensure!(found.contains(&line), "{found:?}");
        Ok(Some(()))
    })
    .await
}

/// Waits until an Event about the ConfigMap says this.
async fn told(world: &World, reason: &str, text: &str) -> Result<()> {
    let about = format!("involvedObject.name={CONFIG_MAP},reason={reason}");
    eventually(&format!("an Event {reason} says {text:?}"), async || {
        let query = ["get", "events", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"];
        let events = world.cluster.kubectl(&query, None)?;
        ensure!(events.contains(text), "{events}");
        Ok(Some(()))
    })
    .await
}

/// Runs a job in a queue, which passes.
async fn passes(world: &World, queue: &str) -> Result<()> {
    let steps = format!("steps: [{{command: ./hello.sh, agents: {{queue: {queue}}}}}]");
    let build = world.buildkite.build(&world.repository.url, &steps).await?;
    let ended = world.buildkite.ended(build.jobs[0].id).await?;
    ensure!(ended.exit_status == Some(0), "{ended:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_takes_effect_without_a_restart_and_a_bad_one_does_not() {
    scenario(async |world| {
        world.cluster.configure_all([ONE_QUEUE]).await?;
        let address = free_address()?;
        let mut operator = world.operator_as_configured(address).await?;
        ready(world, address).await?;
        let held = world.submit(HELD).await?;
        held.output("started 42").await?;

        // The only place is taken, the second queue is not served, and the first gets another name at Buildkite.
        world.cluster.reconfigure([TWO_QUEUES]).await?;
        passes(world, "second").await?;
        passes(world, "bk-operator").await?;
        number(world, address, "buildkite_operator_config_changes_total{outcome=\"applied\"} 1").await?;
        told(world, "ConfigurationApplied", "works by this configuration").await?;
        ready(world, address).await?;
        number(world, address, "buildkite_operator_queue_connected{queue=\"second\"} 1").await?;

        // What cannot be used is told; everything goes on as before.
        world.cluster.reconfigure([TWO_QUEUES, BROKEN]).await?;
        number(world, address, "buildkite_operator_config_rejected 1").await?;
        told(world, "ConfigurationRejected", WHY).await?;
        let log = world.operator_log();
        assert_eq!(log.lines().filter(|line| line.contains(WHY)).count(), 1, "one line says why: {log}");
        passes(world, "second").await?;

        // A change that cannot work in the cluster is no better than one that cannot be read: the operator may do nothing there.
        world.weaken();
        world.cluster.reconfigure([TWO_QUEUES, ("job_namespace", "default")]).await?;
        told(world, "ConfigurationRejected", "cannot list BuildJobs in namespace default").await?;

        world.cluster.reconfigure([("job_spawner_config", "{queue: bk-operator, maxInFlight: 2}")]).await?;
        number(world, address, "buildkite_operator_config_changes_total{outcome=\"applied\"} 2").await?;
        number(world, address, "buildkite_operator_config_rejected 0").await?;
        let (_, metrics) = page(world, address, "/metrics").await?;
        assert!(!metrics.contains("jobs_waiting{queue=\"second\"}"), "it is served no longer: {metrics}");

        world.cluster.kubectl(&["delete", "configmap", CONFIG_MAP], None)?;
        number(world, address, "buildkite_operator_config_rejected 1").await?;
        passes(world, "bk-operator").await?;

        // All the while the first job has run, and it ends as if nothing had happened.
        let pod = held.pod(1).await?.metadata.name.context("a pod has a name")?;
        let go = ["exec", &pod, "--container", "container-0", "--", "touch", "/workspace/go"];
        world.cluster.kubectl(&go, None)?;
        let log = held.output("hello from the repository").await?;
        assert_eq!(log.matches("started 42").count(), 1, "it ran once: {log}");
        assert_eq!(world.buildkite.ended(held.id).await?.exit_status, Some(0));
        world.cluster.no_pods().await?;
        assert!(operator.stop().await?.success());
        Ok(())
    })
    .await;
}

/// Both replicas have seen the last good configuration, so the one that takes over works by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_with_the_last_configuration_that_can_be_used() {
    scenario(async |world| {
        world.cluster.configure_all([("job_spawner_config", "maxInFlight: 1")]).await?;
        let mut first = world.replica().await?;
        let leader = world.leader_after(None).await?;
        let _second = world.replica().await?;
        let logged = async |text: &str, times: usize| {
            eventually(&format!("the log has {text:?} {times} times"), async || {
                let found = world.operator_log().matches(text).count();
                ensure!(found >= times, "{found} times");
                Ok(Some(()))
            })
            .await
        };
        logged("\"stands by\"", 1).await?;
        let good = ("job_spawner_config", "{maxInFlight: 2, tags: [site=here]}");
        world.cluster.reconfigure([good]).await?;
        logged("\"the configuration has changed\"", 1).await?;
        world.cluster.reconfigure([good, BROKEN]).await?;
        logged(WHY, 2).await?;
        first.kill()?;
        world.leader_after(Some(&leader)).await?;
        let step = "steps: [{command: ./hello.sh, agents: {queue: bk-operator, site: here}}]";
        let build = world.buildkite.build(&world.repository.url, step).await?;
        assert_eq!(world.buildkite.ended(build.jobs[0].id).await?.exit_status, Some(0));
        Ok(())
    })
    .await;
}
