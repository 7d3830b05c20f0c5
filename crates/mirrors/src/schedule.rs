//! Which mirror is fetched when: at its interval, later after failures, and at once when somebody asks. No clock, no I/O.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

/// The longest pause after failures, unless the interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_mins(15);

/// All mirrors, by their directories.
#[derive(Debug)]
pub struct Schedule {
    entries: BTreeMap<String, Entry>,
    parallelism: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    interval: Duration,
    due: Timestamp,
    running: bool,
    /// Somebody asked while it ran: what they want may have come too late for it.
    again: bool,
    failures: u32,
}

impl Schedule {
    /// An empty one, of which so many may run at once.
    pub fn new(parallelism: usize) -> Self {
        Self { entries: BTreeMap::new(), parallelism }
    }

    /// Has exactly these mirrors. New ones are due at once.
    pub fn set(&mut self, mirrors: &BTreeMap<String, Duration>, now: Timestamp) {
        self.entries.retain(|name, entry| entry.running || mirrors.contains_key(name));
        for (name, interval) in mirrors {
            let new = Entry { interval: *interval, due: now, running: false, again: false, failures: 0 };
            let entry = self.entries.entry(name.clone()).or_insert(new);
            entry.interval = *interval;
            entry.due = entry.due.min(later(now, pause(*interval, entry.failures)));
        }
    }

    /// Somebody wants a mirror to be fetched at once. Returns whether there is such a mirror.
    pub fn ask(&mut self, name: &str, now: Timestamp) -> bool {
        match self.entries.get_mut(name) {
            Some(entry) if entry.running => {
                entry.again = true;
                true
            }
            Some(entry) => {
                entry.due = now;
                true
            }
            None => false,
        }
    }

    /// Those to be started now, the longest due first.
    pub fn start(&mut self, now: Timestamp) -> Vec<String> {
        let running = self.entries.values().filter(|entry| entry.running).count();
        let mut due: Vec<(Timestamp, String)> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.running && entry.due <= now)
            .map(|(name, entry)| (entry.due, name.clone()))
            .collect();
        due.sort();
        due.truncate(self.parallelism.saturating_sub(running));
        for (_, name) in &due {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.running = true;
                entry.again = false;
            }
        }
        due.into_iter().map(|(_, name)| name).collect()
    }

    /// One has ended. `jitter`, between 0 and 1, keeps those that began together from meeting again and again.
    pub fn ended(&mut self, name: &str, went_well: bool, now: Timestamp, jitter: f64) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.running = false;
            entry.failures = if went_well { 0 } else { entry.failures.saturating_add(1) };
            let pause = pause(entry.interval, entry.failures);
            entry.due =
                if entry.again { now } else { later(now, pause.mul_f64(0.9 + jitter.clamp(0.0, 1.0) * 0.2)) };
        }
    }

    /// How long nothing is to be started, if anything ever is.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        let waiting = self.entries.values().filter(|entry| !entry.running);
        let due = waiting.map(|entry| entry.due).min()?;
        Some(due.duration_since(now).try_into().unwrap_or(Duration::ZERO))
    }
}

fn pause(interval: Duration, failures: u32) -> Duration {
    let longest = LONGEST_PAUSE.max(interval);
    interval.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest)
}

fn later(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn schedule(parallelism: usize, names: &[&str]) -> Schedule {
        let mut schedule = Schedule::new(parallelism);
        schedule.set(&names.iter().map(|name| ((*name).to_owned(), MINUTE)).collect(), at(0));
        schedule
    }

    #[test]
    fn each_is_fetched_at_its_interval_and_no_more_than_allowed_at_once() {
        let mut schedule = schedule(2, &["a", "b", "c"]);
        assert_eq!(schedule.start(at(0)), ["a", "b"]);
        assert!(schedule.start(at(0)).is_empty());
        schedule.ended("a", true, at(5), 0.5);
        assert_eq!(schedule.start(at(5)), ["c"]);
        schedule.ended("b", true, at(6), 0.5);
        assert_eq!(schedule.wait(at(6)), Some(Duration::from_secs(59)));
        assert_eq!(schedule.start(at(65)), ["a"]);
    }

    #[test]
    fn failures_make_it_wait_longer_and_a_success_ends_that() {
        let mut schedule = schedule(1, &["a"]);
        let mut now = 0;
        for expected in [60, 120, 240, 480, 900, 900] {
            assert_eq!(schedule.start(at(now)), ["a"]);
            schedule.ended("a", false, at(now), 0.5);
            assert_eq!(schedule.wait(at(now)), Some(Duration::from_secs(expected)));
            now += i64::try_from(expected).unwrap();
        }
        schedule.start(at(now));
        schedule.ended("a", true, at(now), 0.5);
        assert_eq!(schedule.wait(at(now)), Some(MINUTE));
    }

    #[test]
    fn whoever_asks_while_it_runs_gets_another_run() {
        let mut schedule = schedule(1, &["a"]);
        schedule.start(at(0));
        assert!(schedule.ask("a", at(1)) && schedule.ask("a", at(2)));
        assert!(schedule.start(at(2)).is_empty());
        schedule.ended("a", true, at(3), 0.0);
        assert_eq!(schedule.start(at(3)), ["a"], "once for both");
        schedule.ended("a", true, at(4), 0.0);
        assert!(schedule.start(at(4)).is_empty());
        assert!(!schedule.ask("b", at(4)));
    }

    proptest! {
        #[test]
        fn never_more_than_allowed_and_never_twice(steps in prop::collection::vec((0_u8..4, 0_usize..6, 0_i64..100), 0..200)) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let mut schedule = schedule(3, &names);
            let mut running: Vec<String> = Vec::new();
            let mut now = 0;
            for (action, which, passed) in steps {
                now += passed;
                match action {
                    0 => { schedule.ask(names[which], at(now)); }
                    1 if !running.is_empty() => {
                        let name = running.swap_remove(which % running.len());
                        schedule.ended(&name, passed % 2 == 0, at(now), 0.5);
                    }
                    2 => schedule.set(&names[..which].iter().map(|name| ((*name).to_owned(), MINUTE)).collect(), at(now)),
                    _ => for name in schedule.start(at(now)) {
                        prop_assert!(!running.contains(&name));
                        running.push(name);
                    },
                }
                prop_assert!(running.len() <= 3);
            }
        }
    }
}
