//! The agent's container: delivers the agent, keeps the start fence, then runs the agent.

use crate::args::{Agent, Deliver};
use crate::child::{Command, Running};
use crate::container::{self, Part};
use crate::deaths::{self, Deaths};
use crate::decision::{Fence, fence, outcome};
use crate::delivery::{deliver, make_all};
use crate::errno::Errno;
use crate::failure::Failure;
use crate::home;
use crate::layout::{AGENT, Spot};
use crate::marks;
use crate::proof::Proof;
use crate::report;
use crate::sys::{self, Process};
use crate::waiting::{Signals, Stopped, Watch};

/// Runs the agent's container to its end.
pub fn run(agent: &Agent<'_>, process: &Process) -> u8 {
    let umask = sys::umask(0);
    container::live(&agent.pod, AGENT, Part::Agent, |signals| {
        prepare(&agent.delivery)?;
        let watch = Watch::on(&[Spot::AllStarted, Spot::AllEnded].map(|spot| agent.pod.layout.at(spot)));
        if agent.fenced {
            keep_fence(agent, &watch, signals)?;
        }
        let Some(position) = agent.command else {
            return wait_for_end(agent, &watch, signals);
        };
        let running = start(agent, process, Command::new(process, position, umask), signals)?;
        drop(watch);
        let mut deaths = Deaths::default();
        // All run, unless there is no fence: who dies from now on was seen alive.
        deaths.look(agent);
        running.finish_looking(Some(deaths::LOOK), signals, None, || deaths.look(agent))
    })
}

/// Starts the agent. Never inlined: what it needs of the stack is nothing that a waiting shim should hold.
#[inline(never)]
fn start(
    agent: &Agent<'_>,
    process: &Process,
    command: Command<'_>,
    signals: &Signals,
) -> Result<Running, Failure<'static>> {
    let home = home::instead(process, agent.pod.layout);
    let proof = Proof::of(process)?;
    command.at_home(home).with_proof(proof.as_ref()).start(signals, None)
}

/// Delivers the agent before the pod's containers start, and gives the exit status.
pub fn deliver_ahead(delivery: &Deliver<'_>) -> u8 {
    sys::umask(0);
    let made = marks::make_directories(delivery.pod.layout, &Spot::MARK_DIRECTORIES);
    match made.and_then(|()| prepare(delivery)) {
        Ok(()) => 0,
        Err(failure) => {
            report::abnormal(delivery.pod.termination_log, &failure);
            failure.status()
        }
    }
}

/// Does everything that the job's containers wait for, and at last leaves the mark that says so.
fn prepare<'a>(delivery: &Deliver<'a>) -> Result<(), Failure<'a>> {
    let layout = delivery.pod.layout;
    marks::make_directories(layout, &Spot::AGENT_DIRECTORIES)?;
    for directory in delivery.directories.iter() {
        make_all(directory)?;
    }
    // A socket that an earlier attempt left on the volume would let the job's containers go ahead of the agent.
    let socket = layout.at(Spot::SOCKET);
    match sys::unlink(socket.path().as_c_str()) {
        Ok(()) | Err(Errno(libc::ENOENT)) => {}
        Err(errno) => return Err(Failure::at(socket, "remove the old socket")(errno)),
    }
    deliver(layout, delivery.binary, delivery.linked)?;
    marks::leave(layout.at(Spot::Ready))
}

/// Waits until every container of the job runs: the agent must not acquire the job before.
fn keep_fence<'a>(agent: &Agent<'a>, watch: &Watch, signals: &Signals) -> Result<(), Failure<'a>> {
    let Agent { pod, jobs, .. } = agent;
    let look = || match fence(jobs.iter(), pod.standalone, |job| marks::look(pod.layout, job)) {
        Fence::Closed => None,
        Fence::Open => Some(Ok(())),
        Fence::Broken(job, status) => Some(Err(Failure::Container(job, status))),
    };
    watch.until(signals, look).unwrap_or_else(|Stopped(signal)| Err(Failure::Stopped(signal)))
}

/// Without an agent to run, waits for the end of the job's containers.
fn wait_for_end<'a>(agent: &Agent<'a>, watch: &Watch, signals: &Signals) -> Result<u8, Failure<'a>> {
    let layout = agent.pod.layout;
    let mut deaths = Deaths::default();
    let look = || {
        deaths.look(agent);
        outcome(agent.jobs.iter(), |job| marks::ended(layout, job))
    };
    watch
        .until_looking_every(deaths::LOOK, signals, look)
        .map_err(|Stopped(signal)| Failure::Interrupted(signal))
}
