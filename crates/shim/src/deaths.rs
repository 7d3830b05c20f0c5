//! Containers that were killed with their shims, as the kernel does with one that has used up its memory. They leave no marks, so the
//! agent's container leaves them in their stead: those who wait for the job's end would learn of it only when the agent has missed it.

use crate::args::Agent;
use crate::container;
use crate::layout::{Name, Spot};
use crate::marks;

/// How often to look, in milliseconds.
pub const LOOK: u32 = 1000;

/// The job's containers that were seen alive: one bit for each, the first is the lowest. Only of these a death can be told from a filesystem
/// on which containers do not see each other's locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaths {
    alive: u64,
}

impl Deaths {
    /// Looks at the job's containers, and leaves the marks of those that have died since the last look.
    pub fn look(&mut self, agent: &Agent<'_>) {
        for (at, job) in agent.jobs.iter().enumerate() {
            let bit = u32::try_from(at).ok().and_then(|at| 1_u64.checked_shl(at)).unwrap_or_default();
            if self.has_died(agent, bit, job) {
                // If it cannot be done now, it can be a second later.
                let _ = container::bury(&agent.pod, job);
            }
        }
    }

    fn has_died(&mut self, agent: &Agent<'_>, bit: u64, job: Name<'_>) -> bool {
        let layout = agent.pod.layout;
        let has_ended = || marks::exists(layout.at(Spot::Ended(job)));
        if has_ended() {
            return false;
        }
        match marks::is_held(layout, job) {
            Some(true) => {
                self.alive |= bit;
                false
            }
            // One that ends by itself leaves its mark before it lets go.
            Some(false) => self.alive & bit != 0 && !has_ended(),
            None => false,
        }
    }
}
