//! Metrics of jobs, with a real Prometheus and a real Pushgateway, set up as the guide says.

use std::fs;

use anyhow::Result;
use bk_e2e::{
    World, eventually,
    guide::{example, setting},
    program::Server,
    run::Run,
    scenario,
};
use k8s_openapi::api::core::v1::ContainerPort;
use serde_json::{Value, json};

const GUIDE: &str = include_str!("../../../../docs/job-metrics.md");
const KEY: &str = "metrics_exporter_config";
/// The user `jobs` with the password `right`.
const USERS: &str =
    "basic_auth_users: {jobs: '$2b$04$hr7CtYaBI7WJ1VKAgHnBDethimJEkt/AIs9LZEo5zYylPZc2edH0y'}";

/// Where Prometheus looks for pods: Debian's knows no discovery in Kubernetes, so the test does it.
const FOUND: &str = "found.json";

async fn prometheus(world: &World) -> Result<Server> {
    let config = example(GUIDE, "yaml", "scrape_configs:")?
        .replace("kubernetes_sd_configs: [{role: pod}]", &format!("file_sd_configs: [{{files: [{FOUND}]}}]"));
    Server::prometheus(world, &config, &[]).await
}

/// Tells Prometheus of a job's pod as its discovery would: a target for each port, with the port's name.
async fn discover(prometheus: &Server, run: &Run<'_>) -> Result<()> {
    let targets = eventually("the pod has an address", async || {
        let Some(pod) = run.pods().pop() else { return Ok(None) };
        let Some(address) = pod.status.and_then(|status| status.pod_ip) else { return Ok(None) };
        let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
        let target = |port: &ContainerPort| {
            json!({
                "targets": [format!("{address}:{}", port.container_port)],
                "labels": { "__meta_kubernetes_pod_container_port_name": port.name },
            })
        };
        let ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
        Ok(Some(ports.map(target).collect::<Value>()))
    })
    .await?;
    let path = prometheus.directory();
    fs::write(path.join("draft"), targets.to_string())?;
    Ok(fs::rename(path.join("draft"), path.join(FOUND))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_jobs_and_a_pushgateway_takes_what_they_push() {
    scenario(async |world| {
        let host = world.environment.host;
        let gateway =
            Server::start(host, "prometheus-pushgateway", USERS, &["--web.config.file=config.yml"])?;
        let prometheus = prometheus(world).await?;
        let config = setting(GUIDE, KEY)?.replace("http://pushgateway.monitoring:9091", &gateway.url);
        world.cluster.configure(KEY, &config).await?;
        let entries = ["--from-literal=username=jobs", "--from-literal=password=right"];
        let secret = ["create", "secret", "generic", "pushgateway", entries[0], entries[1]];
        world.cluster.kubectl(&secret, None)?;
        let _operator = world.operator().await?;

        let script = serde_json::to_string(example(GUIDE, "sh", "/metrics/.tests")?)?;
        let scraped = world.submit(&format!("{{key: scraped, command: {script}}}")).await?;
        let step = format!("{{key: pushed, command: {script}, env: {{BK_OPERATOR_METRICS_MODE: push}}}}");
        let pushed = world.submit(&step).await?;

        discover(&prometheus, &scraped).await?;
        let series = |text: &str| {
            let answer: Value = serde_json::from_str(text).ok()?;
            answer["data"]["result"].get(0).cloned()
        };
        let query = "/api/v1/query?query=tests_total%7Bresult%3D%22failed%22%7D%5B5m%5D";
        let series = prometheus.get(world, query, series).await?;
        assert_eq!(series["values"][0][1], "2", "{series}");
        let labels = &series["metric"];
        assert_eq!(
            (&labels["step"], &labels["cluster"]),
            (&"scraped".into(), &"production".into()),
            "{series}"
        );
        assert_eq!(labels["build_job"], Value::from(scraped.name.clone()), "{series}");

        for run in [scraped, pushed] {
            run.end().await?.assert_exit_status(0);
        }
        // The last values are kept.
        let line =
            |text: &str| text.lines().find(|line| line.contains("result=\"failed\"")).map(str::to_owned);
        let line = gateway.get(world, "/metrics", line).await?;
        assert!(line.contains("job=\"buildkite\"") && line.contains("step=\"pushed\""), "{line}");
        assert!(line.ends_with(" 2"), "{line}");
        Ok(())
    })
    .await;
}
