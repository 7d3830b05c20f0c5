//! BuildJob + its pod + Buildkite's word + now → what to do next.
//!
//! Flow: `Pending` → pod created, `Starting` → all containers run, `Running` → a terminal phase with a verdict
//! → pod deleted → BuildJob deleted. Steps that pass quickly are not written down: a plain job that succeeds has
//! one status, `Running`, and leaves without another.
//!
//! Guarantees:
//! - A terminal phase never changes.
//! - Actions come in an order in which a crash between any two of them loses nothing: whatever was done is
//!   seen by the next call, which continues from there.
//! - A verdict that Buildkite has to hear is in the status before Buildkite hears it, and the phase becomes
//!   terminal only afterwards. If an agent was quicker, the verdict is struck out.
//! - A job that an agent has is ended for the agent only if its pod, its container or its node is gone, or its memory was too little; and
//!   only if Buildkite has just said that the agent still has it.
//! - An agent's end is judged only by a word from Buildkite that is younger than that end.
//! - An attempt is in the status before its pod exists, so a pod is never looked for under an old name.
//! - The pod of a standalone job is named in the status before it exists: if it is missing later, it may have
//!   run, and is not made again. For the others Buildkite lets only one agent have the job.
//!
//! - [`begin`]: until the pod exists
//! - [`obstacle`]: while it cannot be created
//! - [`wrapped`]: while the Job around the pod shows none
//! - [`start`]: until all containers run
//! - [`registration`]: while the agent does not register
//! - [`end`]: once the pod or the job has ended
//! - [`cleanup`]: after the end
//! - [`exporting`]: while exporters carry away what the job left
//! - [`conditions`]: the conditions of the status
//! - [`node`]: while the pod's node is silent, or about to go
//! - [`notice`]: what Buildkite is told about a wait
//! - [`warning`]: what it is told before the end
//! - [`ladder`]: how long each step may take
//! - [`pause`]: how soon to look again for Buildkite's word on an end

mod begin;
mod cleanup;
pub(crate) mod conditions;
mod end;
mod exporting;
mod ladder;
mod node;
mod notice;
mod obstacle;
mod pause;
mod registration;
mod start;
mod warning;
mod wrapped;

pub use conditions::{has_registered, is_acquired};
pub use notice::subject;

use bk_api::{BuildJob, BuildJobStatus, Phase, Verdict, build_job::WorkloadKind, config::ValidationConfig};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    batch::BatchFacts,
    facts::{NodeFacts, PodFacts},
    plugin::PluginError,
    pod::PodSettings,
    recall::{Creation, Explained},
    remote::{Remote, RemoteState},
    surroundings::Surroundings,
    verdicts::{self, Blocker},
};

/// Everything a decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The BuildJob.
    pub job: &'a BuildJob,
    /// The pod of the attempt that the job's status is at, if it exists for certain.
    pub pod: Option<PodFacts>,
    /// The `batch/v1` Job around it, if it stands in one and that exists for certain.
    pub batch: Option<BatchFacts>,
    /// What this process knows about their creation.
    pub creation: Creation,
    /// What this process has last told Buildkite that the job waits for.
    pub explained: Option<Explained>,
    /// What Buildkite last said about the job. Standalone jobs have none.
    pub remote: Option<Remote>,
    /// Whether the operator can speak for the agent in that pod, which has registered by way of it.
    pub has_session: bool,
    /// The node that the pod is on, if it is known.
    pub node: Option<NodeFacts>,
    /// What the job refers to by name.
    pub surroundings: Surroundings,
    /// What is wrong with the job's own description in Buildkite, if it had to be consulted.
    pub unreadable: Option<PluginError>,
    /// The present.
    pub now: Timestamp,
}

/// The limits that decisions keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// What pods are made of.
    pub pod: PodSettings,
    /// What users demand of jobs.
    pub validation: ValidationConfig,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// How long an image may fail to be pulled for reasons that can pass.
    pub image_pull_grace: SignedDuration,
    /// How long a BuildJob that came from a queue stays after it succeeded or was cancelled.
    pub succeeded_ttl: SignedDuration,
    /// How long any other stays after its end.
    pub failed_ttl: SignedDuration,
    /// Whether the pod of a job that failed stays as long as its BuildJob.
    pub keep_pod_on_failure: bool,
    /// How many pods a job may have before no agent took it for good.
    pub max_attempts: u32,
}

/// How long each step of a job may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the pod's creation, or from the first attempt at it, to a node.
    pub schedule: SignedDuration,
    /// From the node, or from the end of the init containers, to the last image.
    pub pull: SignedDuration,
    /// From the node to the agent that has taken the job.
    pub start: SignedDuration,
    /// From there to the end, if the job says nothing else.
    pub run: Option<SignedDuration>,
    /// From the end of its grace period until a pod that does not go counts as lost.
    pub terminate: SignedDuration,
}

impl Timeouts {
    /// The configuration's timeouts.
    pub fn of(config: bk_api::config::Timeouts) -> Self {
        let seconds = |seconds: u32| SignedDuration::from_secs(seconds.into());
        Self {
            schedule: seconds(config.schedule_seconds),
            pull: seconds(config.pull_seconds),
            start: seconds(config.start_seconds),
            run: config.run_seconds.map(seconds),
            terminate: seconds(config.terminate_seconds),
        }
    }
}

/// What to do, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Steps; the first that fails ends the round.
    pub actions: Vec<Action>,
    /// Whether Buildkite's word on the job is needed, whatever becomes of the actions.
    pub ask_remote: bool,
    /// When to look again even if nothing happens.
    pub look_again: Option<SignedDuration>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this pod. If it exists and is ours, that is success.
    CreatePod(Box<Pod>),
    /// Create this `batch/v1` Job. If it exists and is ours, that is success.
    CreateBatchJob(Box<Job>),
    /// Delete the pod with this name and id.
    DeletePod {
        /// The pod's name.
        name: String,
        /// The pod's id.
        uid: String,
        /// Whether the record of it goes before the kubelet has cleared it away: nothing in it does anything any more.
        at_once: bool,
    },
    /// Delete the `batch/v1` Job with this name and id, and its pod with it.
    DeleteBatchJob {
        /// The Job's name.
        name: String,
        /// The Job's id.
        uid: String,
    },
    /// Write this status, provided that the BuildJob is still the one that was observed or that an earlier
    /// step of the same decision wrote. A decision on an outdated view must fail here, or it could undo an end.
    WriteStatus(Box<BuildJobStatus>),
    /// End the job in Buildkite, which no agent has. If Buildkite refuses, the step has failed: an agent has
    /// the job after all, or it has ended, and only Buildkite's word says which.
    FinishRemote(Verdict),
    /// End the job in Buildkite for its agent, which cannot, and take leave for it. If Buildkite refuses, the job has ended, and only
    /// Buildkite's word says how.
    EndForAgent(Verdict),
    /// Ask the node to let the pod go, which is with this name and id: it goes as in a drain.
    EvictPod {
        /// The pod's name.
        name: String,
        /// The pod's id.
        uid: String,
    },
    /// Put the reason on the job's timeline in Buildkite.
    Notify(Verdict),
    /// Say on the job's timeline in Buildkite what it waits for.
    Explain(String),
    /// Say something else about the job on its timeline in Buildkite.
    Remark(String),
    /// Delete the BuildJob.
    DeleteJob {
        /// How it ended, if that is not on record: then it goes only if it is still the one that was observed.
        unrecorded: Option<Box<BuildJobStatus>>,
    },
}

/// What to do next about a BuildJob.
pub fn decide(seen: &Observed<'_>, rules: &Rules) -> Decision {
    let case = Case { seen, rules, status: seen.job.status_or_default() };
    if seen.job.metadata.deletion_timestamp.is_some() {
        // Whoever deleted it wants the pod gone too; the owner reference sees to that.
        return Decision::default();
    }
    if case.status.phase.is_terminal() {
        return cleanup::decide(&case);
    }
    if let Some(verdict) = case.status.verdict.clone() {
        return end::settle(&case, verdict);
    }
    if let Some(decision) = end::by_remote(&case) {
        return decision;
    }
    match (&seen.pod, &seen.batch) {
        (None, None) => begin::decide(&case),
        (None, Some(batch)) => wrapped::decide(&case, batch),
        (Some(facts), _) if ladder::is_overdue(&case, facts) => end::overdue(&case, facts),
        (Some(facts), _) if facts.is_over() || facts.managed_ended() || ladder::is_broken(&case, facts) => {
            end::by_pod(&case, facts)
        }
        (Some(facts), _) => node::heed(&case, facts).unwrap_or_else(|| start::decide(&case, facts)),
    }
}

/// What to do when Buildkite would not have the job ended for its agent: the agent has ended it, and what comes of it is for Buildkite to say.
pub fn outrun(seen: &Observed<'_>, rules: &Rules) -> Decision {
    let case = Case { seen, rules, status: seen.job.status_or_default() };
    if case.status.phase.is_terminal() {
        // What is on record here stays: Buildkite has an end, too.
        return Decision::wait(true, SignedDuration::from_secs(1));
    }
    end::overtaken(&case)
}

/// What to do when the pod, or the Job around it, could not be created, for this reason. When to look again is when
/// to try again.
pub fn not_created(seen: &Observed<'_>, rules: &Rules, blocker: &Blocker) -> Decision {
    let case = Case { seen, rules, status: seen.job.status_or_default() };
    obstacle::decide(&case, blocker)
}

/// What to do in Buildkite when somebody has deleted a BuildJob before its end. An agent that has the job is stopped with
/// its pod, and says so itself; only the reason comes from us.
pub fn departed(job: &BuildJob, state: RemoteState) -> Option<Action> {
    let verdict = verdicts::build_job_deleted(job.metadata.name.as_deref().unwrap_or_default());
    match state.in_short() {
        RemoteState::Waiting => Some(Action::FinishRemote(verdict)),
        RemoteState::Acquired => Some(Action::Notify(verdict)),
        _ => None,
    }
}

/// A decision in the making.
struct Case<'a> {
    seen: &'a Observed<'a>,
    rules: &'a Rules,
    status: BuildJobStatus,
}

impl Case<'_> {
    fn is_standalone(&self) -> bool {
        self.seen.job.spec.buildkite.is_none()
    }

    /// What the pod stands in.
    fn workload(&self) -> WorkloadKind {
        self.seen.job.spec.workload.unwrap_or(self.rules.pod.config.workload)
    }

    fn remote_state(&self) -> Option<RemoteState> {
        self.seen.remote.map(|remote| remote.state.in_short())
    }

    /// Whether somebody has cancelled the job, and its agent was to end it.
    fn is_canceling(&self) -> bool {
        self.seen.remote.is_some_and(|remote| remote.state == RemoteState::Canceling)
    }

    /// Buildkite's word, if it is younger than `since`. The kubelet rounds times down to the second and
    /// clocks differ a little, hence the margin.
    fn remote_after(&self, since: Timestamp) -> Option<RemoteState> {
        self.seen
            .remote
            .filter(|remote| remote.asked_at >= since + MARGIN)
            .map(|remote| remote.state.in_short())
    }

    /// Buildkite's word, if it is younger than something that has ended; without a time, if it is fresh.
    fn remote_since(&self, ended: Option<Timestamp>) -> Option<RemoteState> {
        ended.map_or_else(|| self.fresh_remote(), |ended| self.remote_after(ended))
    }

    /// Buildkite's word, if it was asked for only just now.
    fn fresh_remote(&self) -> Option<RemoteState> {
        const FRESH: SignedDuration = SignedDuration::from_secs(5);
        let age = |remote: &Remote| self.seen.now.duration_since(remote.asked_at);
        self.seen.remote.filter(|remote| age(remote) < FRESH).map(|remote| remote.state.in_short())
    }

    fn write(status: BuildJobStatus) -> Action {
        Action::WriteStatus(Box::new(status))
    }

    /// The status as it should be now, whatever is on record.
    fn current(&self) -> BuildJobStatus {
        let observed_generation = self.seen.job.metadata.generation;
        let batch = self.seen.batch.as_ref().map(|batch| batch.name.clone());
        let job_name = batch.or_else(|| self.status.job_name.clone());
        let recorded = BuildJobStatus { observed_generation, job_name, ..self.status.clone() };
        let status = match &self.seen.pod {
            None => recorded,
            Some(facts) => start::progress(self, recorded, facts),
        };
        conditions::updated(self, status)
    }

    /// The status of a job that has ended.
    fn ended(&self, phase: Phase, verdict: Verdict) -> BuildJobStatus {
        let status = BuildJobStatus {
            phase,
            exit_status: verdict.exit_status,
            finished_at: Some(Time(self.seen.now)),
            waiting_for: None,
            verdict: Some(verdict),
            ..self.current()
        };
        conditions::updated(self, status)
    }

    /// The job has ended and there is nobody left to tell. If nothing of it is to stay, nothing is written either:
    /// Buildkite has the record.
    fn conclude(&self, (phase, verdict): (Phase, Verdict)) -> Decision {
        let status = self.ended(phase, verdict);
        let has_exporters = self.seen.pod.as_ref().is_some_and(|facts| !facts.exporters.is_empty());
        let leaves_at_once = matches!(phase, Phase::Succeeded | Phase::Canceled)
            && !has_exporters
            && cleanup::time_to_live(self, phase).is_zero();
        let actions = if leaves_at_once {
            cleanup::remove_all(self, Some(Box::new(status)))
        } else {
            vec![Self::write(status)]
        };
        Decision { actions, ..Decision::default() }
    }

    /// The agent that has the job is gone, or cannot end it. Whoever can speak for it ends the job at once, with the true reason.
    fn end_lost(&self, verdict: Verdict) -> Decision {
        if !self.seen.has_session {
            return self.lose(verdict);
        }
        let recorded = Self::write(BuildJobStatus {
            verdict: Some(verdict.clone()),
            waiting_for: None,
            ..self.current()
        });
        let mut decision = self.end_for_agent(verdict);
        decision.actions.insert(0, recorded);
        decision
    }

    /// The same once the verdict is on record.
    fn end_for_agent(&self, verdict: Verdict) -> Decision {
        let mut actions = vec![Action::EndForAgent(verdict.clone())];
        if self.is_canceling() {
            // With this end it is cancelled at Buildkite, too.
            let (phase, canceled) = verdicts::canceled(self.status.phase);
            actions.push(Self::write(self.ended(phase, canceled)));
        } else {
            actions
                .extend([Self::write(self.ended(Phase::Failed, verdict.clone())), Action::Notify(verdict)]);
        }
        Decision { actions, ask_remote: true, look_again: Some(SignedDuration::from_secs(1)) }
    }

    /// The agent that had the job is gone. Buildkite has noticed, or will by itself; the reason comes from us.
    fn lose(&self, verdict: Verdict) -> Decision {
        let ended = Self::write(self.ended(Phase::Failed, verdict.clone()));
        let actions = vec![ended, Action::Notify(verdict)];
        Decision { actions, ..Decision::default() }
    }

    /// The pod is gone, or as good as gone, and cannot say what became of the job; these are the last facts about it. If no
    /// agent has the job, `untaken` decides.
    fn gone(&self, facts: Option<&PodFacts>, untaken: impl FnOnce(&Self) -> Decision) -> Decision {
        let lost = || {
            let on_record = || conditions::why_pod_taken(&self.status);
            facts.is_none().then(on_record).flatten().unwrap_or_else(|| verdicts::lost(facts))
        };
        if self.is_standalone() {
            return self.conclude((Phase::Failed, lost()));
        }
        match self.fresh_remote() {
            None => Decision::wait(true, SignedDuration::from_secs(1)),
            Some(RemoteState::Waiting) => untaken(self),
            Some(RemoteState::Unknown) => self.unknown(),
            Some(RemoteState::Acquired) => self.end_lost(lost()),
            Some(_) => self.lose(lost()),
        }
    }

    /// Buildkite does not show us the job.
    fn unknown(&self) -> Decision {
        let uuid = self.seen.job.job_uuid().unwrap_or_default();
        self.conclude((Phase::Failed, verdicts::unknown_job(uuid)))
    }

    /// The job has run for too long. Its pod goes, and its agent, if it has one, reports the end.
    fn time_out(&self, (phase, verdict): (Phase, Verdict)) -> Decision {
        let mut actions = vec![Self::write(self.ended(phase, verdict.clone()))];
        if !self.is_standalone() {
            actions.push(Action::Notify(verdict));
        }
        Decision { actions, ..Decision::default() }
    }

    /// The job cannot run, and no agent has it: record why, tell Buildkite, end.
    fn fail_unacquired(&self, verdict: Verdict) -> Decision {
        if self.is_standalone() {
            return self.conclude((Phase::Failed, verdict));
        }
        let verdict = registration::explained(self, verdict);
        let recorded = Self::write(BuildJobStatus {
            verdict: Some(verdict.clone()),
            waiting_for: None,
            ..self.current()
        });
        let ended = Self::write(self.ended(Phase::Failed, verdict.clone()));
        let actions = vec![recorded, Action::FinishRemote(verdict), ended];
        Decision { actions, ask_remote: true, ..Decision::default() }
    }
}

impl Decision {
    /// Nothing to do but to wait, for Buildkite's word as well if `ask_remote`.
    fn wait(ask_remote: bool, look_again: SignedDuration) -> Self {
        Self { actions: Vec::new(), ask_remote, look_again: Some(not_at_once(look_again)) }
    }
}

/// How much younger than an end Buildkite's word has to be.
const MARGIN: SignedDuration = SignedDuration::from_secs(2);

/// How soon to look again when only an event is waited for: one that is missed must not hold a job for ever.
const WITHOUT_EVENT: SignedDuration = SignedDuration::from_mins(5);

/// A wait that cannot become a hot loop when its time has passed already.
fn not_at_once(wait: SignedDuration) -> SignedDuration {
    wait.max(SignedDuration::from_millis(100))
}
