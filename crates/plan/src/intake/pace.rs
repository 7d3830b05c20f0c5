//! How often to ask a queue what waits in it.

use std::time::Duration;

/// Between two listings while jobs come in.
pub const BUSY: Duration = Duration::from_millis(200);

/// Between two listings while nothing happens.
pub const IDLE: Duration = Duration::from_secs(1);

/// How long after the last job jobs are said to come in.
const LULL: Duration = Duration::from_secs(10);

/// What each page of a listing takes of the service's limit of ten a second, with room to spare.
const PAGE: Duration = Duration::from_millis(125);

/// The first and the longest pause after failures. Buildkite takes a queue for abandoned after 30 s of silence, and after an outage
/// work should go on soon.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// From the beginning of one listing, of so many pages, to the next, if nothing was to be had for so long.
pub fn interval(quiet: Duration, pages: u32) -> Duration {
    let beyond = quiet.saturating_sub(LULL);
    BUSY.saturating_add(beyond / 10).min(IDLE).max(PAGE * pages)
}

/// The pause after so many failures in a row, the last of which may have said how long to wait. `jitter`, between 0 and 1, keeps
/// operators that failed together from coming back together.
pub fn after_failures(failures: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let pause = doubled.min(LONGEST_PAUSE);
    let spread = pause.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
    spread.max(asked.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::work_flows(0, 1, 200)]
    #[case::between_two_jobs(9_000, 1, 200)]
    #[case::slowing_down(14_000, 1, 600)]
    #[case::idle(3_600_000, 1, 1_000)]
    #[case::two_pages_at_a_time(0, 2, 250)]
    #[case::many_pages(0, 20, 2_500)]
    fn listings_follow_the_work(#[case] quiet: u64, #[case] pages: u32, #[case] expected: u64) {
        assert_eq!(interval(Duration::from_millis(quiet), pages), Duration::from_millis(expected));
    }

    #[rstest]
    #[case::at_first(1, None, 250, 500)]
    #[case::then_longer(3, None, 1_000, 2_000)]
    #[case::never_long(1_000, None, 5_000, 10_000)]
    #[case::as_long_as_asked(1, Some(60), 60_000, 60_000)]
    #[case::no_sooner_for_being_asked(1_000, Some(1), 5_000, 10_000)]
    fn pauses_grow_and_end(
        #[case] failures: u32,
        #[case] asked: Option<u64>,
        #[case] shortest: u64,
        #[case] longest: u64,
    ) {
        let pause = |jitter| after_failures(failures, asked.map(Duration::from_secs), jitter);
        assert_eq!(pause(0.0), Duration::from_millis(shortest));
        assert_eq!(pause(1.0), Duration::from_millis(longest));
    }
}
