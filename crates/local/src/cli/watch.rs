//! Following a build.

mod reasons;

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use super::client::{Build, Client, Job};
use super::line::Form;
use super::terminal::{Terminal, Tone};

const INTERVAL: Duration = Duration::from_millis(500);

/// The build was canceled.
const CANCELED: u8 = 3;
/// The build waits for a person, and nobody is looking.
const BLOCKED: u8 = 4;
/// The user insisted on leaving.
const INTERRUPTED: u8 = 130;

/// What has been printed of a job.
#[derive(Default)]
struct Printed {
    state: String,
    events: usize,
    offset: i64,
    ended: bool,
}

/// Prints steps and logs as they come. The exit code is the build's result. The first Ctrl-C cancels the build,
/// the second leaves it.
pub(super) async fn watch(
    client: &Client,
    slug: &str,
    number: i64,
    terminal: &Terminal,
) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let mut printed: HashMap<Uuid, Printed> = HashMap::new();
    let mut reasons = reasons::Reasons::new();
    let mut was_blocked = false;
    let mut canceling = false;
    // One listener from the beginning: a signal that comes between two waits is not lost.
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        let build = client.build(slug, number).await?;
        for job in &build.jobs {
            follow(client, terminal, job, printed.entry(job.id).or_default()).await?;
        }
        terminal.status(&status(&build, began.elapsed()));
        if build.finished_at.is_some() {
            terminal.status("");
            return Ok(result(terminal, &build));
        }
        for reason in reasons.new_ones(client, &build).await {
            terminal.line(Tone::Warning, &reason);
        }
        if waits_for_people(&build) {
            if !was_blocked {
                terminal.line(Tone::Quiet, &how_to_unblock(&build));
            }
            if !terminal.is_interactive() {
                return Ok(ExitCode::from(BLOCKED));
            }
        }
        was_blocked = waits_for_people(&build);
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = interrupts.recv() => {
                if canceling {
                    terminal.status("");
                    terminal.line(Tone::Plain, &format!("leaving: build {} goes on by itself", build.name()));
                    return Ok(ExitCode::from(INTERRUPTED));
                }
                canceling = true;
                terminal.line(Tone::Plain, "canceling the build; Ctrl-C again leaves it");
                client.cancel_build(&build).await?;
            }
        }
    }
}

/// Whether nothing happens until somebody unblocks the build.
fn waits_for_people(build: &Build) -> bool {
    let busy = ["scheduled", "reserved", "assigned", "accepted", "running", "canceling", "timing_out"];
    build.blocked && !build.jobs.iter().any(|job| busy.contains(&job.state.as_str()))
}

fn how_to_unblock(build: &Build) -> String {
    format!("blocked: `buildkite-local unblock {}`, or {}", build.name(), build.web_url)
}

async fn follow(client: &Client, terminal: &Terminal, job: &Job, known: &mut Printed) -> anyhow::Result<()> {
    let ended = job.finished();
    let form = Form { escapes: terminal.has_colours(), timestamps: false };
    if job.kind == "script" && !known.ended && (ended || job.agent.is_some()) {
        loop {
            let part = client.log(job.id, known.offset).await?;
            let news = part.next_offset > known.offset;
            known.offset = part.next_offset;
            for line in part.content.lines() {
                terminal.line(Tone::Plain, &format!("{} | {}", job.title(), form.show(line)));
            }
            if part.complete || !news || !ended {
                break;
            }
        }
        known.ended = ended;
    }
    for event in job.events.iter().skip(known.events) {
        terminal.line(Tone::Quiet, &format!("{} * {}", job.title(), event.detail));
    }
    known.events = job.events.len();
    if known.state != job.state && job.kind != "waiter" {
        terminal.line(tone(job), &format!("{}: {}", job.title(), describe(job)));
    }
    known.state.clone_from(&job.state);
    Ok(())
}

/// `demo/3 running 12s: 2 passed, 1 running, 3 waiting`.
fn status(build: &Build, since: Duration) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for job in build.jobs.iter().filter(|job| job.kind != "waiter" && !job.retried) {
        *counts.entry(&job.state).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{} {} {}s: {}", build.name(), build.state, since.as_secs(), counts.join(", "))
}

fn tone(job: &Job) -> Tone {
    match job.state.as_str() {
        "passed" | "unblocked" => Tone::Good,
        "failed" if job.soft_failed => Tone::Quiet,
        "failed" | "timed_out" | "expired" | "canceled" => Tone::Bad,
        _ => Tone::Quiet,
    }
}

/// `failed with exit status 3 (cancel)`.
pub(super) fn describe(job: &Job) -> String {
    let mut words = vec![job.state.clone()];
    if job.soft_failed {
        words.push("softly".to_owned());
    }
    match (job.exit_status, &job.agent) {
        (Some(status), _) if status != 0 => words.push(format!("with exit status {status}")),
        (None, Some(agent)) if job.state == "running" => words.push(format!("on {}", agent.name)),
        _ => {}
    }
    words.extend(job.signal_reason.as_ref().map(|reason| format!("({reason})")));
    words.join(" ")
}

fn result(terminal: &Terminal, build: &Build) -> ExitCode {
    let (tone, code) = match build.state.as_str() {
        "passed" | "not_run" | "skipped" => (Tone::Good, 0),
        "canceled" => (Tone::Bad, CANCELED),
        _ => (Tone::Bad, 1),
    };
    terminal.line(tone, &format!("build {}: {}", build.name(), build.state));
    ExitCode::from(code)
}

impl Job {
    /// What people know the job by.
    pub(super) fn title(&self) -> String {
        let command = self.command.as_deref().and_then(|command| command.lines().next());
        let name = self.name.as_deref().or(self.step_key.as_deref()).or(command).unwrap_or(&self.kind);
        match self.parallel_group_index {
            Some(index) => format!("{name} [{index}]"),
            None => name.to_owned(),
        }
    }

    /// Whether nothing more happens to it.
    pub(super) fn finished(&self) -> bool {
        matches!(
            self.state.as_str(),
            "passed"
                | "failed"
                | "canceled"
                | "timed_out"
                | "skipped"
                | "broken"
                | "expired"
                | "waiting_failed"
        )
    }
}
