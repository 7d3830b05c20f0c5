//! How a controller is started, and its process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bk_e2e::buildkite::QUEUE;
use jiff::Timestamp;
use uuid::Uuid;

use super::{Part, stage::Stage};
use crate::process;

/// What a shell runs for the operator. Others get the same variables.
const OURS: &str = r#""$E2E_OPERATOR" run --kubeconfig="$KUBECONFIG" --endpoint="$BENCH_ENDPOINT" \
  --agent-image="$BENCH_AGENT_IMAGE" --queue="$BENCH_QUEUE" --max-in-flight="$BENCH_MAX_IN_FLIGHT""#;

/// A controller by name and command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    name: Option<String>,
    line: String,
}

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, line) = text.split_once('=').ok_or("it must be NAME=COMMAND")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(plain) || line.trim().is_empty() {
            return Err("it must be NAME=COMMAND, the name of letters, digits, dots and dashes".to_owned());
        }
        Ok(Self { name: Some(name.to_owned()), line: line.to_owned() })
    }
}

impl Command {
    /// The operator.
    pub(crate) fn ours() -> Self {
        Self { name: None, line: OURS.to_owned() }
    }

    /// Whether it is the operator.
    pub(crate) fn is_ours(&self) -> bool {
        self.name.is_none()
    }

    /// The same with another flag.
    pub(super) fn with(&self, flag: &str) -> Self {
        Self { name: self.name.clone(), line: format!("{} {flag}", self.line) }
    }

    /// What stands above its figures.
    pub(crate) fn title(&self, part: Part) -> String {
        let of = self.name.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        format!("{}{of}", part.name())
    }

    /// Starts it on a stage, with room for so many jobs.
    pub(super) async fn start(&self, stage: &Stage, max_in_flight: usize) -> Result<Controller> {
        let world = &stage.world;
        let kubeconfig = world.cluster.operator_kubeconfig(world.directory(), None).await?;
        if !self.is_ours() {
            // What others need is theirs to know.
            let (namespace, account) = (&world.cluster.namespace, world.cluster.operator_user());
            let user = format!("--user={account}");
            let binding = format!("bench-{namespace}");
            let args = ["create", "clusterrolebinding", &binding, "--clusterrole=cluster-admin", &user];
            world.cluster.kubectl(&args, None)?;
        }
        let log = world.directory().join(format!("controller-{}.log", Uuid::new_v4()));
        let file = File::create(&log)?;
        let started = Timestamp::now();
        let mut shell = std::process::Command::new("sh");
        if let Some(front) = &stage.front {
            shell.env("SSL_CERT_FILE", front.authority()).env_remove("SSL_CERT_DIR");
        }
        let child = shell
            .args(["-c", &format!("exec {}", self.line)])
            .env("KUBECONFIG", &kubeconfig)
            .env("BENCH_NAMESPACE", &world.cluster.namespace)
            .env("BENCH_ENDPOINT", stage.endpoint())
            .env("BENCH_TOKEN", &world.buildkite.agent_token)
            .env("BENCH_QUEUE", QUEUE)
            .env("BENCH_MAX_IN_FLIGHT", max_in_flight.to_string())
            .env("BENCH_AGENT_IMAGE", &world.environment.agent_image)
            .env_remove("BUILDKITE_AGENT_TOKEN")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", self.line))?;
        Ok(Controller { child, log, started })
    }
}

/// A controller's process. It ends with this value.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    /// When it was started.
    pub(super) started: Timestamp,
}

impl Controller {
    /// The number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processor time that it has used so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        process::cpu(self.pid())
    }

    /// Resident memory in megabytes: now, and at most so far.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        process::memory(self.pid())
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the controller has ended: {}", self.last_words());
        Ok(())
    }

    /// Where its log is.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_a_name_and_keeps_its_equals_signs() {
        let command: Command = "stack=./stack --debug=true".parse().unwrap();
        assert_eq!(command.title(Part::Idle), "operator-idle of stack");
        assert_eq!(command.line, "./stack --debug=true");
        assert!(!command.is_ours());
        for wrong in ["./stack", "=./stack", "a b=c", "stack= "] {
            assert!(wrong.parse::<Command>().is_err(), "{wrong}");
        }
    }
}
