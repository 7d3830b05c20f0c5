//! Buildkite as far as one job goes: who has it, and how it ended.

use std::ops::Range;

use bk_plan::remote::RemoteState;

use super::world::PodId;

/// An agent that is not in a pod of ours.
pub(crate) const ELSEWHERE: PodId = PodId::MAX;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Waiting,
    /// An agent, known by its pod, has the job; it may have been asked to stop.
    Acquired {
        by: PodId,
        stop: Option<Outcome>,
    },
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Exit(i32),
    Canceled,
    TimedOut,
}

pub(crate) struct Buildkite {
    pub(crate) state: State,
    pub(crate) was_acquired: bool,
    /// When it cannot be reached, by operator or agents.
    pub(crate) outage: Range<i64>,
}

/// What Buildkite answers when a call does not fit the job's state.
#[derive(Debug)]
pub(crate) struct Refused;

impl Buildkite {
    pub(crate) fn new(outage: Range<i64>) -> Self {
        Self { state: State::Waiting, was_acquired: false, outage }
    }

    pub(crate) fn acquire(&mut self, agent: PodId) -> Result<(), Refused> {
        if self.state != State::Waiting {
            return Err(Refused);
        }
        self.state = State::Acquired { by: agent, stop: None };
        self.was_acquired = true;
        Ok(())
    }

    /// The agent reports its job's end, or Buildkite has given the agent up.
    pub(crate) fn end(&mut self, agent: PodId, exit: i32) {
        if let State::Acquired { by, stop } = &self.state
            && *by == agent
        {
            self.state = State::Ended(stop.unwrap_or(Outcome::Exit(exit)));
        }
    }

    /// The operator ends a job that no agent has.
    pub(crate) fn finish(&mut self, exit: i32) -> Result<(), Refused> {
        if self.state != State::Waiting {
            return Err(Refused);
        }
        self.state = State::Ended(Outcome::Exit(exit));
        Ok(())
    }

    /// Somebody cancels the job, or its time is up. The agent that has it, if one has, is to be told.
    pub(crate) fn stop(&mut self, outcome: Outcome) -> Option<PodId> {
        match &mut self.state {
            State::Waiting if outcome == Outcome::Canceled => {
                self.state = State::Ended(outcome);
                None
            }
            State::Acquired { by, stop } => {
                stop.get_or_insert(outcome);
                Some(*by).filter(|agent| *agent != ELSEWHERE)
            }
            _ => None,
        }
    }

    pub(crate) fn is_held_by(&self, agent: PodId) -> bool {
        matches!(&self.state, State::Acquired { by, .. } if *by == agent)
    }

    pub(crate) fn word(&self) -> RemoteState {
        match self.state {
            State::Waiting => RemoteState::Waiting,
            State::Acquired { stop: Some(Outcome::Canceled), .. } => RemoteState::Canceling,
            State::Acquired { .. } => RemoteState::Acquired,
            State::Ended(Outcome::Exit(_)) => RemoteState::Finished,
            State::Ended(Outcome::Canceled) => RemoteState::Canceled,
            State::Ended(Outcome::TimedOut) => RemoteState::TimedOut,
        }
    }
}
