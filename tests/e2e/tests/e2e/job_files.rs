//! What jobs leave in directories: artifacts, metrics, and a test report that a sidecar sends on.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::State,
    http::{Method, Uri},
};
use bk_api::{BuildJob, exporters::SinkReport};
use bk_e2e::{
    World, eventually, eventually_for,
    guide::{example, setting},
    run::Run,
    scenario,
};
use rstest::rstest;
use serde_json::Value;
use tokio::net::TcpListener;
use uuid::Uuid;

const ARTIFACTS: &str = include_str!("../../../../docs/artifacts.md");
const BUILD_JOBS: &str = include_str!("../../../../docs/build-jobs.md");

/// Paths and sizes of a job's artifacts, which are whole.
async fn artifacts(world: &World, job: Uuid) -> Result<Vec<(String, u64)>> {
    let all: Vec<Value> = world.buildkite.call(Method::GET, &format!("jobs/{job}/artifacts"), None).await?;
    assert!(all.iter().all(|artifact| artifact["state"] == "finished"), "{all:?}");
    let entry =
        |artifact: &Value| Some((artifact["path"].as_str()?.to_owned(), artifact["file_size"].as_u64()?));
    let mut all: Vec<_> = all.iter().filter_map(entry).collect();
    all.sort();
    Ok(all)
}

/// What an exporter has reported, once the job has ended.
async fn reported(run: &Run<'_>) -> Result<SinkReport> {
    let status = run.status("told what came of its files", |status| !status.exporters.is_empty()).await?;
    status.exporters[0].report.sinks.first().cloned().with_context(|| format!("{status:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_job_has_written_is_there() {
    scenario(async |world| {
        let config = setting(ARTIFACTS, "artifact_exporter_config")?;
        world.cluster.configure("artifact_exporter_config", &config).await?;
        let _operator = world.operator().await?;
        let command = r#"mkdir -p /artifacts/deep; echo report > "/artifacts/deep/j unit.xml"; echo log > /artifacts/log; ln -s /etc/passwd /artifacts/out; exit 3"#;
        let run = world.submit(&format!("{{command: '{command}'}}")).await?;
        let id = run.id;
        let sink = reported(&run).await?;
        assert_eq!((sink.sent, sink.waiting, sink.lost), (2, 0, 1), "{sink:?}");
        assert_eq!(sink.reason.as_deref(), Some("out: a link that leads out of the directory"));
        run.end().await?.assert_exit_status(3);
        let expected = [("deep/j unit.xml", 7), ("log", 4)].map(|(path, size)| (path.to_owned(), size));
        assert_eq!(artifacts(world, id).await?, expected);
        Ok(())
    })
    .await;
}

/// Leaves a file open, which nobody would upload before the end.
const WRITE: &str = "exec 3> /artifacts/open.log; echo begun >&3; echo written";

/// Offers a process of the container to the kernel, by its command line, and fills the memory with a file, which makes no process larger.
/// The shell that does so has all of this on its own command line, so patterns are written in two pieces, lest it offers itself.
const OFFER: &str = r#"for d in /proc/[0-9]*; do case "$(tr "\000" " " < $d/cmdline)" in WHO) echo 1000 > $d/oom_score_adj;; esac; done; dd if=/dev/zero of=/files/x bs=64k"#;

/// Whoever is killed for the memory.
#[rstest]
// Its bootstrap goes on, to the last hook.
#[case::the_command("", &[255])]
// No hook runs any more, and the agent is told at once, unless the command, which grows on, has the messenger killed before that. When all is uploaded,
// the operator ends the job if the agent has not.
#[case::the_bootstrap("*\"agent boot\"\"strap \"*", &[-1, -7, 137])]
// The agent would miss it after half a minute; the operator ends the job for it before.
#[case::the_messenger("*\"agent kubernetes-boot\"\"strap \"*", &[137])]
// The container goes with its shim.
#[case::the_container("*\"buildkite-sh\"\"im job \"*", &[137])]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_has_written_before_it_ran_out_of_memory_is_there(
    #[case] who: &str,
    #[case] statuses: &[i32],
) {
    scenario(async |world| {
        world.cluster.configure("artifact_exporter_config", "enabled: true").await?;
        let _operator = world.operator().await?;
        let (grow, limit) = match who {
            "" => ("tail /dev/zero".to_owned(), "64Mi"),
            who => (OFFER.replace("WHO", who), "1Gi"),
        };
        let spec = format!(
            "volumes: [{{name: files, emptyDir: {{medium: Memory}}}}], \
             containers: [{{image: '{}', command: ['{WRITE}; {grow}'], resources: {{limits: {{memory: {limit}}}}}, \
             volumeMounts: [{{name: files, mountPath: /files}}]}}]",
            world.environment.toolbox_image
        );
        let run = world.submit(&format!("{{plugins: [{{kubernetes: {{podSpec: {{{spec}}}}}}}]}}")).await?;
        let id = run.id;
        let end = run.end().await?;
        end.assert_failed("OutOfMemory");
        assert!(end.job.exit_status.is_some_and(|status| statuses.contains(&status)), "{end:?}");
        assert_eq!(artifacts(world, id).await?, [("open.log".to_owned(), 6)]);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_jobs_have_written_that_are_cancelled_or_take_too_long_is_there() {
    scenario(async |world| {
        world.cluster.configure("artifact_exporter_config", "enabled: true").await?;
        let _operator = world.operator().await?;
        let step = |more: &str| format!("{{command: '{WRITE}; sleep 600', {more}}}");
        let steps = format!(
            "agents: {{queue: bk-operator}}\nsteps: [{}, {}]",
            step("key: cancelled"),
            step("key: slow, timeout_in_minutes: 1")
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        let [cancelled, slow] = [build.jobs[0].id, build.jobs[1].id];
        for id in [cancelled, slow] {
            world.buildkite.log_with(id, "written\r\n").await?;
        }
        world.buildkite.cancel(cancelled).await?;
        for (id, state) in [(cancelled, "canceled"), (slow, "timed_out")] {
            assert_eq!(world.buildkite.ended(id).await?.job_state, state);
            assert_eq!(artifacts(world, id).await?, [("open.log".to_owned(), 6)], "{state}");
        }
        Ok(())
    })
    .await;
}

/// `cargo xtask test --only e2e --ignored --filter ten_thousand`; the figures are in docs/benchmarks.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and 6 GB of disk"]
#[allow(clippy::print_stdout, reason = "figures to look at, with --show-output")]
async fn ten_thousand_files_and_one_of_two_gigabytes() {
    const SMALL: u64 = 10_000;
    scenario(async |world| {
        // A BuildJob that goes at once takes along what it was told of its files.
        let stays = ("pod_config", "succeededTtlSeconds: 3600");
        world.cluster.configure_all([("artifact_exporter_config", "enabled: true"), stays]).await?;
        let _operator = world.operator().await?;
        let command = format!(
            "i=0; while [ $i -lt {SMALL} ]; do echo $i > /artifacts/small-$i; i=$((i+1)); done; \
             echo small; head -c 2000000000 /dev/zero > /artifacts/large; echo large"
        );
        let run = world.submit(&format!("{{command: '{command}'}}")).await?;
        let id = run.id;
        let mut lines: Vec<(&str, Instant)> = Vec::new();
        let mut memory = 0;
        eventually_for(1000, "the job has ended", async || {
            let log = world.buildkite.log(id).await?;
            for line in ["small\r\n", "large\r\n"] {
                if log.contains(line) && lines.iter().all(|(seen, _)| *seen != line) {
                    lines.push((line, Instant::now()));
                }
            }
            memory = memory.max(resident(world, "artifact-exporter").unwrap_or_default());
            let job = world.buildkite.job(id).await?;
            Ok((job.job_state == "finished").then_some(()))
        })
        .await?;
        for (line, at) in lines {
            println!("the job's end after `{}`: {:?}", line.trim(), at.elapsed());
        }
        println!("the exporter's memory, at most: {} MB", memory / 1_000_000);
        let sink = reported(&run).await?;
        assert_eq!((sink.sent, sink.waiting, sink.lost), (SMALL + 1, 0, 0), "{sink:?}");
        run.end().await?.assert_exit_status(0);
        let mut sizes = Vec::new();
        for page in 1.. {
            let path = format!("jobs/{id}/artifacts?per_page=100&page={page}");
            let some: Vec<Value> = world.buildkite.call(Method::GET, &path, None).await?;
            if some.is_empty() {
                break;
            }
            sizes.extend(some.iter().filter_map(|artifact| artifact["file_size"].as_u64()));
        }
        assert_eq!((sizes.len() as u64, sizes.iter().max()), (SMALL + 1, Some(&2_000_000_000)));
        Ok(())
    })
    .await;
}

/// The memory of a container of the test's pods that is not a cache of files, as the kubelet sees it.
fn resident(world: &World, container: &str) -> Option<u64> {
    let nodes =
        world.cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"], None).ok()?;
    let path = format!("/api/v1/nodes/{}/proxy/stats/summary", nodes.trim());
    let summary: Value =
        serde_json::from_str(&world.cluster.kubectl(&["get", "--raw", &path], None).ok()?).ok()?;
    let pods = summary["pods"].as_array()?.iter();
    let ours = pods.filter(|pod| pod["podRef"]["namespace"] == world.cluster.namespace.as_str());
    let mut containers = ours.flat_map(|pod| pod["containers"].as_array().into_iter().flatten());
    containers.find(|one| one["name"] == container)?["memory"]["rssBytes"].as_u64()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_a_job_are_scraped_to_the_last_value() {
    scenario(async |world| {
        world.cluster.configure("metrics_exporter_config", "enabled: true").await?;
        let _operator = world.operator().await?;
        let command = "echo tests_total 1 > /metrics/a.prom; echo bad > /metrics/b.prom; \
                       until test -e /workspace/go; do sleep 0.1; done; echo tests_total 2 > /metrics/a.prom";
        let run = world.submit(&format!("{{key: unit, command: '{command}'}}")).await?;
        let address = eventually("the pod has an address", async || {
            Ok(run.pods().first().and_then(|pod| pod.status.clone()?.pod_ip))
        })
        .await?;
        let pod = run.pod(1).await?;
        let scraped = async |value: u8| {
            eventually(&format!("a scrape shows {value}"), async || {
                let page =
                    world.buildkite.http().get(format!("http://{address}:9465/metrics")).send().await?;
                let text = page.text().await?;
                let shown = text.contains("tests_total{") && text.contains("step=\"unit\"");
                Ok((shown && text.contains(&format!("}} {value}\n"))).then_some(()))
            })
            .await
        };
        scraped(1).await?;
        let name = pod.metadata.name.clone().context("a pod has a name")?;
        world
            .cluster
            .kubectl(&["exec", &name, "--container", "container-0", "--", "touch", "/workspace/go"], None)?;
        scraped(2).await?;
        let sink = reported(&run).await?;
        assert_eq!((sink.sent, sink.waiting, sink.lost), (1, 0, 1), "{sink:?}");
        assert_eq!(sink.reason.as_deref(), Some("b.prom: line 1: bad has no value"));
        run.end().await?.assert_exit_status(0);
        Ok(())
    })
    .await;
}

type Reports = Arc<Mutex<Vec<(String, String)>>>;

/// The example of the guide, with another image and a collector that the test serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_sends_on_what_a_failed_job_leaves() {
    scenario(async |world| {
        let listener = TcpListener::bind((world.environment.host, 0)).await?;
        let collector = format!("http://{}", listener.local_addr()?);
        let reports = Reports::default();
        let take = async |State(reports): State<Reports>, uri: Uri, body: String| {
            reports.lock().unwrap().push((uri.to_string(), body));
        };
        let router = Router::new().fallback(take).with_state(reports.clone());
        let server = tokio::spawn(axum::serve(listener, router).into_future());
        let manifest = example(BUILD_JOBS, "yaml", "name: junit-report")?
            .replace("busybox:1.37", &world.environment.toolbox_image)
            .replace("golang:1.25", &world.environment.toolbox_image)
            .replace("http://test-reports.ci", &collector)
            .replace(
                "go run gotest.tools/gotestsum@v1.13.0 --junitfile /workspace/reports/junit.xml",
                "echo '<testsuite/>' > /workspace/reports/junit.xml; exit 9",
            );
        let _operator = world.operator().await?;
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        let ended = world.cluster.build_job_with("tested", "over", BuildJob::is_terminal).await?;
        assert_eq!(ended.status.unwrap_or_default().exit_status, Some(9));
        let (uri, body) =
            eventually("the report", async || Ok(reports.lock().unwrap().first().cloned())).await?;
        assert!(uri.starts_with("/junit?pod=") && uri.ends_with("&status=9"), "{uri}");
        assert_eq!(body, "<testsuite/>\n");
        world.cluster.no_pods().await?;
        server.abort();
        Ok(())
    })
    .await;
}
