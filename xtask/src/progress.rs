//! What a person sees while something takes long.
//!
//! A terminal gets one line that counts the seconds. Elsewhere, as in CI, short steps stay quiet and long ones
//! say every twenty seconds that they are alive. Both write to standard error: standard output is for results.
#![allow(clippy::print_stderr, reason = "this module is where progress is written")]

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How often a log that is not a terminal hears of a running step.
const LOG_PERIOD: Duration = Duration::from_secs(20);
/// Steps shorter than this are not worth a line in such a log.
const QUIET_BELOW: Duration = Duration::from_secs(3);

/// Says one thing.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Does `work`, shows that it is going on, and says how long it took.
pub(crate) fn step<T>(label: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let terminal = std::io::stderr().is_terminal();
    let started = Instant::now();
    let (finished, waiter) = channel::<()>();
    let result = thread::scope(|scope| {
        scope.spawn(move || show(label, terminal, started, &waiter));
        let result = work();
        drop(finished);
        result
    });
    let elapsed = started.elapsed();
    let outcome = if result.is_ok() { "" } else { " failed after" };
    if terminal {
        eprintln!("\r\x1b[K{label} …{outcome} {}", duration(elapsed));
    } else if elapsed >= QUIET_BELOW || result.is_err() {
        eprintln!("{label} …{outcome} {}", duration(elapsed));
    }
    result
}

/// Counts until the other end of the channel is dropped.
fn show(label: &str, terminal: bool, started: Instant, finished: &Receiver<()>) {
    let period = if terminal { Duration::from_secs(1) } else { LOG_PERIOD };
    if terminal {
        eprint!("{label} …");
    }
    while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(period) {
        let elapsed = duration(started.elapsed());
        if terminal {
            eprint!("\r\x1b[K{label} … {elapsed}");
            // A terminal that went away is no reason to stop the work.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{label} … {elapsed}");
        }
    }
}

/// A duration as people write it: `0.8s`, `12s`, `1m20s`, `3h05m`, `2d4h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let cases =
            [(800, "0.8s"), (12_000, "12s"), (80_000, "1m20s"), (11_100_000, "3h05m"), (187_200_000, "2d4h")];
        for (milliseconds, expected) in cases {
            assert_eq!(duration(Duration::from_millis(milliseconds)), expected);
        }
    }

    #[test]
    fn a_step_hands_on_the_result() {
        assert_eq!(step("adding", || Ok(1 + 1)).unwrap(), 2);
        let error = step("failing", || anyhow::bail!("no luck") as Result<()>).unwrap_err();
        assert_eq!(error.to_string(), "no luck");
    }
}
