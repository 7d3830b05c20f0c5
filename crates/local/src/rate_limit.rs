//! Counting calls in windows of one second. Pure: the caller has the clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long calls are counted together.
const WINDOW: Duration = Duration::from_secs(1);

/// Above this many windows, those that are over are dropped.
const MANY: usize = 1024;

/// The windows of everybody who has called lately.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    windows: HashMap<K, Window>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    calls: u32,
}

/// Where a caller stands after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Calls that a window allows.
    pub(crate) limit: u32,
    /// Calls in this window, this one and refused ones included.
    pub(crate) current: u32,
    /// Whole seconds until the next window, at least 1.
    pub(crate) reset: u64,
}

impl Standing {
    /// Where somebody stands who has not called.
    pub(crate) fn fresh(limit: u32) -> Self {
        Self { limit, current: 0, reset: WINDOW.as_secs() }
    }

    /// Whether the call was within the limit.
    pub(crate) fn is_allowed(self) -> bool {
        self.current <= self.limit
    }

    /// Calls that are left in this window.
    pub(crate) fn remaining(self) -> u32 {
        self.limit.saturating_sub(self.current)
    }
}

impl<K> Default for Limiter<K> {
    fn default() -> Self {
        Self { windows: HashMap::new() }
    }
}

impl<K: Eq + Hash> Limiter<K> {
    /// Counts a call of `key` at `now`. A window begins with the first call after the one before has ended.
    pub(crate) fn count(&mut self, key: K, limit: u32, now: Instant) -> Standing {
        if self.windows.len() >= MANY {
            self.windows.retain(|_, window| !window.is_over(now));
        }
        let window = self.windows.entry(key).or_insert(Window { began: now, calls: 0 });
        if window.is_over(now) {
            *window = Window { began: now, calls: 0 };
        }
        window.calls = window.calls.saturating_add(1);
        let left = WINDOW.saturating_sub(now.saturating_duration_since(window.began));
        let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        Standing { limit, current: window.calls, reset: whole.max(1) }
    }
}

impl Window {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: u32 = 3;

    #[test]
    fn a_window_takes_its_limit_and_the_next_begins_anew() {
        let start = Instant::now();
        // Milliseconds since the start, and how many calls are left then; `None` is a refusal.
        let calls = [
            (0, Some(2)),
            (10, Some(1)),
            (500, Some(0)),
            (501, None),
            (999, None),
            (1000, Some(2)),
            (1999, Some(1)),
            (2000, Some(2)),
            (9000, Some(2)),
        ];
        let mut limiter = Limiter::default();
        for (at, expected) in calls {
            let standing = limiter.count("mine", LIMIT, start + Duration::from_millis(at));
            let left = standing.is_allowed().then(|| standing.remaining());
            assert_eq!(left, expected, "at {at} ms: {standing:?}");
            assert_eq!(standing.reset, 1);
        }
    }

    #[test]
    fn callers_do_not_share_a_window() {
        let now = Instant::now();
        let mut limiter = Limiter::default();
        for _ in 0..=LIMIT {
            limiter.count("one", LIMIT, now);
        }
        assert!(!limiter.count("one", LIMIT, now).is_allowed());
        assert!(limiter.count("two", LIMIT, now).is_allowed());
    }

    #[test]
    fn callers_of_the_past_are_forgotten() {
        let start = Instant::now();
        let mut limiter = Limiter::default();
        for caller in 0..MANY {
            limiter.count(caller, LIMIT, start);
        }
        limiter.count(MANY, LIMIT, start + WINDOW);
        assert_eq!(limiter.windows.len(), 1);
    }

    proptest! {
        /// Whatever the calls, no window of the limiter lets more through than its limit, and the first call
        /// after a second of silence always passes.
        #[test]
        fn never_more_than_the_limit(limit in 1u32..5, gaps in proptest::collection::vec(0u64..1500, 1..60)) {
            let mut now = Instant::now();
            let mut limiter = Limiter::default();
            let mut allowed: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                let standing = limiter.count((), limit, now);
                prop_assert!(standing.remaining() < limit);
                if gap >= 1000 {
                    prop_assert!(standing.is_allowed());
                }
                if standing.is_allowed() {
                    allowed.push(now);
                }
            }
            // Two adjoining windows can put twice the limit into one second, and never more.
            for (index, first) in allowed.iter().enumerate() {
                let within = allowed[index..].iter().filter(|at| at.duration_since(*first) < WINDOW).count();
                prop_assert!(within <= 2 * limit as usize);
            }
        }
    }
}
