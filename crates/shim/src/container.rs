//! What the lives of all containers have in common: signals at the beginning, the end mark at the end.

use crate::args::Pod;
use crate::failure::Failure;
use crate::layout::{Name, Spot};
use crate::marks::{self, EndMark};
use crate::report;
use crate::waiting::Signals;

/// Lives as the container `name` and gives its exit status. However `body` ends, the others learn of it by the end
/// mark, and people by the reason.
pub fn live<'a>(pod: &Pod<'a>, name: Name<'a>, body: impl FnOnce(&Signals) -> Result<u8, Failure<'a>>) -> u8 {
    let told = |failure: Failure<'_>| {
        report::abnormal(pod.termination_log, &failure);
        failure.status()
    };
    let begun = Signals::take()
        .map_err(Failure::Signals)
        .and_then(|signals| marks::make_directories(pod.layout, &Spot::MARK_DIRECTORIES).map(|()| signals))
        .and_then(|signals| EndMark::prepare(pod.layout, name).map(|mark| (signals, mark)));
    let (signals, mark) = match begun {
        Ok(begun) => begun,
        Err(failure) => return told(failure),
    };
    let status = body(&signals).unwrap_or_else(told);
    if let Err(failure) = mark.leave(status) {
        report::abnormal(pod.termination_log, &failure);
    }
    status
}
