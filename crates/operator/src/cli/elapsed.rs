//! How long ago, and how long, in few letters.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// How long ago something was, as kubectl has it: `45s`, `3m20s`, `17m`, `5h12m`, `3d`.
pub(super) fn since(time: Option<&Time>, now: Timestamp) -> String {
    time.map(|time| short(now.duration_since(time.0))).unwrap_or_default()
}

/// A duration in at most two units, the finer the shorter it is.
pub(super) fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |whole: i64, unit: &str, rest: i64, finer: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{finer}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..86_400 => two(hours, "h", minutes % 60, "m"),
        86_400..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(-3, "0s")]
    #[case(119, "119s")]
    #[case(200, "3m20s")]
    #[case(240, "4m")]
    #[case(1020, "17m")]
    #[case(18_720, "5h12m")]
    #[case(90_000, "1d1h")]
    #[case(864_000, "10d")]
    fn durations_are_short(#[case] seconds: i64, #[case] expected: &str) {
        assert_eq!(short(SignedDuration::from_secs(seconds)), expected);
    }
}
