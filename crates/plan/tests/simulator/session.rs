//! The operator's sessions: agents that have registered by way of it, and for which it can end their job.
//!
//! They are in a Secret, and outlast the operator's process.

use bk_api::Verdict;
use bk_plan::{recall::Spoke, verdicts};

use super::{
    api::Fate,
    invariants,
    operator::Failure,
    world::{Event, Instant, PodId, World, timestamp},
};

/// How soon an agent tries again to register when nobody answers.
const AGAIN: Instant = 1_000;

/// How long after an agent is lost, or its node is silent, its job may still be the agent's at Buildkite, which by itself notices
/// after [`super::world::HEARTBEAT_TIMEOUT`].
pub(crate) const PROMPTNESS: Instant = 30_000;

/// Who has registered, and what came of it.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Whether agents register by way of the operator.
    pub(crate) are_kept: bool,
    /// The pods whose agents have, in that order.
    pub(crate) of: Vec<PodId>,
    /// The exit status with which the operator has ended the job for an agent.
    pub(crate) ended_with: Option<i32>,
    /// How often it did, and how often it was too late.
    pub(crate) ends: u32,
    pub(crate) refusals: u32,
}

impl World {
    /// An agent registers. By way of the operator that takes one that is there; otherwise it tries again, and then takes the job.
    pub(super) fn registers(&mut self, pod: PodId) -> bool {
        if !self.sessions.are_kept || self.sessions.of.contains(&pod) {
            return true;
        }
        if !self.operator.is_up() {
            self.after(AGAIN, Event::Pod(pod, super::kubelet::Step::Acquires));
            return false;
        }
        self.sessions.of.push(pod);
        true
    }

    /// The pod of this attempt whose agent the operator can speak for.
    pub(crate) fn session(&self, attempt: u32) -> Option<PodId> {
        self.sessions.of.iter().rev().find(|pod| self.lives[**pod].attempt == attempt).copied()
    }

    /// The operator ends the job for its agent. It is refused if the agent does not have the job, or not any more.
    pub(super) fn end_for_agent(&mut self, verdict: &Verdict) -> Result<(), Failure> {
        let attempt = self.attempt();
        let Some(pod) = self.session(attempt) else {
            self.violate("a job is ended for an agent that nobody can speak for");
            return Ok(());
        };
        let fate = self.fate();
        let now = timestamp(self.now + self.operator.clock_step);
        self.operator.recall.spoke(attempt, now, Spoke::Ended);
        if self.outage_left().is_some() || matches!(fate, Fate::Lost) {
            return Err(Failure::Unreachable);
        }
        let (exit, _, _) = verdicts::in_agents_words(verdict);
        let held = self.has_job(pod);
        if held {
            invariants::before_end_for_agent(self, pod, verdict);
            self.report(pod, exit);
            self.sessions.ended_with = Some(exit);
            self.sessions.ends += 1;
        }
        match fate {
            Fate::DoneUnheard => Err(Failure::Unreachable),
            _ if held => Ok(()),
            _ => {
                self.sessions.refusals += 1;
                self.operator.recall.spoke(attempt, now, Spoke::InVain);
                Err(Failure::Outrun)
            }
        }
    }

    fn attempt(&self) -> u32 {
        self.job.as_ref().map_or(0, |job| job.status_or_default().attempt)
    }

    /// An agent has just been lost, or its node fallen silent: from now on the operator has its time to end the job.
    pub(super) fn await_end(&mut self, pod: PodId) {
        let runs = self.job.as_ref().is_some_and(|job| !job.is_terminal());
        let is_sessions = self.session(self.attempt()) == Some(pod);
        if runs && is_sessions && self.is_calm() {
            self.after(PROMPTNESS, Event::Due(pod));
        }
    }

    /// Its time is up.
    pub(crate) fn due(&mut self, pod: PodId) {
        let held = self.has_job(pod);
        let life = &self.lives[pod];
        let is_lost = life.dead || life.agent_dead || life.cut_until > self.now;
        // A pod that goes a moment after its agent took the job may have been replaced on a word from just before.
        let is_current = self.attempt() == life.attempt;
        if held && is_lost && is_current && self.is_calm() && self.job_deleted.is_none() {
            self.violate(format!("the job of pod-{pod}, whose agent is lost, is not ended"));
        }
    }

    /// Whether nothing keeps the operator from being prompt.
    fn is_calm(&self) -> bool {
        let is_reachable = self.buildkite.as_ref().is_some_and(|buildkite| buildkite.outage.is_empty());
        let operator = &self.operator;
        is_reachable
            && self.trouble.is_none()
            && !operator.ever_crashes()
            && !operator.has_gaps()
            && operator.clock_step == 0
    }
}
