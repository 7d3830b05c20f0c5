//! Words for people.

use crate::failure::Failure;
use crate::sys::{self, Standard};
use crate::text::Text;
use core::ffi::CStr;
use core::fmt::Arguments;

/// Writes one line to standard error. If nobody listens there is nobody to tell, so errors are ignored.
pub fn say(message: Arguments<'_>) {
    let line = Text::<2048>::new(format_args!("buildkite-shim: {message}"));
    let _ = sys::print(Standard::Error, line.as_bytes());
    let _ = sys::print(Standard::Error, b"\n");
}

/// Tells the reason of an abnormal end to standard error and to the kubelet, which shows it in the pod's status.
pub fn abnormal(termination_log: &CStr, failure: &Failure<'_>) {
    say(format_args!("{failure}"));
    // The kubelet makes the file; where it has not, nobody reads it. Appending keeps what the command wrote.
    if let Ok(log) = sys::open(termination_log, libc::O_WRONLY | libc::O_APPEND, 0) {
        let _ = sys::write(&log, Text::<2048>::new(format_args!("{failure}\n")).as_bytes());
    }
}
