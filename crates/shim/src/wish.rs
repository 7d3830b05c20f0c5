//! A container's wish that its artifacts be uploaded before its end is told.

use crate::errno::Errno;
use crate::failure::Failure;
use crate::layout::{Layout, Name, Spot};
use crate::marks;
use crate::report;
use crate::sys;
use crate::waiting::{Signals, Watch};

/// How long nobody may have been about to upload, in nanoseconds.
const PATIENCE: u64 = 15_000_000_000;
/// How often to look whether somebody is, in milliseconds.
const LOOK: u32 = 1000;

/// The wish of a container.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    layout: Layout<'a>,
    name: Name<'a>,
    /// Since when somebody may be about to fulfil it, in nanoseconds since 1970.
    since: u64,
}

impl<'a> Wish<'a> {
    /// A wish that is made now.
    pub fn new(layout: Layout<'a>, name: Name<'a>) -> Self {
        Self { layout, name, since: sys::now() }
    }

    /// The wish that was made before, if there is one, else one that is made now.
    pub fn found_or_new(layout: Layout<'a>, name: Name<'a>) -> Self {
        let made = sys::changed(layout.at(Spot::Wish(name)).path().as_c_str());
        Self { layout, name, since: made.unwrap_or_else(|_| sys::now()) }
    }

    /// Makes the wish and waits until it is fulfilled, nobody is about to fulfil it, or `go_on` says otherwise, which hears how long it
    /// has waited, in nanoseconds. If it is not fulfilled, people are told.
    pub fn fulfilled(self, go_on: impl FnMut(u64) -> bool) {
        if let Err(reason) = self.make().and_then(|signals| self.wait(&signals, go_on)) {
            report::say(format_args!(
                "files that were written last may be missing among the artifacts: {reason}"
            ));
        }
    }

    fn make(self) -> Result<Signals, Reason<'a>> {
        sys::umask(0);
        let signals = Signals::take().map_err(Reason::Signals)?;
        marks::make_directories(self.layout, &[Spot::AllWishes, Spot::AllFulfilled])
            .and_then(|()| marks::leave(self.layout.at(Spot::Wish(self.name))))
            .map_err(Reason::Mark)?;
        Ok(signals)
    }

    fn wait(self, signals: &Signals, mut go_on: impl FnMut(u64) -> bool) -> Result<(), Reason<'a>> {
        let Self { layout, name, since } = self;
        let begin = sys::now();
        let watch = Watch::on(&[layout.at(Spot::AllFulfilled)]);
        let look = || {
            if marks::exists(layout.at(Spot::Fulfilled(name))) {
                return Some(Ok(()));
            }
            let alive = sys::changed(layout.at(Spot::Alive).path().as_c_str()).unwrap_or_default();
            let now = sys::now();
            if now.saturating_sub(since.max(alive)) > PATIENCE {
                return Some(Err(Reason::Silence));
            }
            (!go_on(now.saturating_sub(begin))).then_some(Err(Reason::Late))
        };
        watch.until_looking_every(LOOK, signals, look).unwrap_or(Err(Reason::Stopped))
    }
}

/// Why artifacts may be missing.
enum Reason<'a> {
    Signals(Errno),
    Mark(Failure<'a>),
    Silence,
    Late,
    Stopped,
}

impl core::fmt::Display for Reason<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Signals(errno) => write!(out, "cannot take over the process's signals: {errno}"),
            Self::Mark(failure) => failure.fmt(out),
            Self::Silence => {
                write!(out, "the artifact exporter has given no sign for {} s", PATIENCE / 1_000_000_000)
            }
            Self::Late => out.write_str("the agent would not have waited any longer"),
            Self::Stopped => out.write_str("the job was stopped before they were uploaded"),
        }
    }
}
