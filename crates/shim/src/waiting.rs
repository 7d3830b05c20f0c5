//! Waiting for marks and for signals, with neither polling nor gaps.

use crate::child;
use crate::errno::Errno;
use crate::layout::Place;
use crate::sys::{self, Fd, SignalSet};

/// What the shim passes on to its command.
const FORWARDED: [i32; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// How often marks are looked at when the node has no inotify instance left, in milliseconds.
const WITHOUT_INOTIFY: u32 = 50;

/// The signals that come to the shim, in order, instead of acting on it.
pub struct Signals {
    queue: Fd,
    /// What was held back before, and is held back in the command.
    pub inherited: SignalSet,
}

impl Signals {
    /// Takes over the signals of this process.
    pub fn take() -> Result<Self, Errno> {
        let set = SignalSet::of(FORWARDED.into_iter().chain([libc::SIGCHLD]));
        let inherited = sys::hold_signals(set)?;
        // If it were ignored, as a parent may have left it, the kernel would not report the end of children.
        sys::default_action(libc::SIGCHLD)?;
        Ok(Self { queue: sys::signal_queue(set)?, inherited })
    }

    /// The next signal that has come, if any.
    fn pending(&self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        let filled = sys::read(&self.queue, &mut info).ok()?;
        // `ssi_signo` is the first field.
        filled.first_chunk().map(|number| i32::from_ne_bytes(*number))
    }

    /// Waits for the next signal, until there is something to read from one of `others`, or for so many milliseconds.
    pub fn next(&self, others: [Option<&Fd>; 2], timeout: Option<u32>) -> Option<i32> {
        if let Some(signal) = self.pending() {
            return Some(signal);
        }
        // On an error everything is looked at again; there is nothing better to do.
        let _ = sys::wait_readable([Some(&self.queue), others[0], others[1]], timeout);
        self.pending()
    }
}

/// A signal that ended the wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stopped(pub i32);

/// A watch on directories of marks.
///
/// A node has few inotify instances to give, so it is dropped when the waiting is over; but only once the command
/// runs, because the kernel takes some milliseconds to close one.
pub struct Watch(Option<Fd>);

impl Watch {
    /// Begins to watch, before the first look at the marks, so that one left in between is not missed.
    pub fn on(directories: &[Place<'_>]) -> Self {
        let begin = || {
            let inotify = sys::inotify()?;
            directories
                .iter()
                .try_for_each(|directory| sys::watch_names(&inotify, directory.path().as_c_str()))
                .map(|()| inotify)
        };
        Self(begin().ok())
    }

    /// Looks at marks until they allow something.
    ///
    /// # Errors
    /// The first signal that asks the shim to stop.
    pub fn until<T>(&self, signals: &Signals, look: impl FnMut() -> Option<T>) -> Result<T, Stopped> {
        self.wait(None, signals, look)
    }

    /// The same where more than marks allows something: looks every so many milliseconds, too.
    ///
    /// # Errors
    /// The first signal that asks the shim to stop.
    pub fn until_looking_every<T>(
        &self,
        interval: u32,
        signals: &Signals,
        look: impl FnMut() -> Option<T>,
    ) -> Result<T, Stopped> {
        self.wait(Some(interval), signals, look)
    }

    fn wait<T>(
        &self,
        interval: Option<u32>,
        signals: &Signals,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Stopped> {
        let timeout = if self.0.is_none() { Some(WITHOUT_INOTIFY) } else { interval };
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            let _ = sys::wait_readable([self.0.as_ref(), Some(&signals.queue)], timeout);
            while let Some(signal) = signals.pending() {
                match signal {
                    // Programs that were executed in the container from outside may leave orphans.
                    libc::SIGCHLD => child::reap_all(|_, _| ()),
                    libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT => {
                        return Err(Stopped(signal));
                    }
                    // The others do not ask for an end: a terminal has a new size, say.
                    _ => {}
                }
            }
            if let Some(inotify) = &self.0 {
                drain(inotify);
            }
        }
    }
}

/// What happened does not matter, as all marks are looked at again.
fn drain(inotify: &Fd) {
    let mut events = [0; 4096];
    while sys::read(inotify, &mut events).is_ok_and(|events| !events.is_empty()) {}
}
