//! What the lives of all containers have in common: signals at the beginning, the end mark at the end.

use crate::args::Pod;
use crate::decision::ends_job;
use crate::failure::{Failure, KILLED};
use crate::layout::{Name, Spot};
use crate::marks::{self, EndMark};
use crate::report;
use crate::waiting::Signals;

/// What a container is to the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The agent is in it.
    Agent,
    /// One of those that do the work.
    Job {
        /// None comes after it.
        last: bool,
    },
}

/// Lives as the container `name` and gives its exit status. However `body` ends, the others learn of it by the end
/// mark, and people by the reason.
pub fn live<'a>(
    pod: &Pod<'a>,
    name: Name<'a>,
    part: Part,
    body: impl FnOnce(&Signals) -> Result<u8, Failure<'a>>,
) -> u8 {
    let told = |failure: Failure<'_>| {
        report::abnormal(pod.termination_log, &failure);
        failure.status()
    };
    let begun = Signals::take()
        .map_err(Failure::Signals)
        .and_then(|signals| marks::make_directories(pod.layout, &Spot::MARK_DIRECTORIES).map(|()| signals))
        .and_then(|signals| Ok((signals, Ends::prepare(pod, name, part)?)));
    let (signals, ends) = match begun {
        Ok(begun) => begun,
        Err(failure) => return told(failure),
    };
    let status = body(&signals).unwrap_or_else(told);
    if let Err(failure) = ends.leave(pod, status) {
        report::abnormal(pod.termination_log, &failure);
    }
    status
}

/// Leaves the marks of one of the job's containers that was killed with its shim.
pub fn bury<'a>(pod: &Pod<'a>, name: Name<'a>) -> Result<(), Failure<'a>> {
    Ends::prepare(pod, name, Part::Job { last: false })?.leave(pod, KILLED)
}

/// The marks that tell of an end.
struct Ends<'a> {
    container: EndMark<'a>,
    job: Option<(bool, EndMark<'a>)>,
}

impl<'a> Ends<'a> {
    fn prepare(pod: &Pod<'a>, name: Name<'a>, part: Part) -> Result<Self, Failure<'a>> {
        let job = match part {
            Part::Agent => None,
            Part::Job { last } => Some((last, EndMark::of_job(pod.layout, name)?)),
        };
        Ok(Self { container: EndMark::of_container(pod.layout, name)?, job })
    }

    /// The job's own mark is that of its first failure: those after it fail because of it.
    fn leave(self, pod: &Pod<'a>, status: u8) -> Result<(), Failure<'a>> {
        self.container.leave(status)?;
        match self.job {
            None => Ok(()),
            Some((last, mark)) => {
                if ends_job(last, status) && !marks::exists(pod.layout.at(Spot::JobEnded)) {
                    mark.leave(status)
                } else {
                    mark.discard();
                    Ok(())
                }
            }
        }
    }
}
