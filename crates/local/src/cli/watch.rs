//! Following a build.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use super::client::{Build, Client, Job};
use super::terminal::{Terminal, Tone};

const INTERVAL: Duration = Duration::from_millis(500);

/// What has been printed of a job.
#[derive(Default)]
struct Printed {
    state: String,
    events: usize,
    offset: i64,
    ended: bool,
}

/// Prints steps and logs as they come. The exit code is the build's result.
pub(super) async fn watch(
    client: &Client,
    slug: &str,
    number: i64,
    terminal: &Terminal,
) -> anyhow::Result<ExitCode> {
    let mut printed: HashMap<String, Printed> = HashMap::new();
    let mut was_blocked = false;
    loop {
        let build = client.build(slug, number).await?;
        for job in &build.jobs {
            let known = printed.entry(job.id.clone()).or_default();
            follow(client, terminal, job, known).await?;
        }
        if build.blocked && !was_blocked {
            terminal.line(Tone::Quiet, &format!("blocked: unblock it at {}", build.web_url));
        }
        was_blocked = build.blocked;
        if build.finished_at.is_some() {
            return Ok(result(terminal, &build));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn follow(client: &Client, terminal: &Terminal, job: &Job, known: &mut Printed) -> anyhow::Result<()> {
    let ended = job.finished();
    if job.kind == "script" && !known.ended && (ended || job.agent.is_some()) {
        let part = client.log(&job.id, known.offset).await?;
        known.offset = part.next_offset;
        for line in part.content.lines() {
            terminal.log(&job.title(), line);
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

fn tone(job: &Job) -> Tone {
    match job.state.as_str() {
        "passed" | "unblocked" => Tone::Good,
        "failed" if job.soft_failed => Tone::Quiet,
        "failed" | "timed_out" | "expired" | "canceled" => Tone::Bad,
        _ => Tone::Quiet,
    }
}

fn describe(job: &Job) -> String {
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
    let good = matches!(build.state.as_str(), "passed" | "not_run");
    let tone = if good { Tone::Good } else { Tone::Bad };
    terminal.line(tone, &format!("build #{}: {}", build.number, build.state));
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Job {
    fn title(&self) -> String {
        let command = self.command.as_deref().and_then(|command| command.lines().next());
        let name = self.name.as_deref().or(self.step_key.as_deref()).or(command).unwrap_or(&self.kind);
        match self.parallel_group_index {
            Some(index) => format!("{name} [{index}]"),
            None => name.to_owned(),
        }
    }

    fn finished(&self) -> bool {
        matches!(
            self.state.as_str(),
            "passed" | "failed" | "canceled" | "timed_out" | "skipped" | "expired" | "waiting_failed"
        )
    }
}
