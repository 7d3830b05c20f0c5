//! What a job waits for, on its timeline in Buildkite: once per change that lasts, and not too often.

use bk_api::BuildJobStatus;
use jiff::{SignedDuration, Timestamp};

use super::{Action, Case, Decision, ladder, not_at_once};

/// How long a job must have waited before its author hears of it.
const LASTS: SignedDuration = SignedDuration::from_secs(10);

/// The shortest time between two notices about one job.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Adds a notice of what the job has waited for since then, if it is due; else has a look taken when it is.
pub(super) fn add(case: &Case<'_>, decision: &mut Decision, reason: &str, since: Option<Timestamp>) {
    let explained = case.seen.explained.as_ref();
    if case.is_standalone() || explained.is_some_and(|explained| subject(&explained.text) == subject(reason))
    {
        return;
    }
    let pause = explained.map(|explained| INTERVAL - ladder::elapsed(case, Some(explained.at)));
    let left = (LASTS - ladder::elapsed(case, since)).max(pause.unwrap_or_default());
    if left.is_positive() {
        let left = Some(not_at_once(left));
        decision.look_again = decision.look_again.min(left).or(left);
    } else {
        decision.actions.push(Action::Explain(reason.to_owned()));
    }
}

/// Whether this is another reason to wait than the one on record.
pub(super) fn is_news(reason: Option<&str>, recorded: &BuildJobStatus) -> bool {
    reason.map(subject) != recorded.waiting_for.as_deref().map(subject)
}

/// What a reason is about. The kubelet puts the same failure in two ways by turns, as an attempt and as the pause
/// after it, and scheduler and quotas count anew each time: that is no news.
pub fn subject(reason: &str) -> String {
    let about = reason.split(" cannot be ").next().unwrap_or(reason);
    about.chars().filter(|c| !c.is_ascii_digit()).collect()
}
