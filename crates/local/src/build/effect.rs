//! What a change of one build means for others. Told here, carried out by the store.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Build, JobKind, JobState};

/// Something outside of the build that must happen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A trigger job waits for its build to be created.
    StartChild { job: Uuid },
    /// A trigger job was cancelled: so is the build that it follows.
    CancelChild { build: Uuid },
    /// Somebody entered a concurrency group, or left it.
    Reconsider { group: String },
    /// The build has ended; a trigger job may be following it.
    Ended { passed: bool },
}

/// The effects of an event that changed these jobs. `was_over` tells whether the build had ended before.
pub(crate) fn effects(build: &Build, changed: &BTreeSet<Uuid>, was_over: bool) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut groups = BTreeSet::new();
    for job in build.jobs.iter().filter(|job| changed.contains(&job.id)) {
        match (job.kind, job.state, job.child) {
            (JobKind::Trigger, JobState::Running, None) => effects.push(Effect::StartChild { job: job.id }),
            (JobKind::Trigger, JobState::Canceling | JobState::Canceled, Some(build)) => {
                effects.push(Effect::CancelChild { build });
            }
            _ => {}
        }
        if let Some(concurrency) = &job.concurrency
            && (job.state == JobState::Limiting || job.state.is_terminal())
        {
            groups.insert(concurrency.group.clone());
        }
    }
    effects.extend(groups.into_iter().map(|group| Effect::Reconsider { group }));
    if build.is_over() && !was_over {
        effects.push(Effect::Ended { passed: !build.has_failed() && !build.cancel_requested });
    }
    effects
}

#[cfg(test)]
mod tests;
