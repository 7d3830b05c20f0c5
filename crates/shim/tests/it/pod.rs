//! A pod: a workspace and the containers on it, each of them one shim.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// The shim under test.
pub(crate) fn shim() -> PathBuf {
    std::env::var_os("BUILDKITE_SHIM").map_or_else(
        || env!("CARGO_BIN_EXE_buildkite-shim").into(),
        // Relative to the workspace, where the command is given; tests run in the crate's directory.
        |path| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path),
    )
}

/// Puts the shim there under another name. Another process writes it: what other tests start meanwhile holds whatever this one has open for
/// writing, until it becomes the program that it is to be, and nobody can execute such a file ("Text file busy").
pub(crate) fn copy_shim(to: &Path) {
    let copied = Command::new("cp").args([&shim(), to]).status().unwrap();
    assert!(copied.success(), "cannot copy the shim to {}", to.display());
}

/// Puts a script there that can be executed, in the same way.
pub(crate) fn make_script(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#]).arg(path).arg(text);
    assert!(command.status().unwrap().success(), "cannot write {}", path.display());
}

/// Waits for a condition; fails the test after a deadline.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Pod {
    directory: TempDir,
    pub(crate) run: &'static str,
}

impl Pod {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("workspace")).unwrap();
        fs::write(directory.path().join("agent-binary"), "the agent").unwrap();
        Self { directory, run: "0" }
    }

    /// The same workspace, for the next attempt.
    pub(crate) fn again(self, run: &'static str) -> Self {
        let _ = fs::remove_file(self.outside("events"));
        Self { run, ..self }
    }

    pub(crate) fn workspace(&self, path: &str) -> PathBuf {
        self.directory.path().join("workspace").join(path)
    }

    /// A path that is not in the workspace.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub(crate) fn marks(&self, path: &str) -> PathBuf {
        self.workspace(".buildkite-operator").join(self.run).join(path)
    }

    pub(crate) fn ended(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.marks("ended").join(name)).ok()
    }

    /// What the commands have written to `$EVENTS`, line by line.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = fs::read_to_string(self.outside("events")).unwrap_or_default();
        events.lines().map(str::to_owned).collect()
    }

    /// The agent's container, whose command serves a socket until its input is closed.
    pub(crate) fn agent(&self, jobs: &str) -> Container {
        let script = "echo agent >> $EVENTS; : > $WORKSPACE/buildkite.sock; read _; exit 0";
        self.agent_with(&["--jobs", jobs], &["--", "sh", "-c", script])
    }

    pub(crate) fn agent_with(&self, flags: &[&str], command: &[&str]) -> Container {
        self.agent_in(Command::new(shim()), flags, command)
    }

    pub(crate) fn agent_in(&self, program: Command, flags: &[&str], command: &[&str]) -> Container {
        let binary = self.outside("agent-binary");
        let binary = ["--agent-binary", binary.to_str().unwrap()];
        self.start("agent", program, &[&["agent"], flags, &binary].concat(), command)
    }

    /// A job's container that runs a shell script.
    pub(crate) fn job(&self, name: &str, flags: &[&str], script: &str) -> Container {
        self.job_with(Command::new(shim()), name, flags, &["sh", "-c", script])
    }

    pub(crate) fn job_with(
        &self,
        program: Command,
        name: &str,
        flags: &[&str],
        command: &[&str],
    ) -> Container {
        self.start(name, program, &[&["job", "--name", name], flags].concat(), &[&["--"], command].concat())
    }

    fn start(&self, name: &str, mut program: Command, flags: &[&str], command: &[&str]) -> Container {
        let (errors, reason) =
            (self.outside(&format!("{name}.err")), self.outside(&format!("{name}.reason")));
        fs::write(&reason, "").unwrap();
        let child = program
            .args(flags)
            .args([
                "--run",
                self.run,
                "--workspace",
                self.workspace("").to_str().unwrap().trim_end_matches('/'),
            ])
            .args(["--termination-log", reason.to_str().unwrap()])
            .args(command)
            .env("EVENTS", self.outside("events"))
            .env("WORKSPACE", self.workspace(""))
            .env("MARKS", self.marks(""))
            .stdin(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        Container { child, errors, reason }
    }

    pub(crate) fn until_started(&self, name: &str) {
        until("start mark", || self.marks("started").join(name).exists());
    }

    pub(crate) fn until_ready(&self) {
        until("ready mark", || self.marks("ready").exists());
    }

    pub(crate) fn until_event(&self, event: &str) {
        until(event, || self.events().iter().any(|line| line == event));
    }
}

pub(crate) struct Container {
    child: Child,
    errors: PathBuf,
    reason: PathBuf,
}

/// How a container ended.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) status: Option<i32>,
    /// What the kubelet would show.
    pub(crate) reason: String,
    pub(crate) errors: String,
}

impl Container {
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let script = format!("kill -{name} {pid}");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    }

    /// Writes a line to the command.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends the input of the command.
    pub(crate) fn release(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn wait(mut self) -> End {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if start.elapsed() > DEADLINE => panic!("container does not end: {}", self.errors()),
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        self.end(status)
    }

    fn end(&self, status: ExitStatus) -> End {
        let reason = fs::read_to_string(&self.reason).unwrap();
        End { status: status.code(), reason: reason.trim_end().to_owned(), errors: self.errors() }
    }

    fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Already gone unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl End {
    /// An abnormal end that people are told in the same words everywhere.
    pub(crate) fn abnormal(status: i32, reason: &str) -> Self {
        Self {
            status: Some(status),
            reason: reason.to_owned(),
            errors: format!("buildkite-shim: {reason}\n"),
        }
    }

    /// The command's own status, and nothing to say about it.
    pub(crate) fn plain(status: i32) -> Self {
        Self { status: Some(status), reason: String::new(), errors: String::new() }
    }
}
