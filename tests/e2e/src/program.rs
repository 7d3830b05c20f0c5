//! Programs of Debian's that tests run on this machine.

use std::{
    fs::{self, File},
    io::Write,
    net::{IpAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{World, eventually};

/// A program that answers on a port. Dropping it ends it.
pub struct Server {
    child: Child,
    /// Its address.
    pub url: String,
    directory: TempDir,
}

impl Server {
    /// Starts a program in a directory of its own, with `config.yml` in it, that takes `--web.listen-address`.
    pub fn start(host: IpAddr, program: &str, config: &str, arguments: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        fs::write(directory.path().join("config.yml"), config)?;
        let address = TcpListener::bind((host, 0))?.local_addr()?;
        let child = Command::new(program)
            .args(arguments)
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("log"))?)
            .spawn()
            .with_context(|| format!("cannot start {program}; `cargo xtask test` installs it"))?;
        Ok(Self { child, url: format!("http://{address}"), directory })
    }

    /// A Prometheus that is ready.
    pub async fn prometheus(world: &World, config: &str, arguments: &[&str]) -> Result<Self> {
        let all = [&["--config.file=config.yml", "--storage.tsdb.path=data"], arguments].concat();
        let prometheus = Self::start(world.environment.host, "prometheus", config, &all)?;
        prometheus.get(world, "/-/ready", |text| text.contains("Ready").then_some(())).await?;
        Ok(prometheus)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it answers, once that is something.
    pub async fn get<T>(&self, world: &World, path: &str, look: impl Fn(&str) -> Option<T>) -> Result<T> {
        let url = format!("{}{path}", self.url);
        eventually(&format!("{url} answers well"), async || {
            let request = world.buildkite.http().get(&url).basic_auth("jobs", Some("right"));
            let text = request.send().await?.text().await?;
            let found = look(&text);
            ensure!(found.is_some(), "it answers {text}");
            Ok(found)
        })
        .await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs promtool with this input, and fails if it does, or has something to say where it should have nothing.
pub fn promtool(arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start promtool; `cargo xtask test` installs it")?;
    child.stdin.take().context("its input is ours")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "promtool {arguments:?} failed: {said}");
    Ok(said)
}
