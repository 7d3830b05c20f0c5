//! The browser's process, and messages to and from it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, broadcast, oneshot};

use crate::page::Page;

/// Where Debian's package has the browser; another one is named by `BROWSER`.
const CHROMIUM: &str = "/usr/bin/chromium";

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

/// The browser reads commands from descriptor 3 and writes answers to 4. A shell moves them there.
const ON_PIPES: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Answers = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A running browser with a profile of its own; it ends when dropped.
pub struct Browser {
    wire: Arc<Wire>,
    _process: Child,
    _profile: TempDir,
}

/// The way to the browser.
pub(crate) struct Wire {
    input: AsyncMutex<ChildStdin>,
    answers: Answers,
    next: AtomicU64,
    events: broadcast::Sender<Arc<Value>>,
}

impl Browser {
    /// Starts it. Needs a runtime, in which its messages are read.
    pub fn start() -> Result<Self> {
        let program = std::env::var_os("BROWSER").map_or_else(|| PathBuf::from(CHROMIUM), PathBuf::from);
        ensure!(program.is_file(), "there is no {}: run `cargo xtask deps`", program.display());
        let profile = tempfile::tempdir().context("creating a profile")?;
        let mut process = Command::new("sh")
            .args(["-c", ON_PIPES, "sh"])
            .arg(&program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let input = process.stdin.take().context("the browser has no input")?;
        let output = process.stdout.take().context("the browser has no output")?;
        let answers = Answers::default();
        let (events, _) = broadcast::channel(4096);
        tokio::spawn(listen(output, answers.clone(), events.clone()));
        let wire = Arc::new(Wire { input: AsyncMutex::new(input), answers, next: AtomicU64::new(1), events });
        Ok(Self { wire, _process: process, _profile: profile })
    }

    /// A new tab.
    pub async fn page(&self) -> Result<Page> {
        let target = self.wire.call(None, "Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.wire.call(None, "Target.attachToTarget", attach).await?;
        let session = session["sessionId"].as_str().context("the browser gave no session")?.to_owned();
        Page::open(self.wire.clone(), session).await
    }
}

/// Hands each message to whoever waits for it, until the browser ends.
async fn listen(output: ChildStdout, answers: Answers, events: broadcast::Sender<Arc<Value>>) {
    let mut messages = BufReader::new(output).split(0);
    while let Ok(Some(bytes)) = messages.next_segment().await {
        let Ok(message) = serde_json::from_slice::<Value>(&bytes) else { continue };
        match message["id"].as_u64() {
            Some(id) => {
                let waiting = answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                if let Some(waiting) = waiting {
                    // The caller may have lost its patience.
                    let _ = waiting.send(message);
                }
            }
            // Nobody may be listening.
            None => drop(events.send(Arc::new(message))),
        }
    }
}

impl Wire {
    /// Sends a command and waits for its answer.
    pub(crate) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.lock().await.write_all(&bytes).await.context("the browser has ended")?;
        let mut answer = tokio::time::timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("the browser did not answer {method}"))?
            .with_context(|| format!("the browser ended during {method}"))?;
        match answer.get("error") {
            Some(error) => Err(anyhow!("{method}: {error}")),
            None => Ok(answer["result"].take()),
        }
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Arc<Value>> {
        self.events.subscribe()
    }
}
