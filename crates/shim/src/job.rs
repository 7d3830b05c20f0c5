//! One of the job's containers: says that it has started, waits for its turn, then runs its command.

use crate::args::Job;
use crate::child::Command;
use crate::container::{self, Part};
use crate::decision::{Seen, Turn, turn};
use crate::failure::Failure;
use crate::home;
use crate::layout::{AGENT, Spot};
use crate::marks;
use crate::output::Output;
use crate::private;
use crate::sys::{self, Process};
use crate::waiting::{Signals, Stopped, Watch};

/// Runs the container to its end.
pub fn run(job: &Job<'_>, process: &Process) -> u8 {
    let umask = sys::umask(0);
    container::live(&job.pod, job.name, Part::Job { last: job.last }, |signals| {
        marks::leave(job.pod.layout.at(Spot::Started(job.name)))?;
        let watch =
            Watch::on(&[Spot::Workspace, Spot::Run, Spot::AllEnded].map(|spot| job.pod.layout.at(spot)));
        private::copy_all(job.private)?;
        wait_for_turn(job, &watch, signals)?;
        let umask = if job.shared { 0 } else { umask };
        let command = Command::new(process, job.command, umask)
            .through(job.entrypoint)
            .at_home(home::instead(process, job.pod.layout));
        let (output, outlets) = Output::of(job.pod.layout, job.name, job.keep).unzip();
        let running = command.start(signals, outlets)?;
        drop(watch);
        running.finish(signals, output)
    })
}

fn wait_for_turn<'a>(job: &Job<'a>, watch: &Watch, signals: &Signals) -> Result<(), Failure<'a>> {
    let look = || match (turn(see(job)), job.after) {
        (Turn::Wait, _) => None,
        (Turn::BeforeFailed(status), Some(before)) => Some(Err(Failure::Container(before, status))),
        (Turn::Run | Turn::BeforeFailed(_), _) => Some(Ok(())),
        (Turn::AgentEnded, _) => Some(Err(Failure::AgentEnded)),
    };
    watch.until(signals, look).unwrap_or_else(|Stopped(signal)| Err(Failure::Stopped(signal)))
}

fn see(job: &Job<'_>) -> Seen {
    let layout = job.pod.layout;
    Seen {
        ready: marks::exists(layout.at(Spot::Ready)),
        socket: job.pod.standalone || marks::exists(layout.at(Spot::SOCKET)),
        before: job.after.map_or(Some(0), |before| marks::ended(layout, before)),
        agent_ended: marks::ended(layout, AGENT).is_some(),
    }
}
