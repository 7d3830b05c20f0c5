//! git as a process that has an end: in a process group of its own, with a time limit, and without questions to anybody.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{Instant, timeout_at},
};

/// How long git may take to end once it was told to.
const GRACE: Duration = Duration::from_secs(3);
/// How much of git's complaints is kept.
const COMPLAINT: usize = 600;
/// How much git may answer.
const ANSWER: u64 = 256 << 20;

/// What came of a command that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git could not be started.
    #[error("cannot run git {command}")]
    Start {
        /// The command's name.
        command: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// git took too long and was ended.
    #[error("git {command} took longer than {} s", limit.as_secs())]
    TooLong {
        /// The command's name.
        command: String,
        /// How long it might have taken.
        limit: Duration,
    },
    /// git failed.
    #[error("git {command} failed: {complaint}")]
    Failed {
        /// The command's name.
        command: String,
        /// The end of what it said.
        complaint: String,
    },
}

impl GitError {
    /// Whether what git said points at damage on this side rather than at the network or the server.
    pub fn suggests_damage(&self) -> bool {
        const SIGNS: [&str; 14] = [
            "bad object",
            "missing blob",
            "missing tree",
            "missing commit",
            "unable to read",
            "is corrupt",
            "corrupt loose object",
            "did not send all necessary objects",
            "unresolved delta",
            "inflate",
            "is empty",
            "packfile",
            "not a git repository",
            "does not point to a valid object",
        ];
        match self {
            Self::Failed { complaint, .. } => SIGNS.iter().any(|sign| complaint.contains(sign)),
            Self::Start { .. } | Self::TooLong { .. } => false,
        }
    }
}

/// One command of git.
pub struct Git {
    command: Command,
    name: String,
    settings: Vec<(String, String)>,
    input: Input,
    limit: Duration,
}

enum Input {
    Nothing,
    Text(String),
    /// The lock of the mirror: as long as git runs, nobody else gets it, even if we are killed.
    Lock(File),
}

impl Git {
    /// A command in a repository. Nothing of our own environment that begins with `GIT_` gets to it.
    pub fn new(repository: &Path, name: &str, limit: Duration) -> Self {
        let mut git = Self::anywhere(name, limit);
        git.command.env("GIT_DIR", repository);
        git
    }

    /// A command outside any repository.
    pub fn anywhere(name: &str, limit: Duration) -> Self {
        let mut command = Command::new("git");
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("GIT_") {
                command.env_remove(variable);
            }
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env_remove("SSH_ASKPASS")
            .process_group(0)
            .kill_on_drop(true);
        let settings = vec![
            ("safe.directory".to_owned(), "*".to_owned()),
            // Two lines that come too slowly, and git gives up by itself.
            ("http.lowSpeedLimit".to_owned(), "1".to_owned()),
            ("http.lowSpeedTime".to_owned(), "60".to_owned()),
        ];
        command.arg(name);
        Self { command, name: name.to_owned(), settings, input: Input::Nothing, limit }
    }

    /// What the environment says of git's credentials and settings stays: the pod's author has prepared it for git.
    #[must_use]
    pub fn inheriting(mut self) -> Self {
        let mut kept = Vec::new();
        for (variable, value) in std::env::vars_os() {
            let name = variable.to_string_lossy().into_owned();
            match name.as_str() {
                "GIT_SSH_COMMAND" | "GIT_SSL_CAINFO" | "GIT_SSL_CAPATH" | "GIT_ASKPASS" => {
                    self.command.env(variable, value);
                }
                name if name.starts_with("GIT_CONFIG_KEY_") => {
                    let number = name.trim_start_matches("GIT_CONFIG_KEY_").to_owned();
                    let of_key = std::env::var(format!("GIT_CONFIG_VALUE_{number}")).unwrap_or_default();
                    kept.push((
                        number.parse::<usize>().unwrap_or_default(),
                        value.to_string_lossy().into_owned(),
                        of_key,
                    ));
                }
                _ => {}
            }
        }
        kept.sort();
        self.settings.extend(kept.into_iter().map(|(_, key, value)| (key, value)));
        self
    }

    /// Arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// A variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Settings for this command only. They are neither on disk nor on the command line.
    #[must_use]
    pub fn settings(mut self, settings: &[(String, String)]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    /// What it reads.
    #[must_use]
    pub fn input(mut self, text: String) -> Self {
        self.input = Input::Text(text);
        self
    }

    /// Holds the lock for as long as it runs, even if we do not.
    #[must_use]
    pub fn holding(mut self, lock: File) -> Self {
        self.input = Input::Lock(lock);
        self
    }

    /// Runs it and returns what it printed.
    pub async fn run(mut self) -> Result<Vec<u8>, GitError> {
        self.command.env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (index, (key, value)) in self.settings.iter().enumerate() {
            self.command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            self.command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        let (stdin, text) = match self.input {
            Input::Nothing => (Stdio::null(), None),
            Input::Text(text) => (Stdio::piped(), Some(text)),
            Input::Lock(lock) => (Stdio::from(lock), None),
        };
        let Self { mut command, name, limit, .. } = self;
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|source| GitError::Start { command: name.clone(), source })?;
        let mut group = Group::of(child);
        match timeout_at(Instant::now() + limit, group.finish(text)).await {
            Ok(Ok((status, answer, _))) if status.success() => Ok(answer),
            Ok(Ok((status, answer, said))) => {
                // Some commands complain where others answer.
                let said = if said.is_empty() { answer } else { said };
                Err(GitError::Failed { command: name, complaint: complaint(&said, status) })
            }
            Ok(Err(source)) => Err(GitError::Start { command: name, source }),
            Err(_) => {
                group.end().await;
                Err(GitError::TooLong { command: name, limit })
            }
        }
    }

    /// Runs it and returns what it printed as text.
    pub async fn text(self) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.run().await?).into_owned())
    }
}

/// git and everything that it has started.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    fn of(child: Child) -> Self {
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Self { child, id }
    }

    async fn finish(&mut self, input: Option<String>) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let stdin = self.child.stdin.take();
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let writing = async {
            if let (Some(mut stdin), Some(text)) = (stdin, input) {
                // git may have seen enough before the end.
                let _closed = stdin.write_all(text.as_bytes()).await;
            }
        };
        let ((), answer, said) = tokio::join!(writing, all(stdout), all(stderr));
        let status = self.child.wait().await?;
        self.id = None;
        Ok((status, answer?, said?))
    }

    /// Ends the whole group: asks first, then insists.
    async fn end(&mut self) {
        self.signal(Signal::TERM);
        if timeout_at(Instant::now() + GRACE, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            // A process that waits for a volume which does not answer ends when that does.
            let _late = timeout_at(Instant::now() + GRACE, self.child.wait()).await;
        }
        // What git has started may not have listened.
        self.signal(Signal::KILL);
        self.id = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // A group that has gone needs no signal.
            let _gone = kill_process_group(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

async fn all(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(ANSWER).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// The end of what git said, on one line. It has seen no secrets, so it cannot tell them.
fn complaint(said: &[u8], status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(said);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = words.chars().count().saturating_sub(COMPLAINT);
    let end: String = words.chars().skip(skipped).collect();
    if end.is_empty() { status.to_string() } else { end }
}
