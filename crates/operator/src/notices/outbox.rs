//! The lines of one queue that have not been sent.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use bk_buildkite::stacks::{BATCH_MAX, NOTIFICATION_DETAIL_MAX, Notification, crop};
use bk_ops::jitter;
use bk_plan::intake::pace;
use jiff::Timestamp;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{error::Error, intake::Intake};

/// How many lines wait at most. Beyond that the oldest are the least worth telling.
const CAPACITY: usize = 20_000;

/// How many lines Buildkite takes for one job.
const MAX_PER_JOB: u32 = 100;

/// How many jobs are remembered. To forget one costs no more than a line too many.
const MAX_JOBS: usize = 20_000;

/// Lines in order, and the way they go.
#[derive(Debug)]
pub(super) struct Outbox {
    intake: Arc<dyn Intake>,
    pile: Mutex<Pile>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Pile {
    lines: VecDeque<Line>,
    /// How many lines have left: sent, refused or dropped.
    left: u64,
    told: HashMap<Uuid, Told>,
    failures: u32,
    closed_until: Option<Instant>,
    /// How many lines were dropped since somebody was told.
    dropped: u64,
}

/// A line, and when what it says happened.
#[derive(Clone, Debug)]
struct Line {
    job: Uuid,
    text: String,
    at: Timestamp,
}

/// What a job's timeline has been told.
#[derive(Debug)]
struct Told {
    lines: u32,
    last: String,
}

/// Lines that are being sent.
struct Batch {
    lines: Vec<Notification>,
    /// How many lines will have left once these have.
    end: u64,
}

impl Outbox {
    pub(super) fn new(intake: Arc<dyn Intake>) -> Self {
        Self { intake, pile: Mutex::default(), filled: Notify::new() }
    }

    /// Whether its lines go this way.
    pub(super) fn is_for(&self, intake: &Arc<dyn Intake>) -> bool {
        Arc::ptr_eq(&self.intake, intake)
    }

    pub(super) fn queue(&self) -> &str {
        self.intake.queue()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().lines.is_empty()
    }

    /// Takes a line about something that happens now.
    pub(super) fn put(&self, job: Uuid, text: &str, at: Timestamp) {
        self.lock().put(Line { job, text: crop(text, NOTIFICATION_DETAIL_MAX), at });
        self.filled.notify_one();
    }

    /// Waits until there is something to send.
    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    /// Sends a batch, if it is time. What fails for a reason that can pass stays.
    pub(super) async fn deliver(&self) {
        let Some(Batch { lines, end }) = self.lock().batch(Instant::now()) else {
            return;
        };
        let count = lines.len();
        let outcome = self.intake.notify(lines).await;
        let mut pile = self.lock();
        let queue = self.queue();
        match outcome {
            Ok(()) => pile.sent(end),
            Err(error) if error.is_temporary() || error.needs_attention() => {
                let pause = pile.failed(&error);
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(queue, error, ?pause, "cannot notify Buildkite yet");
            }
            Err(error) => {
                pile.sent(end);
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(queue, error, count, "Buildkite refuses notifications");
            }
        }
        let dropped = std::mem::take(&mut pile.dropped);
        if dropped > 0 {
            tracing::warn!(queue, dropped, "notifications were dropped: too many wait to be sent");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pile> {
        // Nothing inside can be left half-done by a panic.
        self.pile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pile {
    /// Adds a line, unless it says what the one before it said, or the job has had as many as it may have.
    fn put(&mut self, line: Line) {
        if self.told.len() >= MAX_JOBS {
            self.told.clear();
        }
        let told = self.told.entry(line.job).or_insert_with(|| Told { lines: 0, last: String::new() });
        if line.text.is_empty() || told.last == line.text || told.lines >= MAX_PER_JOB {
            return;
        }
        told.lines += 1;
        told.last.clone_from(&line.text);
        if self.lines.len() >= CAPACITY && self.lines.pop_front().is_some() {
            self.left += 1;
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    /// What to send, if it is time. Lines that come late say when what they tell happened.
    fn batch(&self, now: Instant) -> Option<Batch> {
        if self.lines.is_empty() || self.closed_until.is_some_and(|until| now < until) {
            return None;
        }
        let late = self.failures > 0;
        let lines: Vec<Notification> = self
            .lines
            .iter()
            .take(BATCH_MAX)
            .cloned()
            .map(|Line { job, text, at }| Notification {
                job_uuid: job,
                detail: text,
                timestamp: late.then_some(at),
            })
            .collect();
        let end = self.left + lines.len() as u64;
        Some(Batch { lines, end })
    }

    /// A batch has left. Some of it may have been dropped meanwhile.
    fn sent(&mut self, end: u64) {
        while self.left < end && self.lines.pop_front().is_some() {
            self.left += 1;
        }
        self.failures = 0;
        self.closed_until = None;
    }

    /// A batch could not be sent; it is tried again after a pause.
    fn failed(&mut self, error: &Error) -> std::time::Duration {
        self.failures += 1;
        let pause = pace::after_failures(self.failures, error.retry_after(), jitter::fraction());
        self.closed_until = Some(Instant::now() + pause);
        pause
    }
}

#[cfg(test)]
mod tests;
