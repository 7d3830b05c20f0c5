//! A real Elasticsearch, which can be killed and started again.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use reqwest::Client;
use serde_json::{Value, json};

use crate::{environment::variable, eventually_for};

/// How many documents are read at a time; no server gives more.
const PAGE: usize = 10_000;

/// A server with its data in a directory of the test. It is killed when this is dropped.
pub struct Elasticsearch {
    /// Its address.
    pub url: String,
    program: PathBuf,
    home: PathBuf,
    address: (IpAddr, u16),
    http: Client,
    child: Child,
}

impl Elasticsearch {
    /// Starts a server on `host` that keeps everything below `home`, and waits until it answers.
    pub async fn start(host: IpAddr, home: &Path, http: Client) -> Result<Self> {
        let distribution = PathBuf::from(variable("E2E_ELASTICSEARCH")?);
        for directory in ["config", "temporary"] {
            fs::create_dir_all(home.join(directory))?;
        }
        for file in ["elasticsearch.yml", "jvm.options", "log4j2.properties"] {
            fs::copy(distribution.join("config").join(file), home.join("config").join(file))?;
        }
        // It is asked for again after a restart, so it has to be known beforehand.
        let port = std::net::TcpListener::bind((host, 0))?.local_addr()?.port();
        let address = (host, port);
        let program = distribution.join("bin/elasticsearch");
        let child = launch(&program, home, address)?;
        let url = format!("http://{host}:{port}");
        let server = Self { url, program, home: home.to_owned(), address, http, child };
        server.answers().await?;
        Ok(server)
    }

    /// Kills it as a power cut would.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again with the data that it has.
    pub async fn revive(&mut self) -> Result<()> {
        self.child = launch(&self.program, &self.home, self.address)?;
        self.answers().await
    }

    async fn answers(&self) -> Result<()> {
        eventually_for(120, "Elasticsearch answers", async || {
            let health =
                self.http.get(format!("{}/_cluster/health?wait_for_status=yellow", self.url)).send().await;
            Ok(health.is_ok_and(|answer| answer.status().is_success()).then_some(()))
        })
        .await
    }

    /// How many documents an index has; none if there is no such index yet.
    pub async fn count(&self, index: &str) -> Result<u64> {
        self.http.post(format!("{}/{index}/_refresh", self.url)).send().await?;
        let answer = self.http.get(format!("{}/{index}/_count", self.url)).send().await?;
        Ok(answer.json::<Value>().await?["count"].as_u64().unwrap_or_default())
    }

    /// The messages of all documents, in the order of their numbers.
    pub async fn messages(&self, index: &str) -> Result<Vec<String>> {
        self.http.post(format!("{}/{index}/_refresh", self.url)).send().await?.error_for_status()?;
        let mut messages = Vec::new();
        let mut query =
            json!({ "size": PAGE, "sort": [{ "event.sequence": "asc" }], "_source": ["message"] });
        loop {
            let request = self.http.post(format!("{}/{index}/_search", self.url)).json(&query);
            let page: Value = request.send().await?.error_for_status()?.json().await?;
            let hits = page["hits"]["hits"].as_array().context("a search without hits")?;
            let message = |hit: &Value| hit["_source"]["message"].as_str().map(str::to_owned);
            messages.extend(hits.iter().filter_map(message));
            let Some(last) = hits.last() else { return Ok(messages) };
            query["search_after"] = last["sort"].clone();
        }
    }
}

impl Drop for Elasticsearch {
    fn drop(&mut self) {
        // It may be dead already.
        let _gone = self.kill();
    }
}

/// It refuses to be root, so it gets another name for root; and it is two processes, so they get a namespace that ends with the first.
fn launch(program: &Path, home: &Path, (host, port): (IpAddr, u16)) -> Result<Child> {
    let log = fs::File::options().create(true).append(true).open(home.join("output.log"))?;
    let at = |name: &str| home.join(name).display().to_string();
    let settings = [
        ("discovery.type", "single-node".to_owned()),
        ("xpack.security.enabled", "false".to_owned()),
        // A developer's disk may be fuller than it likes.
        ("cluster.routing.allocation.disk.threshold_enabled", "false".to_owned()),
        ("path.data", at("data")),
        ("path.logs", at("logs")),
        // On any other address it insists on limits that only real servers have.
        ("http.host", host.to_string()),
        ("transport.host", "127.0.0.1".to_owned()),
        ("http.port", port.to_string()),
    ];
    Command::new("unshare")
        .args(["--user", "--map-user=1000", "--map-group=1000", "--pid", "--fork", "--kill-child"])
        .arg(program)
        .args(settings.iter().flat_map(|(name, value)| ["-E".to_owned(), format!("{name}={value}")]))
        .env("ES_PATH_CONF", home.join("config"))
        .env("ES_TMPDIR", home.join("temporary"))
        .env("ES_JAVA_HOME", java_home()?)
        .env("ES_JAVA_OPTS", "-Xms512m -Xmx512m")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start Elasticsearch")
}

/// Where the `java` of the search path really is.
fn java_home() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let java =
        std::env::split_paths(&path).map(|directory| directory.join("java")).find(|java| java.is_file());
    let java = fs::canonicalize(java.context("there is no java")?)?;
    let home = java.ancestors().nth(2).context("java is in no directory of programs")?;
    Ok(home.to_owned())
}
