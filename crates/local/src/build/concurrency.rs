//! Concurrency groups: who may run next, over all builds.

use uuid::Uuid;

use super::JobState;
use crate::pipeline::step::{Concurrency, ConcurrencyMethod};

/// A job of a group that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) job: Uuid,
    pub(crate) build: Uuid,
    pub(crate) state: JobState,
    pub(crate) priority: i64,
    pub(crate) concurrency: Concurrency,
}

/// The members that may run now. `members` are all that have not ended, oldest first.
///
/// An ordered job goes when those that hold a place and those before it in the queue, ready or not, are fewer
/// than its limit. An eager one goes as soon as there is a place; the higher priority first.
pub(crate) fn admit(members: &[Member]) -> Vec<Uuid> {
    let mut held = members.iter().filter(|member| member.state.holds_place()).count();
    let mut admitted = Vec::new();
    let limit = |member: &Member| usize::try_from(member.concurrency.limit).unwrap_or(usize::MAX);
    let is_eager = |member: &Member| member.concurrency.method == ConcurrencyMethod::Eager;
    let mut ahead = 0;
    for member in members.iter().filter(|member| !member.state.holds_place()) {
        if member.state.is_limited() && !is_eager(member) && held + ahead < limit(member) {
            admitted.push(member.job);
            held += 1;
        } else {
            ahead += 1;
        }
    }
    let mut eager: Vec<&Member> =
        members.iter().filter(|member| member.state.is_limited() && is_eager(member)).collect();
    // Stable, so equal priorities keep their age.
    eager.sort_by_key(|member| std::cmp::Reverse(member.priority));
    for member in eager {
        if held < limit(member) {
            admitted.push(member.job);
            held += 1;
        }
    }
    admitted
}

/// Why `member` is not let in, in a sentence. Those before an ordered one come first even when they cannot go
/// yet; so one that depends on a later one of its own group waits for ever, and holds up all behind it.
pub(crate) fn reason(members: &[Member], member: &Member) -> String {
    let Concurrency { group, limit, method } = &member.concurrency;
    let older = members.iter().take_while(|other| other.job != member.job);
    let (busy, before): (Vec<_>, Vec<_>) = match method {
        ConcurrencyMethod::Ordered => {
            let later = members.iter().skip_while(|other| other.job != member.job).skip(1);
            older
                .chain(later.filter(|other| other.state.holds_place()))
                .partition(|other| other.state.holds_place())
        }
        ConcurrencyMethod::Eager => {
            (members.iter().filter(|other| other.state.holds_place()).collect(), Vec::new())
        }
    };
    let stuck = before.iter().filter(|other| other.state == JobState::Waiting).count();
    let mut parts = vec![format!("{} of {limit} taken", busy.len())];
    if !before.is_empty() {
        parts.push(format!("{} older to go first", before.len()));
    }
    if stuck > 0 {
        parts.push(format!("{stuck} of which still waiting for dependencies"));
    }
    format!("Waits for concurrency group {group}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests;
