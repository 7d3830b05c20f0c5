//! What happened to a job, in order, each with its reason.

use serde::Serialize;

use super::Millis;
use crate::build::{Job, JobKind, JobState};
use crate::store::jobs::JobEvent;

/// A line of the timeline.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    at: Millis,
    /// What the line is about; the page chooses a mark by it.
    kind: String,
    text: String,
}

/// Who has had the job, by name.
pub(super) struct Runner<'a> {
    pub(super) agent: Option<&'a str>,
    pub(super) stack: Option<&'a str>,
}

/// The timeline: what the job itself knows, and what others said about it.
pub(super) fn of_job(job: &Job, events: &[JobEvent], runner: &Runner<'_>) -> Vec<Entry> {
    let entry = |at, kind: &str, text: String| Entry { at: Millis(at), kind: kind.to_owned(), text };
    let created = match job.retry_count {
        0 => "Created".to_owned(),
        count => format!("Created as retry {count}"),
    };
    let mut entries = vec![entry(job.created_at, "created", created)];
    if let Some(at) = job.runnable_at {
        entries.push(entry(at, "scheduled", format!("Ready to run; waits in queue {}", job.queue)));
    }
    if let (Some(stack), Some(until)) = (runner.stack, job.reserved_until) {
        let until = until.strftime("%H:%M:%S UTC");
        // The database does not keep when; it was after the job became ready.
        let at = job.runnable_at.unwrap_or(job.scheduled_at);
        entries.push(entry(at, "reserved", format!("Reserved by stack {stack} until {until}")));
    }
    if let Some(at) = job.assigned_at {
        let name = runner.agent.unwrap_or("unknown");
        entries.push(entry(at, "assigned", format!("Assigned to agent {name}")));
    }
    if let Some(at) = job.accepted_at {
        entries.push(entry(
            at,
            "accepted",
            format!("Accepted by agent {}", runner.agent.unwrap_or("unknown")),
        ));
    }
    if let Some(at) = job.started_at {
        entries.push(entry(at, "started", "Started".to_owned()));
    }
    if let Some(at) = job.stopping_at {
        let why = if job.state == JobState::TimingOut || job.state == JobState::TimedOut {
            format!(
                "Timed out after {} minutes; the agent was told to stop",
                job.timeout_in_minutes.unwrap_or_default()
            )
        } else {
            "Cancelled; the agent was told to stop".to_owned()
        };
        entries.push(entry(at, "stopping", why));
    }
    entries.extend(events.iter().map(|event| entry(event.at, &event.kind, event.detail.clone())));
    if let Some(at) = job.finished_at {
        entries.push(entry(at, super::status::of_job(job), ending(job)));
    }
    // Stable: what happened in the same millisecond stays in the order of a job's life.
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// How the job ended, in a sentence.
pub(super) fn ending(job: &Job) -> String {
    let state = match job.state {
        JobState::Finished if job.kind != JobKind::Command => return "Done".to_owned(),
        JobState::Finished if job.exit_status == Some(0) => return "Passed".to_owned(),
        JobState::Finished if job.soft_failed => "Failed softly",
        JobState::Finished => "Failed",
        JobState::Canceled => "Cancelled",
        JobState::TimedOut => "Timed out",
        JobState::Skipped => "Skipped",
        JobState::Expired => "Expired: nobody took it",
        JobState::Unblocked => "Unblocked",
        JobState::WaitingFailed | JobState::BlockedFailed => "Did not run: something it depends on failed",
        other => other.as_str(),
    };
    let status = job.exit_status.map(|status| format!(" with exit status {status}"));
    let signal = job.signal.as_ref().map(|signal| format!(", signal {signal}"));
    let reason = job.signal_reason.as_ref().map(|reason| format!(" ({reason}: {})", explain(reason)));
    [Some(state.to_owned()), status, signal, reason].into_iter().flatten().collect()
}

/// What a signal reason means.
fn explain(reason: &str) -> &'static str {
    match reason {
        "cancel" => "it was cancelled or ran out of time",
        "agent_stop" => "its agent stopped",
        "agent_refused" => "its agent refused to run it",
        "agent_incompatible" => "its agent cannot run it",
        "process_run_error" => "its process could not be started",
        "signature_rejected" => "its signature was not accepted",
        "stack_error" => "its stack could not start it",
        _ => "as the agent said",
    }
}
