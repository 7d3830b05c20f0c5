//! The server under test: a process with a database file of its own.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Client;

/// The tokens that a server on loopback takes.
pub(crate) const REGISTRATION: &str = "Token local-agent-token";
const API: &str = "Bearer local-api-token";

/// A running server; ends with this value.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Server {
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        let directory = tempfile::tempdir().context("making a directory for the database")?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new(binary)
            .args(["serve", "--listen", &address.to_string(), "--database"])
            .arg(directory.path().join("state.db"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let server = Self { process, address, _directory: directory };
        let started = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            ensure!(started.elapsed() < Duration::from_secs(30), "the server does not answer on {address}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// A connection with this `Authorization`.
    pub(crate) fn client(&self, authorization: &str) -> Result<Client> {
        Client::connect(self.address, authorization)
    }

    /// A call of the REST API, relative to the organisation.
    pub(crate) fn rest(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        self.client(API)?.call(method, &format!("/v2/organizations/local/{path}"), body)
    }

    /// Creates a pipeline with this configuration and starts builds of it. Returns the last build.
    pub(crate) fn build(&self, name: &str, configuration: &Value, builds: usize) -> Result<Value> {
        let pipeline = json!({
            "name": name,
            "repository": "https://git.local/bench.git",
            "configuration": configuration.to_string(),
        });
        self.rest("POST", "pipelines", &pipeline)?;
        let mut build = Value::Null;
        for _ in 0..builds {
            let new = json!({"commit": "HEAD", "branch": "main", "message": "bench"});
            build = self.rest("POST", &format!("pipelines/{name}/builds"), &new)?;
        }
        Ok(build)
    }

    /// The processor time that the server has used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        let fields: Vec<&str> = stat.rsplit_once(')').context("reading stat")?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let ticks = ticks(11).zip(ticks(12)).map(|(user, system)| user + system).context("reading stat")?;
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }

    /// What `work` cost the server, with what it returned.
    pub(crate) fn cost<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
        let before = self.cpu()?;
        let result = work()?;
        Ok((result, self.cpu()?.saturating_sub(before)))
    }

    /// Resident memory in megabytes: now, and at most so far.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let status = self.proc("status")?;
        let megabytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).map(|kb| kb / 1024)
        };
        megabytes("VmRSS").zip(megabytes("VmHWM")).context("reading the server's memory")
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.process.id());
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    }
}
