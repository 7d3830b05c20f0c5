//! The agent's process.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use bk_e2e::eventually;

/// The agent that `cargo xtask test` built.
pub(crate) fn program() -> Result<PathBuf> {
    let path = std::env::var("E2E_AGENT").context(
        "E2E_AGENT is not set: these tests need the agent; run them with `cargo xtask test --only agent`",
    )?;
    ensure!(Path::new(&path).exists(), "E2E_AGENT is {path}, where there is nothing");
    Ok(path.into())
}

/// A running agent. It is killed with everything that it started when dropped.
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts an agent in `home`, with nothing of the developer's environment but what programs need to run.
    pub(crate) fn start(home: &Path, endpoint: &str, token: &str, args: &[&str]) -> Result<Self> {
        let log = home.join("agent.log");
        let directory = |name: &str| -> Result<PathBuf> {
            let path = home.join(name);
            fs::create_dir_all(&path)?;
            Ok(path)
        };
        let tools = home.parent().context("an agent lives in the stage's directory")?.join("tools");
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        let child = Command::new(program()?)
            .arg("start")
            .args(["--no-color", "--no-pty", "--no-plugins", "--skip-checkout", "--cancel-grace-period=4"])
            .arg(format!("--endpoint={endpoint}"))
            .arg(format!("--build-path={}", directory("builds")?.display()))
            .arg(format!("--hooks-path={}", directory("hooks")?.display()))
            .arg(format!("--sockets-path={}", directory("sockets")?.display()))
            .args(args)
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .env("BUILDKITE_AGENT_TOKEN", token)
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .process_group(0)
            .spawn()
            .context("cannot start the agent")?;
        Ok(Self { child, log })
    }

    /// What it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        let status = eventually("the agent ends", async || Ok(self.child.try_wait()?)).await;
        status.with_context(|| format!("the agent wrote:\n{}", self.log()))
    }

    /// Sends a signal to the agent alone: `TERM`, `KILL`.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(name, &self.child.id().to_string())
    }
}

fn signal(name: &str, target: &str) -> Result<()> {
    let status = Command::new("kill").args(["-s", name, "--", target]).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "there is no process {target} to send {name} to");
    Ok(())
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The group holds the jobs' processes as well; it may be gone already.
        let _gone = signal("KILL", &format!("-{}", self.child.id()));
        let _reaped = self.child.wait();
    }
}
