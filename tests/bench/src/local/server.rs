//! The server under test: a process with a database file of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Client;
use crate::process;

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
    /// A server on loopback.
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), &mut Command::new(binary), Stdio::null())
    }

    /// A server on an address of this machine, by a command that has what it needs there. Its log goes to `log`.
    pub(crate) fn start_on(host: IpAddr, command: &mut Command, log: impl Into<Stdio>) -> Result<Self> {
        let directory = tempfile::tempdir().context("making a directory for the database")?;
        let address = TcpListener::bind((host, 0))?.local_addr()?;
        let process = command
            .args(["serve", "--listen", &address.to_string(), "--database"])
            .arg(directory.path().join("state.db"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let server = Self { process, address, _directory: directory };
        let started = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            ensure!(started.elapsed() < Duration::from_secs(30), "the server does not answer on {address}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
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

    /// What `work` cost the server, with what it returned.
    pub(crate) fn cost<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
        let before = process::cpu(self.pid())?;
        let result = work()?;
        Ok((result, process::cpu(self.pid())?.saturating_sub(before)))
    }

    /// Resident memory in megabytes: now, and at most so far.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        process::memory(self.pid())
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}
