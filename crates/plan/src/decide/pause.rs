//! How soon to look again for Buildkite's word on an end.

use jiff::{SignedDuration, Timestamp};

use super::{Case, MARGIN, ladder};

/// How long an answer takes. The first to a question wakes us, and so does any that is news.
const ANSWER: SignedDuration = SignedDuration::from_millis(750);

/// The shortest and the longest pause after that.
const PAUSES: (SignedDuration, SignedDuration) =
    (SignedDuration::from_millis(500), SignedDuration::from_secs(5));

/// The pause: until the word can be young enough, then ever longer, as Buildkite may not answer for a while. Without a
/// time of the end any answer will do, and that wakes us.
pub(super) fn after(case: &Case<'_>, ended: Option<Timestamp>) -> SignedDuration {
    if ended.is_none() {
        return PAUSES.1;
    }
    // A clock that is set may show any time as to come.
    let waited = ladder::elapsed(case, ended).max(SignedDuration::ZERO);
    let until_young = MARGIN + ANSWER - waited;
    if until_young.is_positive() { until_young } else { (waited - MARGIN).clamp(PAUSES.0, PAUSES.1) }
}
