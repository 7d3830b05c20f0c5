//! What people see of the operator: a real Prometheus has data for every panel of the dashboard, and each job is one trace that the
//! real agent has joined.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use anyhow::{Context, Result};
use axum::{Router, body::Bytes, extract::State, http::Uri};
use bk_e2e::{
    World, eventually,
    program::{Server, promtool},
    scenario,
};
use buildkite_local::{Action, Answer, Fault};
use serde_json::Value;
use uuid::Uuid;

const DASHBOARD: &str = include_str!("../../../../charts/buildkite-operator/files/dashboard.json");

/// What has been sent, and where.
type Received = Arc<Mutex<Vec<(String, Bytes)>>>;

async fn take(State(received): State<Received>, uri: Uri, body: Bytes) {
    received.lock().expect("nobody panics with it").push((uri.path().to_owned(), body));
}

/// Takes whatever is sent by OTLP; its address.
async fn collector(world: &World) -> Result<(String, Received)> {
    let listener = tokio::net::TcpListener::bind((world.environment.host, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let received = Received::default();
    let router = Router::new().fallback(take).with_state(received.clone());
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok((url, received))
}

/// Whose page has the numbers of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Operator,
    Syncer,
}

/// The queries of the dashboard, for all queues, that a page answers.
fn queries(page: Page) -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let panels = dashboard["panels"].as_array().context("it has panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let all = targets.filter_map(|target| target["expr"].as_str());
    let is_syncers = |query: &str| query.contains("buildkite_repo_mirror");
    let asked = all.filter(|query| is_syncers(query) == (page == Page::Syncer));
    Ok(asked.map(|query| query.replace("$queue", ".*").replace("$__rate_interval", "10m")).collect())
}

/// Waits until Prometheus has a number for a query.
async fn answered(world: &World, prometheus: &Server, query: &str) -> Result<()> {
    let mut url: reqwest::Url = format!("{}/api/v1/query", prometheus.url).parse()?;
    url.query_pairs_mut().append_pair("query", query);
    let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    let has_number = |text: &str| {
        let answer: Value = serde_json::from_str(text).ok()?;
        let series = answer["data"]["result"].as_array()?;
        series.iter().any(|one| one["value"][1].as_str().is_some_and(|value| value != "NaN")).then_some(())
    };
    prometheus.get(world, &path, has_number).await.with_context(|| query.to_owned())
}

/// A syncer on this machine. Dropping it kills it.
struct Syncer(Child);

impl Syncer {
    /// Starts it with a mirror of the test's repository. It answers questions about itself at `listen`.
    async fn start(world: &World, listen: SocketAddr) -> Result<Self> {
        let directory = world.directory().join("mirrors");
        fs::create_dir(&directory)?;
        let place = directory.display();
        let config = format!(
            "{{layout: nodeLocal, hostPath: {place}, path: {place}, endpoint: {{listen: '{listen}', tokenSecret: hook}}}}"
        );
        world.cluster.configure("repo_syncer_config", &config).await?;
        let mirror = format!(
            "{{apiVersion: buildkite-operator.dev/v1alpha1, kind: RepoMirror, metadata: {{name: app}}, spec: {{url: '{}'}}}}",
            world.repository.url
        );
        world.cluster.kubectl(&["apply", "-f", "-"], Some(&mirror))?;
        let environment = &world.environment;
        let log = fs::File::create(world.directory().join("syncer.log"))?;
        let child = Command::new(&environment.operator)
            .args(["repo-syncer", "--node=here", "--namespace", &world.cluster.namespace])
            .args(["--operator-namespace", &world.cluster.namespace])
            .arg(format!("--kubeconfig={}", environment.kubeconfig.display()))
            .arg(format!("--private={}", world.directory().display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Asks Prometheus for what a page of ours has.
fn scraping(listen: SocketAddr) -> String {
    format!(
        "scrape_configs: [{{job_name: ours, scrape_interval: 1s, static_configs: [{{targets: ['{listen}']}}]}}]"
    )
}

/// A page of ours is one that promtool finds nothing wrong with.
async fn assert_sound(world: &World, listen: SocketAddr) -> Result<()> {
    let page = world.buildkite.http().get(format!("http://{listen}/metrics")).send().await?.text().await?;
    assert!(page.contains("\nbuildkite_"), "{page}");
    assert_eq!(promtool(&["check", "metrics"], &page)?, "", "{page}");
    Ok(())
}

/// The spans of a job that the operator has sent, by name.
fn spans(received: &Received, job: Uuid) -> Vec<Value> {
    let id = job.simple().to_string();
    let received = received.lock().expect("nobody panics with it");
    let requests = received.iter().filter_map(|(_, body)| serde_json::from_slice::<Value>(body).ok());
    let spans = requests.flat_map(|request| {
        request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().cloned().unwrap_or_default()
    });
    spans.filter(|span| span["traceId"] == id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_has_data_and_every_job_is_a_trace() {
    scenario(async |world| {
        let (collector, received) = collector(world).await?;
        let agents = "agentConfig: {tracingBackend: opentelemetry, tracingPropagateTraceparent: true}";
        world.cluster.configure("pod_config", agents).await?;
        let listen = TcpListener::bind((world.environment.host, 0))?.local_addr()?;
        let _operator = world.operator_seen(listen, &collector).await?;
        let config = scraping(listen);
        let prometheus = Server::prometheus(world, &config, &[]).await?;
        let native = Server::prometheus(world, &config, &["--enable-feature=native-histograms"]).await?;

        // What is counted for the first time does not increase yet.
        let mut first = None;
        for _ in 0..2 {
            let env = format!(
                "{{OTEL_EXPORTER_OTLP_ENDPOINT: '{collector}', OTEL_EXPORTER_OTLP_PROTOCOL: http/protobuf}}"
            );
            let passed = world.submit(&format!("{{command: ./hello.sh, env: {env}}}")).await?;
            let failed = world.submit(&format!("{{command: exit 3, env: {env}}}")).await?;
            first.get_or_insert(passed.id);
            assert_eq!(world.buildkite.ended(passed.id).await?.exit_status, Some(0));
            failed.end().await?.assert_exit_status(3);
            world.cluster.no_pods().await?;
        }

        for query in queries(Page::Operator)? {
            answered(world, &prometheus, &query).await?;
        }
        answered(world, &native, "histogram_quantile(0.9, rate(buildkite_operator_job_wait_seconds[10m]))")
            .await?;
        assert_sound(world, listen).await?;

        let job = first.context("a job has run")?;
        eventually("the trace is complete", async || {
            let spans = spans(&received, job);
            let has = |name: &str| spans.iter().any(|span| span["name"] == name);
            Ok(["buildkite job", "queue", "create", "start", "run", "reap"]
                .into_iter()
                .all(has)
                .then_some(()))
        })
        .await?;
        let trace: [u8; 16] = *job.as_bytes();
        let joined = |body: &Bytes| {
            serde_json::from_slice::<Value>(body).is_err() && body.windows(16).any(|part| part == trace)
        };
        eventually("the agent's spans are part of it", async || {
            let received = received.lock().expect("nobody panics with it");
            Ok(received.iter().any(|(path, body)| path == "/v1/traces" && joined(body)).then_some(()))
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_about_mirrors_has_data() {
    scenario(async |world| {
        let listen = TcpListener::bind((world.environment.host, 0))?.local_addr()?;
        let _syncer = Syncer::start(world, listen).await?;
        let prometheus = Server::prometheus(world, &scraping(listen), &[]).await?;
        let queries = queries(Page::Syncer)?;
        assert!(!queries.is_empty(), "the dashboard shows mirrors");
        for query in queries {
            answered(world, &prometheus, &query).await?;
        }
        assert_sound(world, listen).await
    })
    .await;
}

/// A Buildkite that fails makes an operator unready, and does not get it killed.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_is_ready_once_its_queue_is_listed() {
    scenario(async |world| {
        let away = Action::Answer(Answer { status: 503, body: None, headers: [].into() });
        world.buildkite.faults.add(Fault::always("/v3/stacks/*/scheduled-jobs", away))?;
        let listen = TcpListener::bind((world.environment.host, 0))?.local_addr()?;
        let _operator = world
            .operator_given(None, ["--queue=bk-operator".to_owned(), format!("--listen={listen}")])
            .await?;
        let answer = async |path: &str| {
            let asked = world.buildkite.http().get(format!("http://{listen}{path}")).send().await;
            // It may not listen yet.
            let Ok(answer) = asked else { return Ok((0, String::new())) };
            anyhow::Ok((answer.status().as_u16(), answer.text().await?))
        };
        let unready = (503, "queue bk-operator: not listed yet\n".to_owned());
        eventually("listings fail", async || Ok((answer("/readyz").await? == unready).then_some(()))).await?;
        eventually("it has tried", async || {
            Ok(world.operator_log().contains("cannot take jobs").then_some(()))
        })
        .await?;
        assert_eq!(answer("/healthz").await?, (200, "ok\n".to_owned()));
        assert_eq!(answer("/readyz").await?, unready);
        world.buildkite.faults.clear();
        let ready = (200, "ok\n".to_owned());
        eventually("it is ready", async || Ok((answer("/readyz").await? == ready).then_some(()))).await
    })
    .await;
}
