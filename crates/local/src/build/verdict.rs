//! A build as one value, how its steps came out, and what that makes of the build.

use std::collections::HashMap;

use jiff::Timestamp;
use uuid::Uuid;

use super::{BuildState, Job, JobState, StepOutcome, StepState, Steps, retry};
use crate::pipeline::step::{BlockedState, Kind, Step};

/// A build with its steps in order and its jobs in order of creation.
#[derive(Debug, Clone)]
pub(crate) struct Build {
    pub(crate) id: Uuid,
    pub(crate) state: BuildState,
    pub(crate) cancel_requested: bool,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) steps: Steps,
    pub(crate) jobs: Vec<Job>,
}

/// A step in its place.
#[derive(Debug, Clone)]
pub(crate) struct PlacedStep {
    pub(crate) id: Uuid,
    pub(crate) group: Option<Uuid>,
    /// The step whose job uploaded it.
    pub(crate) uploader: Option<Uuid>,
    pub(crate) step: Step,
}

/// How a step came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not all of its jobs have ended.
    Pending,
    /// Passed, soft failed or skipped.
    Good,
    Failed,
    /// Cancelled or expired: no `allow_failure` helps.
    Canceled,
}

impl Outcome {
    /// Both: the worse of two ended, unless one is still pending.
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |outcome| match outcome {
            Self::Good => 0,
            Self::Failed => 1,
            Self::Canceled => 2,
            Self::Pending => 3,
        };
        if rank(self) >= rank(other) { self } else { other }
    }
}

impl Build {
    /// The jobs that count: those that no retry has replaced.
    pub(crate) fn counting(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().filter(|job| job.retried_in.is_none())
    }

    /// The outcome of each step's own jobs, by step.
    pub(crate) fn own_outcomes(&self) -> HashMap<Uuid, Outcome> {
        let mut outcomes: HashMap<Uuid, Outcome> =
            self.steps.iter().map(|placed| (placed.id, Outcome::Good)).collect();
        for job in self.counting() {
            if let Some(outcome) = outcomes.get_mut(&job.step) {
                *outcome = outcome.and(job_outcome(job));
            }
        }
        outcomes
    }

    /// The jobs of a step that count; for a group, those of its members.
    fn jobs_of(&self, step: Uuid) -> Vec<&Job> {
        let members: Vec<Uuid> =
            self.steps.iter().filter(|placed| placed.group == Some(step)).map(|placed| placed.id).collect();
        self.counting().filter(|job| job.step == step || members.contains(&job.step)).collect()
    }

    /// Where a step is: a command step, a gate, or a group with all of its members.
    pub(crate) fn step_state(&self, step: Uuid) -> StepState {
        let jobs = self.jobs_of(step);
        let any = |is: fn(&Job) -> bool| jobs.iter().any(|job| is(job));
        let ended = |job: &Job| job.state.is_terminal();
        match () {
            () if !any(|job| !never_asked(job)) => StepState::Ignored,
            () if jobs.iter().all(|job| ended(job)) => StepState::Finished,
            () if any(|job| job.state.is_terminal() && !job.is_good()) => StepState::Failing,
            () if any(|job| job.state.has_agent() || (job.state.is_terminal() && !never_asked(job))) => {
                StepState::Running
            }
            () if any(|job| job.state.is_active() || job.state == JobState::Blocked) => StepState::Ready,
            () => StepState::WaitingForDependencies,
        }
    }

    /// How a step came out so far. A step whose jobs never could run is `errored`.
    pub(crate) fn step_outcome(&self, step: Uuid) -> StepOutcome {
        let jobs = self.jobs_of(step);
        let bad = || jobs.iter().filter(|job| job.state.is_terminal() && !job.is_good());
        let never_ran = |job: &&&Job| {
            matches!(job.state, JobState::WaitingFailed | JobState::BlockedFailed | JobState::Expired)
        };
        match self.step_state(step) {
            StepState::Finished | StepState::Failing if bad().any(|job| !never_ran(&job)) => {
                StepOutcome::HardFailed
            }
            StepState::Finished | StepState::Failing if bad().next().is_some() => StepOutcome::Errored,
            StepState::Finished if jobs.iter().any(|job| job.soft_failed) => StepOutcome::SoftFailed,
            StepState::Finished => StepOutcome::Passed,
            _ => StepOutcome::Neutral,
        }
    }

    /// Whether every job has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.jobs.iter().all(|job| job.state.is_terminal())
    }

    /// Whether a job has failed for good, or has promised to.
    pub(crate) fn has_failed(&self) -> bool {
        self.counting().any(|job| (job.state.is_terminal() && !job.is_good()) || self.will_fail(job))
    }

    /// Whether the failure that a running job has promised will count: neither soft nor to be retried.
    fn will_fail(&self, job: &Job) -> bool {
        if job.state.is_terminal() || job.promised_exit.is_none() {
            return false;
        }
        let command = self.steps.iter().find(|placed| placed.id == job.step).and_then(|placed| match &placed
            .step
            .kind
        {
            Kind::Command(command) => Some(command),
            _ => None,
        });
        let ended = Job { state: JobState::Finished, exit_status: job.promised_exit, ..job.clone() };
        command.is_none_or(|command| {
            !command.soft_fail.matches(ended.exit_status)
                && retry::granting_rule(&ended, &command.retry).is_none()
        })
    }

    /// What the jobs make of the build.
    pub(crate) fn derived_state(&self) -> BuildState {
        let open = || self.counting().filter(|job| !job.state.is_terminal());
        let nothing_ran = self.counting().all(never_asked);
        if open().next().is_none() {
            return match () {
                () if self.cancel_requested => BuildState::Canceled,
                () if self.has_failed() => BuildState::Failed,
                () if nothing_ran => BuildState::NotRun,
                () => BuildState::Passed,
            };
        }
        let active = open().any(|job| job.state.is_active());
        let begun = self.jobs.iter().any(|job| job.started_at.is_some() || job.state.has_agent());
        match () {
            () if self.cancel_requested => BuildState::Canceling,
            () if active && self.has_failed() => BuildState::Failing,
            () if active && begun => BuildState::Running,
            () if active => BuildState::Scheduled,
            () => self.blocked_state(),
        }
    }

    /// Only people can move the build now.
    fn blocked_state(&self) -> BuildState {
        if self.has_failed() {
            return BuildState::Failed;
        }
        let gate = self.counting().find(|job| job.state == JobState::Blocked).and_then(|job| {
            self.steps.iter().find(|placed| placed.id == job.step).and_then(|placed| {
                match &placed.step.kind {
                    Kind::Block(gate) | Kind::Input(gate) => Some(gate.blocked_state),
                    _ => None,
                }
            })
        });
        match gate {
            Some(BlockedState::Passed) => BuildState::Passed,
            Some(BlockedState::Failed) => BuildState::Failed,
            Some(BlockedState::Running) => BuildState::Running,
            Some(BlockedState::Blocked) | None => BuildState::Blocked,
        }
    }
}

/// A filter or `skip` took the job out before anything happened.
fn never_asked(job: &Job) -> bool {
    matches!(job.state, JobState::Skipped | JobState::Broken)
}

fn job_outcome(job: &Job) -> Outcome {
    match job.state {
        state if !state.is_terminal() => Outcome::Pending,
        _ if job.is_good() => Outcome::Good,
        JobState::Canceled | JobState::Expired => Outcome::Canceled,
        _ => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests;
