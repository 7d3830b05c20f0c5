//! Running programs, and knowing a process again later.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::workspace;

/// Cargo in the workspace, as if typed in a shell. What `cargo run` tells the program that it runs about the package is
/// taken out of the environment: build scripts look at it, and half of the dependencies would be built again each time
/// that somebody types `cargo test` after a `cargo xtask`.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace()).args(args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a program to its end and returns what it printed; a failure tells what it said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {}", line(command)))?;
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        line(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no text", line(command)))
}

/// Text as the standard input of a program.
pub(crate) fn input(text: &str) -> Result<File> {
    let mut file = tempfile::tempfile().context("creating a temporary file")?;
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).context("writing a temporary file")?;
    Ok(file)
}

/// The command as one would type it, without its environment.
pub(crate) fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A process that can be told from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The number, as the machine counts.
    pub(crate) pid: u32,
    /// Clock ticks from boot to the start of the process.
    pub(crate) started: u64,
    /// The boot that the ticks count from.
    boot: String,
}

impl Identity {
    /// The live process with this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let started = start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        Some(Self { pid, started, boot })
    }

    /// Whether this very process still runs.
    pub(crate) fn alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Kills this very process and waits until it is gone; a process that is gone already is fine.
    pub(crate) fn kill(&self) -> Result<()> {
        let number = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let number = number.with_context(|| format!("{} is no process number", self.pid))?;
        let handle = match pidfd_open(number, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(()),
            handle => handle.with_context(|| format!("opening process {}", self.pid))?,
        };
        // The handle is fixed to a process now, so this comparison cannot go stale.
        if !self.alive() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("killing process {}", self.pid)),
        }
        let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)) {
            Ok(0) => bail!("process {} did not end within 30 s of being killed", self.pid),
            Ok(_) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("waiting for process {} to end", self.pid)),
        }
    }

    /// How long the process has been running.
    pub(crate) fn age(&self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let started = Duration::from_millis(self.started * 1000 / rustix::param::clock_ticks_per_second());
        Some(Duration::try_from_secs_f64(uptime).ok()?.saturating_sub(started))
    }
}

/// The start time from `/proc/PID/stat`; none for a process that has ended but was not waited for.
fn start_time(stat: &str) -> Option<u64> {
    // The second field is the program's name, which may hold blanks and brackets of its own.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The last lines of a log, or a word about why there are none.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    match fs::read(log) {
        Ok(bytes) if bytes.is_empty() => format!("{} is empty", log.display()),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<_> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("cannot read {}: {error}", log.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_the_twenty_second_field_whatever_the_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 200";
        assert_eq!(start_time(stat), Some(987_654));
    }

    #[test]
    fn a_zombie_does_not_live() {
        assert_eq!(start_time("42 (sh) Z 1 42 42 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 987654 0 0"), None);
    }

    #[test]
    fn a_recycled_number_is_another_process() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.alive());
        let before = Identity { started: me.started - 1, ..me.clone() };
        let other_boot = Identity { boot: "another".to_owned(), ..me };
        for stranger in [before, other_boot] {
            assert!(!stranger.alive());
            // Killing it must not kill this test.
            stranger.kill().unwrap();
        }
    }

    #[test]
    fn kill_ends_the_process_that_was_recorded() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        identity.kill().unwrap();
        assert!(!identity.alive());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn failures_show_the_command_and_what_it_said() {
        let error = run(Command::new("sh").args(["-c", "echo oh no >&2; exit 3"])).unwrap_err().to_string();
        assert_eq!(error, "sh -c echo oh no >&2; exit 3 ended with exit status: 3: oh no");
    }

    #[test]
    fn tail_keeps_the_last_lines() {
        let log = tempfile::NamedTempFile::new().unwrap();
        fs::write(log.path(), "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(log.path(), 2), "two\nthree");
        assert_eq!(tail(log.path(), 9), "one\ntwo\nthree");
    }
}
