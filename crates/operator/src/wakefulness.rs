//! Whether what the caches hold may be from before a sleep.
//!
//! A process that was stopped, or whose machine stood still, goes on with what it knew. Meanwhile another operator may have
//! seen jobs to their end, and nothing is left of them that would stand in the way of a second pod. So whoever creates
//! something soon after a sleep asks the API server first, and what Buildkite said before it counts no more.
//!
//! A call that was already on its way when the process stopped is made all the same. Buildkite hands no job out twice, so
//! the agent in a pod that such a call creates finds nothing to do, and the pod goes with the BuildJob that is not there.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

/// How often the process looks whether it is awake.
const BEAT: Duration = Duration::from_millis(500);
/// So late no beat is in a process that is merely busy.
const ASLEEP: Duration = Duration::from_secs(3);
/// How long after a sleep the caches may still be from before it.
const DROWSY: Duration = Duration::from_mins(1);

/// When the process was last awake, and when it last woke.
#[derive(Debug)]
pub struct Wakefulness(Mutex<Beats>);

#[derive(Clone, Copy, Debug)]
struct Beats {
    last: Instant,
    woke: Option<Instant>,
}

impl Wakefulness {
    /// It is awake now.
    #[allow(
        clippy::new_without_default,
        reason = "it depends on the time, which nobody expects of a default"
    )]
    pub fn new() -> Self {
        Self(Mutex::new(Beats { last: Instant::now(), woke: None }))
    }

    /// Whether the process has slept not long ago.
    pub fn is_drowsy(&self) -> bool {
        self.beat().woke.is_some_and(|woke| woke.elapsed() < DROWSY)
    }

    /// Whether the process has slept since then.
    pub fn has_slept_since(&self, then: Instant) -> bool {
        self.beat().woke.is_some_and(|woke| woke > then)
    }

    /// Looks whether it is awake for as long as the process lives.
    pub async fn watch(&self) {
        let mut beats = tokio::time::interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            self.beat();
        }
    }

    /// Whoever asks first after a sleep finds it out.
    fn beat(&self) -> Beats {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.duration_since(beats.last) > ASLEEP {
            tracing::warn!(slept = ?now.duration_since(beats.last), "the process stood still");
            beats.woke = Some(now);
        }
        beats.last = now;
        *beats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleep_is_noticed_at_once_and_for_a_while() {
        let wakefulness = Wakefulness::new();
        tokio::time::advance(ASLEEP).await;
        assert!(!wakefulness.is_drowsy(), "busy");
        let before = Instant::now();
        tokio::time::advance(ASLEEP + BEAT).await;
        assert!(wakefulness.is_drowsy(), "nobody has looked before");
        assert!(wakefulness.has_slept_since(before) && !wakefulness.has_slept_since(Instant::now()));
        assert!(tokio::time::timeout(DROWSY / 2, wakefulness.watch()).await.is_err());
        assert!(wakefulness.is_drowsy());
        assert!(tokio::time::timeout(DROWSY / 2, wakefulness.watch()).await.is_err());
        assert!(!wakefulness.is_drowsy(), "the caches have caught up");
    }
}
