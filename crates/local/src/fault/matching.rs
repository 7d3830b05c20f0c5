//! Which requests a fault strikes.

use std::time::{Duration, Instant};

use super::{Action, Fault, Standing, span};

/// A fault with what it has seen.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) id: u64,
    fault: Fault,
    ends: Option<Instant>,
    matched: u64,
    hits: u64,
    chance: u64,
}

/// The longest life of a fault, so that its end is a time.
const LONGEST: Duration = Duration::from_hours(24);

/// Whether the fault makes sense.
pub(super) fn check(fault: &Fault) -> Result<(), String> {
    if !fault.path.starts_with('/') {
        return Err(format!("path {:?} does not begin with /", fault.path));
    }
    if fault.path.trim_end_matches("/**").split('/').any(|segment| segment == "**") {
        return Err(format!("path {:?} has ** before its end", fault.path));
    }
    if fault.probability.is_some_and(|probability| !(0.0..=1.0).contains(&probability)) {
        return Err("probability is not between 0 and 1".to_owned());
    }
    if fault.seconds.is_some_and(|seconds| !(0.0..=LONGEST.as_secs_f64()).contains(&seconds)) {
        return Err(format!("seconds is not between 0 and {}", LONGEST.as_secs()));
    }
    fault.action.check()
}

impl Armed {
    pub(super) fn new(id: u64, fault: Fault, now: Instant) -> Self {
        let ends = fault.seconds.map(|seconds| now + span(seconds));
        let chance = fault.seed;
        Self { id, fault, ends, matched: 0, hits: 0, chance }
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        Standing {
            id: self.id,
            fault: self.fault.clone(),
            matched: self.matched,
            hits: self.hits,
            spent: self.spent(now),
        }
    }

    fn spent(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| now >= ends) || self.fault.times.is_some_and(|times| self.hits >= times)
    }

    /// What happens to this request if the fault strikes it.
    pub(super) fn strike(&mut self, method: &str, path: &str, now: Instant) -> Option<Action> {
        if self.spent(now) || !matches(&self.fault, method, path) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.fault.skip {
            return None;
        }
        if self.fault.probability.is_some_and(|probability| draw(&mut self.chance) >= probability) {
            return None;
        }
        self.hits += 1;
        Some(self.fault.action.clone())
    }
}

fn matches(fault: &Fault, method: &str, path: &str) -> bool {
    fault.method.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
        && path_matches(&fault.path, path)
}

/// Compares segment by segment. A template such as `/v3/jobs/{job}` reads as `/v3/jobs/*`.
fn path_matches(pattern: &str, path: &str) -> bool {
    let (pattern, open) = match pattern.strip_suffix("/**") {
        Some(beginning) => (beginning, true),
        None => (pattern, false),
    };
    let mut given = path.split('/');
    for wanted in pattern.split('/') {
        let any = wanted == "*" || (wanted.starts_with('{') && wanted.ends_with('}'));
        if !given.next().is_some_and(|segment| any || segment == wanted) {
            return false;
        }
    }
    open || given.next().is_none()
}

/// A number in [0, 1) from a sequence that its seed decides (`SplitMix64`).
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // The upper 32 bits fit a double exactly.
    f64::from(u32::try_from(mixed >> 32).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests;
