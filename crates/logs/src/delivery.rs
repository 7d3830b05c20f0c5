//! Delivering what is in the spool to one sink, whatever that does.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bk_api::config::LogBatch;
use tokio_util::sync::CancellationToken;

use crate::{
    record::Batch,
    sink::{Answer, Sink},
    spool::{Spool, Supply},
};

/// The first pause after something went wrong.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// No pause is longer, unless the sink asks for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// No pause is longer, even if the sink asks for it.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// No pause is longer once the job has ended: there is little time left.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// What a sink has taken so far.
#[derive(Debug)]
pub struct Tally(Mutex<Tallied>);

/// What a sink has taken so far.
#[derive(Clone, Debug)]
pub struct Tallied {
    /// Records that it has.
    pub sent: u64,
    /// Records that it refused.
    pub lost: u64,
    /// The first reason why one was refused or had to wait.
    pub reason: Option<String>,
    /// When it last took or refused one.
    pub progress: Instant,
}

impl Default for Tally {
    fn default() -> Self {
        Self(Mutex::new(Tallied { sent: 0, lost: 0, reason: None, progress: Instant::now() }))
    }
}

impl Tally {
    /// What it is now.
    pub fn get(&self) -> Tallied {
        self.lock().clone()
    }

    /// Keeps the first reason.
    pub fn because(&self, reason: String) {
        self.lock().reason.get_or_insert(reason);
    }

    fn lock(&self) -> MutexGuard<'_, Tallied> {
        self.0.lock().expect("nobody panics with the lock")
    }

    fn add(&self, answer: &Answer) {
        let mut tallied = self.lock();
        tallied.sent += answer.delivered;
        tallied.lost += answer.lost;
        if answer.delivered + answer.lost > 0 {
            tallied.progress = Instant::now();
        }
        if let Some(reason) = &answer.reason {
            tallied.reason.get_or_insert_with(|| reason.clone());
        }
    }
}

/// Brings records to a sink.
#[derive(Debug)]
pub struct Delivery {
    /// The sink's name.
    pub name: String,
    /// The sink.
    pub sink: Sink,
    /// Its number in the spool.
    pub number: usize,
    /// Where records wait.
    pub spool: Arc<Spool>,
    /// When batches are sent.
    pub limits: LogBatch,
    /// What it has taken.
    pub tally: Arc<Tally>,
    /// Cancelled when the job has ended.
    pub ending: CancellationToken,
}

impl Delivery {
    /// Delivers until everything is taken and no more comes.
    pub async fn run(mut self) {
        let mut batch = Batch::default();
        loop {
            batch.clear();
            match self.fill(&mut batch).await {
                Ok(Supply::Ended) if batch.is_empty() => return,
                Ok(_) => self.deliver(&batch).await,
                Err(error) => {
                    self.tally.because(format!("cannot read the spool: {error}"));
                    return;
                }
            }
        }
    }

    /// Fills a batch until it is full, or old, or there is no more.
    async fn fill(&self, batch: &mut Batch) -> std::io::Result<Supply> {
        let LogBatch { lines, bytes, milliseconds } = self.limits;
        let mut deadline = None;
        loop {
            let mut changed = std::pin::pin!(self.spool.changed());
            changed.as_mut().enable();
            let supply = self.spool.take(self.number, batch, lines, bytes)?;
            if batch.is_full(lines, bytes) || supply == Supply::Ended {
                return Ok(supply);
            }
            if batch.is_empty() {
                changed.await;
                continue;
            }
            let due = *deadline
                .get_or_insert_with(|| tokio::time::Instant::now() + Duration::from_millis(milliseconds));
            if tokio::time::timeout_at(due, changed).await.is_err() {
                return Ok(supply);
            }
        }
    }

    /// Sends a batch, and what of it has to be sent again, until nothing has.
    async fn deliver(&mut self, batch: &Batch) {
        let mut left: Vec<usize> = (0..batch.len()).collect();
        let (mut most, mut failures) = (left.len(), 0);
        while !left.is_empty() {
            let now = most.min(left.len());
            let answer = self.sink.send(batch, &left[..now]).await;
            self.tally.add(&answer);
            let progress = answer.again.len() < now;
            left.splice(..now, answer.again);
            if answer.too_large {
                most = (now / 2).max(1);
                continue;
            }
            if progress {
                failures = 0;
            }
            if let Some(reason) = &answer.reason {
                tracing::warn!(
                    sink = self.name,
                    left = left.len(),
                    lost = answer.lost,
                    reason,
                    "not everything was taken"
                );
            }
            if answer.reason.is_some() && !left.is_empty() {
                self.pause(pause(failures, answer.wait, bk_ops::jitter::fraction())).await;
                failures += 1;
            }
        }
    }

    /// Waits, though not for long once the job has ended.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.ending.cancelled() => tokio::time::sleep(pause.min(LAST_PAUSE)).await,
        }
    }
}

/// How long to wait after so many failures before this one. `fraction`, from 0 to 1, keeps those who failed together from coming
/// back together.
fn pause(failures: u32, wanted: Option<Duration>, fraction: f64) -> Duration {
    let own = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures))
        .min(LONGEST_PAUSE)
        .mul_f64(0.5 + fraction / 2.0);
    own.max(wanted.unwrap_or_default().min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, None, 1.0, 500)]
    #[case(0, None, 0.0, 250)]
    #[case(3, None, 1.0, 4_000)]
    #[case(50, None, 1.0, 30_000)]
    #[case(0, Some(7), 1.0, 7_000)]
    #[case(9, Some(1), 1.0, 30_000)]
    #[case(0, Some(9_999), 0.5, 300_000)]
    fn pauses_grow_and_end(
        #[case] failures: u32,
        #[case] wanted: Option<u64>,
        #[case] fraction: f64,
        #[case] expected: u64,
    ) {
        let pause = pause(failures, wanted.map(Duration::from_secs), fraction);
        assert_eq!(pause, Duration::from_millis(expected));
    }
}
