//! What to tell people about a queue: not each round, but what changes.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use bk_plan::intake::Skip;

use crate::{
    error::Error,
    telemetry::{Places, Telemetry},
};

/// How long nothing must have been taken before the reason is worth a line.
const LULL: Duration = Duration::from_secs(2);

/// How often a trouble that lasts is told again.
const REMINDER: Duration = Duration::from_mins(1);

/// How a queue stands, and what has been told of it.
pub(super) struct Standing {
    queue: String,
    telemetry: Telemetry,
    /// Why each job of the last listing was left there.
    skipped: HashMap<String, Skip>,
    /// The reasons that were told last.
    told: BTreeSet<Skip>,
    last_take: Instant,
    trouble: Option<Trouble>,
}

struct Trouble {
    text: String,
    since: Instant,
    told: Instant,
}

impl Standing {
    pub(super) fn new(queue: String, telemetry: Telemetry) -> Self {
        telemetry.metrics.queues.serve(&queue);
        Self {
            queue,
            telemetry,
            skipped: HashMap::new(),
            told: BTreeSet::new(),
            last_take: Instant::now(),
            trouble: None,
        }
    }

    /// The next round begins then at the latest.
    pub(super) fn goes_on(&self, latest: Instant) {
        self.telemetry.health.due(&self.queue, latest);
    }

    /// The queue was listed: so many jobs are taken now, and these are left there.
    pub(super) fn listed(&mut self, taken: usize, skipped: HashMap<String, Skip>, places: Places) {
        let in_flight = places.taken;
        let (queue, now) = (&self.queue, Instant::now());
        self.telemetry.health.listed(queue, now);
        self.telemetry.metrics.queues.listed(queue, taken + skipped.len(), taken, places);
        for (job, reason) in &skipped {
            if self.skipped.get(job) != Some(reason) {
                self.telemetry.metrics.queues.skipped(queue, *reason);
                tracing::debug!(queue, job_uuid = job, reason = reason.as_str(), "job left in its queue");
            }
        }
        self.skipped = skipped;
        if let Some(trouble) = self.trouble.take() {
            tracing::info!(queue, after = ?trouble.since.elapsed(), "jobs can be taken again");
        }
        if taken > 0 {
            self.last_take = now;
            tracing::debug!(queue, taken, in_flight, "taking jobs");
        } else if now.duration_since(self.last_take) >= LULL {
            self.explain(in_flight);
        }
    }

    /// Tells why nothing is taken, if that is news.
    fn explain(&mut self, in_flight: usize) {
        // A job that is here already waits for nothing; listings lag.
        let waiting = self.skipped.values().filter(|reason| !matches!(reason, Skip::Duplicate | Skip::Taken));
        let reasons: BTreeSet<Skip> = waiting.copied().collect();
        if reasons == self.told {
            return;
        }
        if !reasons.is_empty() {
            let why: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
            let (queue, waiting) = (&self.queue, self.skipped.len());
            tracing::info!(
                queue,
                waiting,
                in_flight,
                reasons = why.join(", "),
                "jobs wait and none is taken"
            );
        }
        self.told = reasons;
    }

    /// A round failed; the next one is after a pause.
    pub(super) fn failed(&mut self, error: &Error, pause: Duration) {
        let text = bk_ops::report::one_line(error);
        let (queue, now) = (&self.queue, Instant::now());
        self.telemetry.metrics.queues.failed(queue, pause);
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        let before = self.trouble.as_ref().filter(|trouble| trouble.text == text);
        if before.is_some_and(|trouble| now.duration_since(trouble.told) < REMINDER) {
            return;
        }
        tracing::warn!(queue, error = text, ?pause, "cannot take jobs");
        if error.needs_attention() {
            self.telemetry.announcer.warn("CannotTakeJobs", &format!("queue {queue}: {text}"));
        }
        self.trouble = Some(Trouble { text, since, told: now });
    }
}
