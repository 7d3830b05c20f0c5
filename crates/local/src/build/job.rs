//! One job, and the changes that concern it alone.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::JobState;
use crate::pipeline::step::{Concurrency, Permutation, SoftFail};

/// The queue of jobs whose rules name none.
pub(crate) const DEFAULT_QUEUE: &str = "default";

/// What kind of job a step yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    Command,
    Waiter,
    Manual,
    Trigger,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub(crate) id: Uuid,
    pub(crate) step: Uuid,
    pub(crate) kind: JobKind,
    pub(crate) state: JobState,
    pub(crate) priority: i64,
    /// The queue its rules ask for.
    pub(crate) queue: String,
    pub(crate) rules: Vec<String>,
    pub(crate) parallel: Option<(u32, u32)>,
    /// The combination of its step's matrix that it stands for.
    pub(crate) matrix: Option<Permutation>,
    pub(crate) concurrency: Option<Concurrency>,
    /// The build that a trigger job started.
    pub(crate) child: Option<Uuid>,
    pub(crate) retry_count: u32,
    /// How often each automatic retry rule has been used up to this job.
    pub(crate) rule_uses: Vec<u32>,
    /// The job that replaced this one.
    pub(crate) retried_in: Option<Uuid>,
    pub(crate) timeout_in_minutes: Option<u32>,
    pub(crate) exit_status: Option<i64>,
    pub(crate) signal: Option<String>,
    pub(crate) signal_reason: Option<String>,
    pub(crate) soft_failed: bool,
    /// The stack that reserved it.
    pub(crate) stack: Option<Uuid>,
    pub(crate) reserved_until: Option<Timestamp>,
    /// The agent that took it.
    pub(crate) agent: Option<Uuid>,
    pub(crate) token: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) scheduled_at: Timestamp,
    pub(crate) runnable_at: Option<Timestamp>,
    /// When it was handed to an agent by ping.
    pub(crate) assigned_at: Option<Timestamp>,
    pub(crate) accepted_at: Option<Timestamp>,
    pub(crate) started_at: Option<Timestamp>,
    /// When canceling or timing out began.
    pub(crate) stopping_at: Option<Timestamp>,
    /// A forced cancel does not wait for the agent beyond this.
    pub(crate) stop_by: Option<Timestamp>,
    /// The failure that the job has announced before its end.
    pub(crate) promised_exit: Option<i64>,
    pub(crate) finished_at: Option<Timestamp>,
}

/// How long the server waits before it acts on its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// From assignment to accept, and from accept to start; then the job is offered again.
    pub(crate) start_within: SignedDuration,
    /// From cancel or timeout to the agent's finish; then the job is settled.
    pub(crate) stop_within: SignedDuration,
    /// Scheduled jobs that nobody takes.
    pub(crate) expire_after: SignedDuration,
}

/// A change that the job's state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Not eligible for an agent any more, or taken.
    #[error("job {id} is not eligible for an agent: it is {state}")]
    NotEligible { id: Uuid, state: JobState },
    /// It waits for others.
    #[error("job {id} waits for its dependencies: it is {state}")]
    Locked { id: Uuid, state: JobState },
    /// The change does not fit the state.
    #[error("job {id} cannot be {change}: it is {state}")]
    WrongState { id: Uuid, state: JobState, change: &'static str },
    /// It has announced another failure already.
    #[error("job {id} has promised to fail with {promised} already")]
    Promised { id: Uuid, promised: i64 },
    /// A rule of the pipeline forbids it.
    #[error("job {id} cannot be retried: {reason}")]
    NoRetry { id: Uuid, reason: String },
    /// No such job in the build.
    #[error("job {0} does not exist")]
    Unknown(Uuid),
}

/// How a job ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) exit_status: i64,
    pub(crate) signal: Option<String>,
    pub(crate) signal_reason: Option<String>,
}

/// Whether `stack` may reserve a job in this state, or extend its reservation; `holder` is the stack that has it.
pub(crate) fn may_reserve(state: JobState, holder: Option<Uuid>, stack: Uuid) -> bool {
    state == JobState::Scheduled || (state == JobState::Reserved && holder == Some(stack))
}

impl Job {
    /// A job of a step to which nothing has happened yet.
    pub(crate) fn new(id: Uuid, step: Uuid, kind: JobKind, now: Timestamp) -> Self {
        Self {
            id,
            step,
            kind,
            state: JobState::Waiting,
            priority: 0,
            queue: DEFAULT_QUEUE.to_owned(),
            rules: Vec::new(),
            parallel: None,
            matrix: None,
            concurrency: None,
            child: None,
            retry_count: 0,
            rule_uses: Vec::new(),
            retried_in: None,
            timeout_in_minutes: None,
            exit_status: None,
            signal: None,
            signal_reason: None,
            soft_failed: false,
            stack: None,
            reserved_until: None,
            agent: None,
            token: None,
            created_at: now,
            scheduled_at: now,
            runnable_at: None,
            assigned_at: None,
            accepted_at: None,
            started_at: None,
            stopping_at: None,
            stop_by: None,
            promised_exit: None,
            finished_at: None,
        }
    }

    /// Its dependencies are met: it can be taken, unless its concurrency group has a say.
    pub(crate) fn become_runnable(&mut self, now: Timestamp) {
        if self.concurrency.is_some() {
            self.state = JobState::Limiting;
        } else {
            self.state = JobState::Scheduled;
            self.runnable_at = Some(now);
        }
    }

    /// Its concurrency group lets it pass.
    pub(crate) fn admit(&mut self, now: Timestamp) {
        if self.state.is_limited() {
            self.state = JobState::Scheduled;
            self.runnable_at = Some(now);
        }
    }

    fn refuse(&self, change: &'static str) -> Refusal {
        Refusal::WrongState { id: self.id, state: self.state, change }
    }

    /// The job is handed to an idle agent, which has yet to accept it. Says whether it could be.
    pub(crate) fn assign(&mut self, agent: Uuid, now: Timestamp) -> bool {
        let free = self.state == JobState::Scheduled;
        if free {
            self.state = JobState::Assigned;
            self.agent = Some(agent);
            self.assigned_at = Some(now);
        }
        free
    }

    /// An agent takes the job that it was assigned. Repeating it is harmless until the job has started: the
    /// first answer may have been lost on its way.
    pub(crate) fn accept(&mut self, agent: Uuid, token: String, now: Timestamp) -> Result<(), Refusal> {
        match self.state {
            JobState::Accepted if self.agent == Some(agent) => Ok(()),
            JobState::Assigned if self.agent == Some(agent) => {
                self.bind(agent, token, now);
                Ok(())
            }
            state => Err(Refusal::NotEligible { id: self.id, state }),
        }
    }

    /// An agent takes a job that it names itself, whatever the job's rules say. As repeatable as
    /// [`Self::accept`].
    pub(crate) fn acquire(&mut self, agent: Uuid, token: String, now: Timestamp) -> Result<(), Refusal> {
        match self.state {
            JobState::Scheduled | JobState::Reserved => {
                self.bind(agent, token, now);
                Ok(())
            }
            state if state.waits() => Err(Refusal::Locked { id: self.id, state }),
            _ => self.accept(agent, token, now),
        }
    }

    /// Cancelled after an agent had been told of it and before that agent accepted it. Nobody will finish it.
    pub(crate) fn was_withdrawn(&self) -> bool {
        self.state == JobState::Canceling && self.accepted_at.is_none()
    }

    fn bind(&mut self, agent: Uuid, token: String, now: Timestamp) {
        self.state = JobState::Accepted;
        self.agent = Some(agent);
        self.token = Some(token);
        self.accepted_at = Some(now);
    }

    /// The job announces, while it runs, that it will fail. The first promise stands.
    pub(crate) fn promise(&mut self, exit_status: i64) -> Result<(), Refusal> {
        match (self.state, self.promised_exit) {
            (JobState::Running, None) => {
                self.promised_exit = Some(exit_status);
                Ok(())
            }
            (JobState::Running, Some(promised)) if promised == exit_status => Ok(()),
            (JobState::Running, Some(promised)) => Err(Refusal::Promised { id: self.id, promised }),
            _ => Err(self.refuse("promised to fail")),
        }
    }

    /// The agent starts the job. A repetition is harmless.
    pub(crate) fn start(&mut self, at: Timestamp) -> Result<(), Refusal> {
        match self.state {
            JobState::Accepted => {
                self.state = JobState::Running;
                self.started_at = Some(at);
                Ok(())
            }
            JobState::Running => Ok(()),
            _ => Err(self.refuse("started")),
        }
    }

    /// The agent reports the end.
    pub(crate) fn finish(&mut self, ending: Ending, at: Timestamp) -> Result<(), Refusal> {
        let state = match self.state {
            JobState::Accepted | JobState::Running => JobState::Finished,
            JobState::Canceling => JobState::Canceled,
            // A job that made it within the grace time has passed after all.
            JobState::TimingOut if ending.exit_status == 0 => JobState::Finished,
            JobState::TimingOut => JobState::TimedOut,
            _ => return Err(self.refuse("finished")),
        };
        self.settle(state, at);
        self.exit_status = Some(ending.exit_status);
        self.signal = ending.signal;
        self.signal_reason = ending.signal_reason;
        Ok(())
    }

    /// A promised failure stands, whatever success or soft failure the agent reports in the end.
    pub(crate) fn keep_promise(&mut self, soft_fail: &SoftFail) {
        let promised = self.promised_exit.filter(|_| self.state == JobState::Finished);
        let hard = |status| !soft_fail.matches(Some(status));
        match (promised, self.exit_status) {
            (Some(promised), Some(0)) => self.exit_status = Some(promised),
            (Some(promised), Some(reported)) if hard(promised) && !hard(reported) => {
                self.exit_status = Some(promised);
            }
            _ => {}
        }
    }

    /// A stack gives up on a job that no agent has.
    pub(crate) fn stack_finish(
        &mut self,
        stack: Uuid,
        exit_status: i64,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let allowed = match self.state {
            JobState::Scheduled => true,
            JobState::Reserved => self.stack == Some(stack),
            _ => false,
        };
        if !allowed {
            return Err(self.refuse("finished by this stack"));
        }
        self.settle(JobState::Finished, now);
        self.exit_status = Some(exit_status);
        self.signal_reason = Some("stack_error".to_owned());
        Ok(())
    }

    /// Somebody cancels the job. Cancelling again is harmless.
    pub(crate) fn cancel(&mut self, now: Timestamp) -> Result<(), Refusal> {
        match self.state {
            JobState::Canceling => {}
            state if state.is_terminal() => return Err(self.refuse("canceled")),
            state if state.has_agent() => {
                self.state = JobState::Canceling;
                self.stopping_at = Some(now);
            }
            _ => self.settle(JobState::Canceled, now),
        }
        Ok(())
    }

    /// Back into the queue: its agent or stack did not come through before it started.
    pub(crate) fn offer_again(&mut self) {
        self.state = JobState::Scheduled;
        self.stack = None;
        self.reserved_until = None;
        self.agent = None;
        self.token = None;
        self.assigned_at = None;
        self.accepted_at = None;
    }

    /// The agent left or was lost while it had the job.
    ///
    /// A lost one leaves no signal reason, only the exit status −1: nobody sent the process a signal, as far
    /// as anybody knows. Pipelines that retry lost agents ask for exactly that, with `exit_status: -1` and
    /// `signal_reason: none`. An agent that says goodbye was stopped, so its job has `agent_stop`.
    pub(crate) fn lose_agent(&mut self, signal_reason: Option<&str>, now: Timestamp) {
        match self.state {
            JobState::Assigned | JobState::Accepted => self.offer_again(),
            JobState::Running => {
                self.settle(JobState::Finished, now);
                self.exit_status = Some(-1);
                self.signal_reason = signal_reason.map(str::to_owned);
            }
            JobState::Canceling | JobState::TimingOut => self.force_stop(now),
            _ => {}
        }
    }

    /// What the server does by itself when [`Self::deadline`] has passed.
    pub(crate) fn pass_deadline(&mut self, now: Timestamp) {
        match self.state {
            JobState::Scheduled => self.settle(JobState::Expired, now),
            JobState::Reserved | JobState::Assigned | JobState::Accepted => self.offer_again(),
            JobState::Running => {
                self.state = JobState::TimingOut;
                self.stopping_at = Some(now);
            }
            JobState::Canceling | JobState::TimingOut => self.force_stop(now),
            _ => {}
        }
    }

    fn force_stop(&mut self, now: Timestamp) {
        let state = if self.state == JobState::TimingOut { JobState::TimedOut } else { JobState::Canceled };
        self.settle(state, now);
        // What no agent has accepted never had a process.
        if self.accepted_at.is_some() {
            self.exit_status = Some(-1);
            self.signal_reason = Some("cancel".to_owned());
        }
    }

    /// Enters a terminal state.
    pub(crate) fn settle(&mut self, state: JobState, at: Timestamp) {
        self.state = state;
        self.reserved_until = None;
        self.finished_at = Some(self.started_at.map_or(at, |started| started.max(at)));
    }

    /// When the server acts by itself, if the job stays as it is.
    pub(crate) fn deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let after =
            |from: Option<Timestamp>, span: SignedDuration| from.and_then(|at| at.checked_add(span).ok());
        match self.state {
            JobState::Scheduled => after(self.runnable_at, policy.expire_after),
            JobState::Reserved => self.reserved_until,
            JobState::Assigned => after(self.assigned_at, policy.start_within),
            JobState::Accepted => after(self.accepted_at, policy.start_within),
            JobState::Running => self
                .timeout_in_minutes
                .and_then(|minutes| after(self.started_at, SignedDuration::from_mins(i64::from(minutes)))),
            JobState::Canceling | JobState::TimingOut => {
                [after(self.stopping_at, policy.stop_within), self.stop_by].into_iter().flatten().min()
            }
            _ => None,
        }
    }

    /// Whether the job counts as a success for the build and for those that depend on it.
    pub(crate) fn is_good(&self) -> bool {
        self.soft_failed
            || match self.state {
                JobState::Finished => self.kind == JobKind::Waiter || self.exit_status == Some(0),
                JobState::Unblocked | JobState::Skipped | JobState::Broken => true,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests;
