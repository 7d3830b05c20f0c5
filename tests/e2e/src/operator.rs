//! The operator that works for a test: a process, or an installation.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{environment::Environment, eventually, release::Release};

/// An operator that a test needs nothing of but that it works.
pub enum Running {
    /// A process of this machine.
    Process(Operator),
    /// Pods of the cluster.
    Installed(Release),
}

/// An operator's process. Dropping it kills it.
pub struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts `buildkite-operator run` with these arguments; its log goes on in `log`.
    pub fn start(environment: &Environment, args: &[String], log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = Command::new(&environment.operator)
            .arg("run")
            .args(args)
            .env_remove("BUILDKITE_AGENT_TOKEN")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", environment.operator.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Everything it has logged, also before a restart.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// The most memory it has had in use so far, in kB, without the pages of its program.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let size = |name: &str| -> Result<u64> {
            let size =
                status.lines().find_map(|line| line.strip_prefix(name)).context("the kernel tells sizes")?;
            Ok(size.trim().trim_end_matches(" kB").parse()?)
        };
        Ok(size("VmHWM:")?.saturating_sub(size("RssFile:")?))
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to stop with SIGTERM and waits for its exit.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.signal("TERM")?;
        self.exit().await
    }

    /// Lets it freeze with SIGSTOP.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets it go on with SIGCONT.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        // The shell's own `kill`: the program of that name is not installed everywhere.
        let kill = format!("kill -s {signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status()?;
        ensure!(status.success(), "cannot send {signal} to the operator");
        Ok(())
    }

    /// Waits for it to end by itself.
    pub async fn exit(&mut self) -> Result<ExitStatus> {
        eventually("the operator has ended", async || Ok(self.child.try_wait()?)).await
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.kill();
    }
}
