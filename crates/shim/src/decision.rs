//! What the marks allow. Pure: the marks are read by the caller.

use crate::layout::Name;

/// Whether the agent may acquire the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fence<'a> {
    /// Some container has not started yet.
    Closed,
    /// All run.
    Open,
    /// This container has ended already, so the job cannot succeed.
    Broken(Name<'a>, u8),
}

/// What is known of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Container {
    /// It has left its start mark.
    pub started: bool,
    /// The status in its end mark.
    pub ended: Option<u8>,
}

/// The start fence. When `standalone` there is no agent to wait for, so containers may well have ended.
pub fn fence<'a>(
    jobs: impl Iterator<Item = Name<'a>>,
    standalone: bool,
    look: impl Fn(Name<'a>) -> Container,
) -> Fence<'a> {
    let mut fence = Fence::Open;
    for job in jobs {
        match look(job) {
            Container { ended: Some(status), .. } if !standalone => return Fence::Broken(job, status),
            Container { started: false, .. } => fence = Fence::Closed,
            Container { .. } => {}
        }
    }
    fence
}

/// The status of a standalone job once all its containers have ended: the first that is not 0.
pub fn outcome<'a>(
    jobs: impl Iterator<Item = Name<'a>>,
    ended: impl Fn(Name<'a>) -> Option<u8>,
) -> Option<u8> {
    jobs.map(ended).try_fold(0, |first, status| status.map(|status| if first == 0 { status } else { first }))
}

/// Whether the end of one of the job's containers is that of the job: nothing comes after the `last`, nor after a failure.
pub fn ends_job(last: bool, status: u8) -> bool {
    last || status != 0
}

/// What a waiting job container sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The agent binary is there and an old socket is gone.
    pub ready: bool,
    /// The agent serves its socket, or none is needed.
    pub socket: bool,
    /// The status of the container before; 0 when there is none before.
    pub before: Option<u8>,
    /// The agent's container has ended.
    pub agent_ended: bool,
}

/// What a waiting job container does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Turn {
    /// Wait for the next change.
    Wait,
    /// Run the command.
    Run,
    /// The container before has failed with this status.
    BeforeFailed(u8),
    /// Nobody is left who would take the result.
    AgentEnded,
}

/// A job container's turn. The failure of the container before is the better reason when the agent has ended too,
/// as the agent ends because of it.
pub fn turn(seen: Seen) -> Turn {
    match seen {
        Seen { before: Some(status @ 1..), .. } => Turn::BeforeFailed(status),
        Seen { agent_ended: true, .. } => Turn::AgentEnded,
        Seen { ready: true, socket: true, before: Some(0), .. } => Turn::Run,
        Seen { .. } => Turn::Wait,
    }
}

#[cfg(test)]
mod tests;
