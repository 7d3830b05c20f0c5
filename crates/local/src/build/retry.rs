//! Retries: a new job of the same step takes the place of one that ended.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use uuid::Uuid;

use super::{Job, JobState};
use crate::pipeline::signal_name;
use crate::pipeline::step::{Retry, RetryRule};

/// `*` in an automatic rule stands for the exit statuses of failed processes; −1 must be named.
const ANY_FAILURE: RangeInclusive<i64> = 1..=255;

/// The index of the automatic rule that grants this failed job another try.
pub(crate) fn granting_rule(job: &Job, retry: &Retry) -> Option<usize> {
    if !matches!(job.state, JobState::Finished | JobState::TimedOut) || job.exit_status == Some(0) {
        return None;
    }
    let index = retry.automatic.iter().position(|rule| rule_matches(rule, job))?;
    let used = job.rule_uses.get(index).copied().unwrap_or_default();
    (used < retry.automatic[index].limit).then_some(index)
}

fn rule_matches(rule: &RetryRule, job: &Job) -> bool {
    let exit = rule.exit_status.as_ref().is_none_or(|list| {
        job.exit_status.is_some_and(|status| list.iter().any(|one| one.matches(status, &ANY_FAILURE)))
    });
    let reported = job.signal.as_deref().map(signal_name);
    let signal = rule.signal.as_ref().is_none_or(|wanted| wanted.matches(reported.as_deref()));
    let reason = rule
        .signal_reason
        .as_ref()
        .is_none_or(|list| list.iter().any(|wanted| wanted.matches(job.signal_reason.as_deref())));
    exit && signal && reason
}

/// The job that takes the place of `old`, ready to be taken.
pub(crate) fn successor(old: &Job, id: Uuid, rule: Option<usize>, now: Timestamp) -> Job {
    let mut rule_uses = old.rule_uses.clone();
    if let Some(index) = rule {
        rule_uses.resize(rule_uses.len().max(index + 1), 0);
        rule_uses[index] += 1;
    }
    let mut next = Job {
        priority: old.priority,
        queue: old.queue.clone(),
        rules: old.rules.clone(),
        parallel: old.parallel,
        matrix: old.matrix.clone(),
        concurrency: old.concurrency.clone(),
        timeout_in_minutes: old.timeout_in_minutes,
        retry_count: old.retry_count + 1,
        rule_uses,
        ..Job::new(id, old.step, old.kind, now)
    };
    next.become_runnable(now);
    next
}

#[cfg(test)]
mod tests;
