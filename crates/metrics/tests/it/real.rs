//! A real Prometheus and a real Pushgateway, as Debian ships them; `cargo xtask test` installs both.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bk_api::{config::AtEnd, exporters::MetricsDelivery};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    scrape::port,
    world::{World, until},
};

/// The user `jobs` with the password `right`.
const USERS: &str =
    "basic_auth_users: {jobs: '$2b$04$hr7CtYaBI7WJ1VKAgHnBDethimJEkt/AIs9LZEo5zYylPZc2edH0y'}";

/// A program of Debian's that answers on a port.
struct Server {
    child: Child,
    url: String,
    directory: TempDir,
}

impl Server {
    /// Starts it with a file and these arguments, in which its place is `DIR`.
    async fn start(program: &str, file: &str, arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("config.yml"), file).unwrap();
        let place = directory.path().display().to_string();
        let address = format!("127.0.0.1:{}", port());
        let child = Command::new(program)
            .args(arguments.iter().map(|argument| argument.replace("DIR", &place)))
            .arg(format!("--web.listen-address={address}"))
            .current_dir(&place)
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; `cargo xtask test --only unit` installs it"));
        let server = Self { child, url: format!("http://{address}"), directory };
        until(program, async || server.get("/-/ready").await.filter(|(status, _)| *status < 500)).await;
        server
    }

    async fn pushgateway() -> Self {
        Self::start("prometheus-pushgateway", USERS, &["--web.config.file=DIR/config.yml"]).await
    }

    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let client = bk_ops::http::client("test", Duration::from_secs(5)).unwrap();
        let request = client.get(format!("{}{path}", self.url)).basic_auth("jobs", Some("right"));
        let response = request.send().await.ok()?;
        Some((response.status().as_u16(), response.text().await.unwrap()))
    }

    /// What the Pushgateway shows of `tests_total`.
    async fn shown(&self) -> Vec<String> {
        let (status, text) = self.get("/metrics").await.unwrap();
        assert_eq!(status, 200, "{text}");
        text.lines().filter(|line| line.starts_with("tests_total")).map(str::to_owned).collect()
    }

    /// A delivery to it with this password, as the Secret has it.
    fn delivery(&self, password: &str, grouping: &str, at_end: AtEnd) -> MetricsDelivery {
        let secret = self.directory.path().join(password);
        fs::create_dir_all(&secret).unwrap();
        fs::write(secret.join("username"), "jobs").unwrap();
        fs::write(secret.join("password"), password).unwrap();
        MetricsDelivery::Push {
            url: self.url.clone(),
            job: "buildkite".to_owned(),
            grouping: BTreeMap::from([("pipeline".to_owned(), grouping.to_owned())]),
            at_end,
            credentials: Some(secret.display().to_string()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tests(value: u8) -> String {
    format!(
        "# HELP tests_total Tests by result.\n# TYPE tests_total counter\ntests_total{{result=\"passed\"}} {value}\n"
    )
}

#[tokio::test]
async fn prometheus_has_the_last_value_with_the_jobs_labels() {
    let own = port();
    let world = World::patient(MetricsDelivery::Scrape { port: own }, 20);
    world.write("tests.prom", &tests(1));
    world.write("bad.prom", "no number\n");
    let config = format!(
        "scrape_configs: [{{job_name: jobs, scrape_interval: 1s, static_configs: [{{targets: ['127.0.0.1:{own}']}}]}}]"
    );
    let arguments = ["--config.file=DIR/config.yml", "--storage.tsdb.path=DIR/data"];
    let prometheus = Server::start("prometheus", &config, &arguments).await;
    let value = async || {
        let (_, text) = prometheus.get("/api/v1/query?query=tests_total").await?;
        let answer: Value = serde_json::from_str(&text).unwrap();
        let series = answer["data"]["result"].get(0)?;
        assert_eq!(
            (&series["metric"]["step"], &series["metric"]["result"]),
            (&"test".into(), &"passed".into())
        );
        series["value"][1].as_str().map(str::to_owned)
    };
    assert_eq!(until("a value", value).await, "1");
    world.write("tests.prom", &tests(2));
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, sink.lost), (1, 0, 1), "{sink:?}");
    until("the last value", async || value().await.filter(|value| value == "2")).await;
    let (_, metadata) = prometheus.get("/api/v1/targets/metadata?metric=tests_total").await.unwrap();
    assert!(metadata.contains("Tests by result.") && metadata.contains("counter"), "{metadata}");
}

#[tokio::test]
async fn a_pushgateway_keeps_or_forgets_the_last_values() {
    let gateway = Server::pushgateway().await;
    let kept = |value: u8| {
        vec![format!(
            r#"tests_total{{instance="",job="buildkite",pipeline="a/b",result="passed",step="test"}} {value}"#
        )]
    };
    let world = World::patient(gateway.delivery("right", "a/b", AtEnd::Keep), 20);
    world.write("tests.prom", &tests(1));
    until("the first value", async || (gateway.shown().await == kept(1)).then_some(())).await;
    world.write("tests.prom", &tests(2));
    world.end();
    let sink = world.report().await.sinks.remove(0);
    assert_eq!((sink.sent, sink.waiting, &sink.reason), (1, 0, &None));
    assert_eq!(gateway.shown().await, kept(2));

    let world = World::patient(gateway.delivery("right", "a/b", AtEnd::Delete), 20);
    world.write("tests.prom", &tests(3));
    until("the next job's value", async || (gateway.shown().await == kept(3)).then_some(())).await;
    world.end();
    assert_eq!(world.report().await.sinks.remove(0).reason, None);
    assert!(gateway.shown().await.is_empty(), "{:?}", gateway.shown().await);
}

#[tokio::test]
async fn what_a_pushgateway_refuses_is_in_the_report() {
    let gateway = Server::pushgateway().await;
    for (password, text, refusal) in [
        ("wrong", tests(1), "answers 401: Unauthorized"),
        // The gateway has it as a counter by then.
        ("right", tests(1), ""),
        (
            "right",
            tests(1).replace("counter", "gauge"),
            "answers 400: pushed metrics are invalid or inconsistent",
        ),
    ] {
        let refused = !refusal.is_empty();
        let patience = if refused { 5 } else { 20 };
        let world = World::patient(gateway.delivery(password, refusal, AtEnd::Keep), patience);
        world.write("tests.prom", &text);
        world.end();
        let sink = world.report().await.sinks.remove(0);
        assert_eq!((sink.sent, sink.waiting), (u64::from(!refused), u64::from(refused)), "{sink:?}");
        let reason = sink.reason.unwrap_or_default();
        assert!(reason.contains(refusal) && reason.is_empty() != refused, "{reason}");
    }
}
