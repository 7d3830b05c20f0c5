//! Waiting for a program, but not forever.

use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process;

/// Runs a program whose output is for the reader. None if it had not ended within the limit and was killed.
pub(super) fn status(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let mut child = command.spawn().with_context(|| format!("starting {}", process::line(command)))?;
    let handle =
        pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context("opening a child process")?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).context("the limit is too long")?;
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                child.kill().and_then(|()| child.wait()).context("ending a child process")?;
                return Ok(None);
            }
            Ok(_) => return child.wait().map(Some).context("waiting for a child process"),
            // A signal that was for somebody else.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for a child process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_time_hands_on_its_status() {
        let status = status(Command::new("sh").args(["-c", "exit 3"]), Duration::from_mins(1)).unwrap();
        assert_eq!(status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let started = Instant::now();
        let status = status(Command::new("sleep").arg("60"), Duration::from_millis(10)).unwrap();
        assert_eq!(status, None);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
