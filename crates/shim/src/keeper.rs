//! The keeper: sees to it that the end of a container whose bootstrap is killed is not told before its artifacts are uploaded.
//!
//! A bootstrap that the kernel kills, for the container's memory, runs no `pre-exit` hook. Its parent, `kubernetes-bootstrap`, would tell the agent at
//! once, and Buildkite takes no artifacts of a job that is over. But first it reads the bootstrap's output to its end, for which it waits
//! 10 s. So the keeper, a small process beside the bootstrap, holds that output open, and if 10 s are not enough, it stops the
//! parent for some time more. The agent misses a container from which it has not heard for 30 s.

use crate::layout::{Layout, Name, Spot};
use crate::marks;
use crate::sys::{self, Fd, Pid, Standard};
use crate::text::Text;
use crate::wish::Wish;

/// How long the output is held before the parent is stopped, in nanoseconds.
const HOLD: u64 = 7_000_000_000;
/// How long both take at most, in nanoseconds.
const LONGEST: u64 = 27_000_000_000;

/// Leaves a keeper behind for the bootstrap that has started this process. Without one, as on a kernel before 5.3, what was written last
/// may be missing when the bootstrap is killed; nothing else.
pub fn start(layout: Layout<'_>, name: Name<'_>) {
    let bootstrap = sys::parent();
    let Ok((told, ready)) = sys::pipe() else { return };
    let child = || {
        if let Ok(keeper) = Keeper::prepare(bootstrap) {
            drop(ready);
            keeper.keep(layout, name);
        }
        0
    };
    if sys::fork(child).is_ok() {
        // The pipe ends when the child has let go of this process's terminal, whose end is waited for.
        let _ = sys::read(&told, &mut [0]);
    }
}

struct Keeper {
    /// Can be read when the bootstrap has ended.
    end: Fd,
    /// Whoever waits for the end of its output.
    reader: Option<Pid>,
}

impl Keeper {
    fn prepare(bootstrap: Pid) -> sys::Result<Self> {
        sys::leave_session()?;
        let end = sys::watch_process(bootstrap)?;
        let output = Text::<64>::new(format_args!("/proc/{bootstrap}/fd/1"));
        let output = sys::open(output.as_c_str(), libc::O_WRONLY | libc::O_NOCTTY, 0)?;
        for stream in [Standard::Input, Standard::Output, Standard::Error] {
            sys::replace(stream, &output)?;
        }
        Ok(Self { end, reader: parent_of(bootstrap) })
    }

    fn keep(&self, layout: Layout<'_>, name: Name<'_>) {
        let _ = sys::wait_readable([Some(&self.end)], None);
        if marks::exists(layout.at(Spot::Fulfilled(name))) {
            return;
        }
        let mut stopped = false;
        Wish::found_or_new(layout, name).fulfilled(|waited| {
            if waited > HOLD && !stopped {
                stopped = true;
                self.signal_reader(libc::SIGSTOP);
            }
            waited < LONGEST
        });
        if stopped {
            self.signal_reader(libc::SIGCONT);
        }
    }

    fn signal_reader(&self, signal: i32) {
        if let Some(reader) = self.reader {
            let _ = sys::kill(reader, signal);
        }
    }
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let path = Text::<64>::new(format_args!("/proc/{pid}/stat"));
    let stat = sys::open(path.as_c_str(), libc::O_RDONLY, 0).ok()?;
    let mut buffer = [0; 256];
    parse(sys::read(&stat, &mut buffer).ok()?)
}

/// The parent in the text of `/proc/PID/stat`: the second field after the program's name, which may hold anything.
fn parse(stat: &[u8]) -> Option<Pid> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = core::str::from_utf8(&stat[name_ends + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().map(Pid)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::sys::Pid;

    #[test]
    fn parents() {
        for (stat, parent) in [
            ("31 (buildkite-agent) S 30 31 31 34816 31 4194304", Some(30)),
            ("31 (a) S 1) R 30 31", Some(30)),
            ("31 (a", None),
            ("31 (a) S", None),
        ] {
            assert_eq!(parse(stat.as_bytes()), parent.map(Pid), "{stat}");
        }
    }
}
