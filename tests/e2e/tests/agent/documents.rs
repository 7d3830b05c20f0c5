//! docs/buildkite-local.md as it is printed: a server, an agent, a build that passes, and faults.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bk_e2e::eventually;
use bk_e2e::guide::blocks;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::program;

const PAGE: &str = include_str!("../../../../docs/buildkite-local.md");

/// A directory with a repository in it, and a port of its own for the server.
struct Desk {
    directory: TempDir,
    port: u16,
}

/// Something that runs in another terminal. It is killed with everything that it started when dropped.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let kill = format!("kill -s KILL -- -{}", self.0.id());
        // It may have ended by itself.
        let _ended = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
        let _reaped = self.0.wait();
    }
}

impl Desk {
    fn set_up() -> Result<Self> {
        let directory = TempDir::new()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let desk = Self { directory, port };
        for name in ["bin", "home", "app/.buildkite"] {
            fs::create_dir_all(desk.path(name))?;
        }
        let local = std::env::var("E2E_LOCAL")
            .context("E2E_LOCAL is not set: run `cargo xtask test --only agent`")?;
        symlink(local, desk.path("bin/buildkite-local"))?;
        symlink(program()?, desk.path("bin/buildkite-agent"))?;
        // As it is printed it says nothing of refusals.
        let curl = "#!/bin/sh\nPATH=${PATH#*:} exec curl --fail-with-body \"$@\"\n";
        fs::write(desk.path("bin/curl"), curl)?;
        fs::set_permissions(desk.path("bin/curl"), fs::Permissions::from_mode(0o755))?;
        fs::write(
            desk.path("app/.buildkite/pipeline.yml"),
            "steps: [{label: greet, command: cat greeting}]\n",
        )?;
        fs::write(desk.path("app/greeting"), "hello from the desk\n")?;
        let person = "git -c user.name=Test -c user.email=test@example.com";
        let repository = format!("git init --quiet; git add .; {person} commit --quiet -m First");
        ensure!(desk.shell(&repository).status()?.success(), "the directory becomes a repository");
        Ok(desk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A shell that has what is printed, but for the port and the place for builds.
    fn shell(&self, commands: &str) -> Command {
        let address = format!("127.0.0.1:{}", self.port);
        let commands = commands
            .replace("127.0.0.1:8384", &address)
            .replace("/tmp/builds", &self.path("builds").display().to_string());
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell
            .args(["-exc", &commands])
            .current_dir(self.path("app"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("BUILDKITE_LOCAL_LISTEN", &address)
            .env("BUILDKITE_LOCAL_URL", format!("http://{address}"))
            .env("BUILDKITE_LOCAL_FAULTS", "true")
            .stdin(Stdio::null());
        shell
    }

    /// Runs commands in another terminal.
    fn terminal(&self, commands: &str, log: &Path) -> Result<Terminal> {
        let log = File::create(log)?;
        let mut shell = self.shell(commands);
        let shell = shell.stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Terminal(shell.spawn().context("cannot start a shell")?))
    }

    /// Runs commands to their end.
    async fn run(&self, commands: &str) -> Result<String> {
        let mut shell = self.shell(commands);
        let output = tokio::task::spawn_blocking(move || shell.output()).await??;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        ensure!(output.status.success(), "{text}");
        Ok(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_buildkite_local() {
    let shown: Vec<_> =
        blocks(PAGE).into_iter().filter(|block| block.language == "sh").map(|block| block.body).collect();
    let [serve, start, build, faults] = &shown[..] else {
        panic!("the page has four blocks of commands: {shown:#?}")
    };
    let desk = Desk::set_up().unwrap();
    let _server = desk.terminal(serve, &desk.path("server.log")).unwrap();
    eventually("the server answers", async || {
        Ok(desk.run("curl --silent http://127.0.0.1:8384/ >/dev/null").await.ok().map(drop))
    })
    .await
    .unwrap();
    let _agent = desk.terminal(start, &desk.path("agent.log")).unwrap();
    let log = desk.run(build).await.unwrap();
    assert!(log.contains("greet | hello from the desk") && log.contains("passed"), "{log}");

    let agents = desk.run("buildkite-local agents --output json 2>/dev/null").await.unwrap();
    let begin = agents.find('[').unwrap();
    let agents: Value =
        serde_json::Deserializer::from_str(&agents[begin..]).into_iter().next().unwrap().unwrap();
    let faults = faults.replace("AGENT-ID", agents[0]["id"].as_str().unwrap());
    let answered = desk.run(&faults).await.unwrap();
    assert!(answered.contains("lose_answer"), "it lists the faults: {answered}");
}
