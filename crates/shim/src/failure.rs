//! Every way to end other than by the command's own status.

use crate::errno::Errno;
use crate::layout::{Name, Place};
use crate::text::Text;
use core::ffi::CStr;
use core::fmt;

/// Exit status when the shim itself could not do its work, such as on a full disk.
pub const OWN_FAULT: u8 = 125;

/// Exit status of what the kernel has killed.
pub const KILLED: u8 = 137;

/// An abnormal end: what people are told, and the exit status that stands for it.
#[derive(Debug)]
pub enum Failure<'a> {
    /// A signal came before the command was started.
    Stopped(i32),
    /// A signal came while the agent's container of a standalone job waited for the others to end.
    Interrupted(i32),
    /// Another container has ended with this status, so the command was not started.
    Container(Name<'a>, u8),
    /// The agent's container has ended before this container's turn.
    AgentEnded,
    /// The command could not be executed.
    Execute(&'a CStr, Errno),
    /// The command was ended by this signal.
    Killed(&'a CStr, i32),
    /// There is no agent binary to deliver.
    AgentBinary(&'a CStr, Errno),
    /// The shim could not take over the process's signals.
    Signals(Errno),
    /// A directory could not be made.
    Directory(&'a str, Errno),
    /// A file could not be copied for this user alone.
    Private(&'a str, &'a str, Errno),
    /// The file has no proof for the agent's registration.
    Proof(&'a CStr, Flaw),
    /// The shim tried something in the workspace and failed.
    Workspace(&'static str, Place<'a>, Errno),
}

impl<'a> Failure<'a> {
    /// For `map_err`: what was tried, and where.
    pub fn at(place: Place<'a>, attempt: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Workspace(attempt, place, errno)
    }

    /// The exit status, and what the end mark holds.
    pub fn status(&self) -> u8 {
        match self {
            Self::Stopped(signal) | Self::Interrupted(signal) | Self::Killed(_, signal) => by_signal(*signal),
            // A container that ended well, but before the agent had started, is a failure too.
            Self::Container(_, status) => (*status).max(1),
            Self::AgentEnded => 1,
            Self::Execute(_, Errno(libc::ENOENT | libc::ENOTDIR)) => 127,
            Self::Execute(..) => 126,
            Self::AgentBinary(..)
            | Self::Signals(_)
            | Self::Directory(..)
            | Self::Private(..)
            | Self::Proof(..)
            | Self::Workspace(..) => OWN_FAULT,
        }
    }
}

/// The exit status of a process that a signal ended, as shells have it.
fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
}

/// How a process ended, from the number that `wait` gives: its exit status, or the signal that ended it.
pub fn ending(wait_status: i32) -> Result<u8, i32> {
    let signal = wait_status & 0x7f;
    if signal == 0 { Ok(wait_status.to_le_bytes()[1]) } else { Err(signal) }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(_) => write!(out, "not started: stopped by signal"),
            Self::Interrupted(_) => write!(out, "stopped by signal"),
            Self::Container(name, status) => write!(out, "not started: {name} ended with status {status}"),
            Self::AgentEnded => write!(out, "not started: the agent ended first"),
            Self::Execute(file, errno) => {
                write!(out, "cannot execute {}: {errno}", Shown(file))?;
                // The kernel says the same for a file that is there and names an interpreter that is not.
                if *errno == Errno(libc::ENOENT) {
                    out.write_str(", or its interpreter is missing")
                } else {
                    Ok(())
                }
            }
            Self::Killed(file, signal) => write!(out, "{} was ended by signal {signal}", Shown(file)),
            Self::AgentBinary(file, errno) => {
                write!(out, "cannot open the agent binary {}: {errno}", Shown(file))
            }
            Self::Signals(errno) => write!(out, "cannot take over the process's signals: {errno}"),
            Self::Directory(path, errno) => write!(out, "cannot make the directory {path}: {errno}"),
            Self::Private(from, to, errno) => write!(out, "cannot copy {from} to {to}: {errno}"),
            Self::Proof(file, flaw) => {
                write!(out, "cannot take the proof for the agent's registration from {}: {flaw}", Shown(file))
            }
            Self::Workspace(attempt, place, errno) => write!(out, "cannot {attempt} {place}: {errno}"),
        }
    }
}

/// Why a file has no proof.
#[derive(Debug, PartialEq)]
pub enum Flaw {
    /// It cannot be read.
    Read(Errno),
    /// What is in it, or where it belongs, is not what it has to be.
    Content(&'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(errno) => errno.fmt(out),
            Self::Content(words) => out.write_str(words),
        }
    }
}

/// Bytes of the command line, or of the environment, for people.
struct Shown<'a>(&'a CStr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid());
        Text::<256>::new(format_args!("{text}")).fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Flaw, ending};
    use crate::errno::Errno;
    use crate::layout::{Layout, Name, Spot};
    use std::string::ToString;

    #[test]
    fn wait_statuses() {
        assert_eq!(ending(0), Ok(0));
        assert_eq!(ending(3 << 8), Ok(3));
        assert_eq!(ending(255 << 8), Ok(255));
        assert_eq!(ending(9), Err(9));
        assert_eq!(ending(0x0b | 0x80), Err(11), "with a core dump");
    }

    #[test]
    fn statuses_and_words() {
        let name = Name::new("checkout").unwrap();
        let place = Layout::new("/w", name).at(Spot::SOCKET);
        for (failure, status, words) in [
            (Failure::Stopped(15), 143, "not started: stopped by signal"),
            (Failure::Stopped(2), 130, "not started: stopped by signal"),
            (Failure::Interrupted(15), 143, "stopped by signal"),
            (Failure::Container(name, 7), 7, "not started: checkout ended with status 7"),
            (Failure::Container(name, 0), 1, "not started: checkout ended with status 0"),
            (Failure::AgentEnded, 1, "not started: the agent ended first"),
            (
                Failure::Execute(c"sh", Errno(libc::ENOENT)),
                127,
                "cannot execute sh: no such file or directory (errno 2), or its interpreter is missing",
            ),
            (
                Failure::Execute(c"/a/b", Errno(libc::ENOTDIR)),
                127,
                "cannot execute /a/b: not a directory (errno 20)",
            ),
            (
                Failure::Execute(c"/a", Errno(libc::EACCES)),
                126,
                "cannot execute /a: permission denied (errno 13)",
            ),
            (Failure::Killed(c"/a", 9), 137, "/a was ended by signal 9"),
            (
                Failure::Proof(c"/p/token", Flaw::Read(Errno(libc::EACCES))),
                125,
                "cannot take the proof for the agent's registration from /p/token: permission denied (errno 13)",
            ),
            (
                Failure::Proof(c"/p/token", Flaw::Content("it is empty")),
                125,
                "cannot take the proof for the agent's registration from /p/token: it is empty",
            ),
            (
                Failure::Workspace("remove", place, Errno(libc::EROFS)),
                125,
                "cannot remove /w/buildkite.sock: read-only file system (errno 30)",
            ),
        ] {
            assert_eq!((failure.status(), failure.to_string().as_str()), (status, words));
        }
    }
}
