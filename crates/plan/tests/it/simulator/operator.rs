//! The operator's shell: a cache that lags, one round at a time, and crashes between any two actions.

use std::collections::{BTreeMap, VecDeque};

use bk_api::{BuildJob, BuildJobStatus, names};
use bk_plan::{
    decide::{Action, Decision, Observed, decide, not_created},
    facts::PodFacts,
    recall::{Creation, Recall},
    remote::Remote,
    surroundings::Surroundings,
    verdicts,
};
use k8s_openapi::api::core::v1::Pod;

use super::{
    random::Random,
    world::{Event, Instant, World, timestamp},
};

/// Time between two questions to Buildkite about a job.
const ASK_INTERVAL: Instant = 500;
const MOST_CRASHES: u32 = 8;
/// How soon to look again when the cache shows what has been overwritten.
const STALE: Instant = 5_000;

#[derive(Clone, Default)]
struct View {
    job: Option<BuildJob>,
    pods: BTreeMap<String, Pod>,
}

/// Buildkite's word, in memory only.
#[derive(Default)]
struct States {
    remote: Option<Remote>,
    /// A younger word is wanted.
    wanted: bool,
    /// The loop that asks is under way.
    asking: bool,
}

#[derive(Default)]
pub(crate) struct Operator {
    down: bool,
    /// In per cent, at each boundary of actions.
    crash_chance: i64,
    most_lag: Instant,
    /// How far the node's clock is ahead of the operator's.
    pub(crate) clock_skew: Instant,
    view: View,
    coming: VecDeque<(Instant, View)>,
    states: States,
    /// What this process has done that the cache may not show.
    recall: Recall,
    /// Failed rounds in a row.
    failures: u32,
    /// Only the last alarm that was set counts.
    alarm: u64,
    /// Which process this is.
    process: u32,
    /// What is left of the round under way, and the version of the job it is based on.
    actions: VecDeque<Action>,
    based_on: Option<String>,
    basis: Option<BuildJob>,
    missed_wake: bool,
    look_again: Option<Instant>,
}

impl Operator {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            crash_chance: [0, 0, 3, 20][usize::try_from(random.between(0, 4)).expect("small")],
            most_lag: [20, 200, 3_000][usize::try_from(random.between(0, 3)).expect("small")],
            clock_skew: random.between(-800, 800),
            ..Self::default()
        }
    }

    /// The present will be in the cache, after what is on its way already; answers when.
    pub(crate) fn see(
        &mut self,
        now: Instant,
        job: Option<BuildJob>,
        pods: BTreeMap<String, Pod>,
        random: &mut Random,
    ) -> Instant {
        let earliest = self.coming.back().map_or(now, |(at, _)| (*at).max(now));
        let at = earliest.max(now + random.between(1, self.most_lag));
        self.coming.push_back((at, View { job, pods }));
        at - now
    }

    fn catch_up(&mut self, now: Instant) {
        while self.coming.front().is_some_and(|(at, _)| *at <= now) {
            self.view = self.coming.pop_front().expect("there is one").1;
        }
    }

    pub(crate) fn ever_crashes(&self) -> bool {
        self.crash_chance > 0
    }
}

impl World {
    pub(crate) fn wake(&mut self, alarm: Option<u64>) {
        if self.operator.down || alarm.is_some_and(|alarm| alarm != self.operator.alarm) {
            return;
        }
        if self.operator.actions.is_empty() {
            self.round();
        } else {
            self.operator.missed_wake = true;
        }
    }

    /// Observe, decide; the actions follow one by one.
    fn round(&mut self) {
        self.operator.catch_up(self.now);
        let Some(job) = self.operator.view.job.clone() else {
            return;
        };
        if self.operator.recall.is_outdated(job.metadata.resource_version.as_deref()) {
            // What is newer is on its way.
            self.operator.alarm += 1;
            return self.after(STALE, Event::Wake(Some(self.operator.alarm)));
        }
        self.operator.recall.seen();
        let seen = self.observed(&job);
        let decision = decide(&seen, &self.rules);
        self.operator.based_on.clone_from(&job.metadata.resource_version);
        self.begin(&seen, decision);
        self.operator.basis = Some(job.clone());
        if job.is_terminal() {
            self.operator.states.remote = None;
        }
        self.continue_round();
    }

    fn observed<'a>(&self, job: &'a BuildJob) -> Observed<'a> {
        Observed {
            job,
            pod: self.pod(job),
            batch: None,
            creation: self.operator.recall.creation(job.status_or_default().attempt),
            explained: self.operator.recall.explained().cloned(),
            remote: self.operator.states.remote,
            unreadable: None,
            surroundings: Surroundings::default(),
            now: timestamp(self.now),
        }
    }

    /// Sets out to do what was decided.
    fn begin(&mut self, seen: &Observed<'_>, decision: Decision) {
        self.note(|_| describe(seen, &decision));
        if let Some(problem) = super::invariants::of_decision(seen, &decision) {
            self.violate(problem);
        }
        self.operator.actions = decision.actions.into();
        self.operator.look_again =
            decision.look_again.map(|wait| i64::try_from(wait.as_millis()).expect("short"));
        self.operator.states.wanted = decision.ask_remote;
        if decision.ask_remote && !self.operator.states.asking {
            self.operator.states.asking = true;
            self.after(0, Event::Ask(self.operator.process));
        }
    }

    /// The API server has no room for a pod: something else is decided in the same round.
    fn obstructed(&mut self) {
        let job = self.operator.basis.clone().expect("a round has begun");
        let decision = {
            let seen = self.observed(&job);
            let blocker = verdicts::not_created(403, "pods \"x\" is forbidden: exceeded quota: ci");
            let decision = not_created(&seen, &self.rules, &blocker);
            self.begin(&seen, decision.clone());
            decision
        };
        let retry_at = timestamp(self.now) + decision.look_again.unwrap_or_default();
        let attempt = self.job.as_ref().map_or(0, |job| job.status_or_default().attempt);
        self.operator.recall.created(attempt, Creation::Failed { retry_at });
    }

    /// The pod of the current attempt. What the cache does not have may exist all the same: if the status
    /// names it, the API server is asked.
    fn pod(&self, job: &BuildJob) -> Option<PodFacts> {
        let status = job.status_or_default();
        let tried = self.operator.recall.creation(status.attempt) != Creation::Unknown;
        let named = (status.pod_name.is_some() || tried) && !status.phase.is_terminal();
        let name = status
            .pod_name
            .unwrap_or_else(|| names::pod(job.metadata.name.as_deref().unwrap_or_default(), status.attempt));
        let cached = self.operator.view.pods.get(&name);
        cached.or_else(|| self.pods.get(&name).filter(|_| named)).map(PodFacts::of)
    }

    fn continue_round(&mut self) {
        if self.random_crash() {
            return;
        }
        if !self.operator.actions.is_empty() {
            let delay = self.random.between(1, 60);
            return self.after(delay, Event::Act);
        }
        self.operator.alarm += 1;
        if let Some(wait) = self.operator.look_again {
            self.after(wait, Event::Wake(Some(self.operator.alarm)));
        }
        if std::mem::take(&mut self.operator.missed_wake) {
            self.after(0, Event::Wake(None));
        }
    }

    pub(crate) fn act(&mut self) {
        if self.operator.down {
            return;
        }
        let Some(action) = self.operator.actions.pop_front() else {
            return;
        };
        match self.perform(action) {
            Ok(()) => self.operator.failures = 0,
            Err(failure) => {
                self.note(|_| format!("operator: {failure:?}"));
                self.operator.actions.clear();
                if matches!(failure, Failure::Quota) {
                    self.obstructed();
                } else if !matches!(failure, Failure::Refused) {
                    self.operator.look_again = Some((200 << self.operator.failures.min(7)).min(30_000));
                    self.operator.failures += 1;
                }
            }
        }
        self.continue_round();
    }

    fn perform(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::CreatePod(pod) => {
                let name = pod.metadata.name.clone().unwrap_or_default();
                if self.job.is_none() {
                    return Err(Failure::Gone);
                }
                let attempt = self.job.as_ref().map_or(0, |job| job.status_or_default().attempt);
                if self.now < self.quota_full_until {
                    return Err(Failure::Quota);
                }
                self.operator.recall.created(attempt, Creation::Done);
                if !self.pods.contains_key(&name) {
                    self.writes += 1;
                    super::invariants::before_create(self);
                    self.store_pod(*pod);
                }
            }
            Action::CreateBatchJob(_) | Action::DeleteBatchJob { .. } => {
                self.violate("this world has no batch Jobs");
            }
            Action::DeletePod { name, uid } => {
                self.writes += 1;
                super::invariants::before_delete(self, &uid);
                self.delete_pod(&name, &uid);
            }
            Action::WriteStatus(status) => return self.write_status(*status),
            Action::FinishRemote(verdict) => {
                if self.outage_left().is_some() {
                    return Err(Failure::Unreachable);
                }
                let buildkite = self.buildkite.as_mut().expect("standalone jobs are not finished remotely");
                let result = buildkite.finish(verdict.exit_status.unwrap_or(-1));
                return result.map_err(|_| Failure::Refused);
            }
            Action::Notify(verdict) => super::invariants::of_notice(self, &verdict),
            Action::Explain(reason) => self.operator.recall.told(reason, timestamp(self.now)),
            Action::DeleteJob { unrecorded } => {
                if let Some(status) = unrecorded {
                    let Some(job) = self.job.clone() else {
                        return Err(Failure::Gone);
                    };
                    if job.metadata.resource_version != self.operator.based_on {
                        return Err(Failure::Conflict);
                    }
                    super::invariants::of_status(self, &job.status_or_default(), &status);
                }
                self.writes += 1;
                self.operator.recall.deleted();
                self.job = None;
                self.publish();
                // The garbage collector takes what the job owned.
                let owned: Vec<_> = self.pods.values().map(|pod| pod.metadata.clone()).collect();
                for meta in owned {
                    self.delete_pod(&meta.name.unwrap_or_default(), &meta.uid.unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn write_status(&mut self, status: BuildJobStatus) -> Result<(), Failure> {
        let Some(job) = self.job.as_mut() else {
            return Err(Failure::Gone);
        };
        if job.metadata.resource_version != self.operator.based_on {
            return Err(Failure::Conflict);
        }
        self.operator.recall.wrote(self.operator.based_on.clone());
        let before = job.clone();
        let version: u64 = self.operator.based_on.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default();
        job.metadata.resource_version = Some((version + 1).to_string());
        self.operator.based_on.clone_from(&job.metadata.resource_version);
        job.status = Some(status);
        self.operator.basis = Some(job.clone());
        self.writes += 1;
        super::invariants::of_write(self, &before);
        self.publish();
        Ok(())
    }

    fn random_crash(&mut self) -> bool {
        let chance = self.operator.crash_chance;
        if self.crashes >= MOST_CRASHES || !self.random.chance(chance) {
            return false;
        }
        self.crashes += 1;
        self.note(|_| "operator: killed".to_owned());
        self.operator.down = true;
        self.operator.actions.clear();
        let delay = self.random.span(60_000);
        self.after(delay, Event::Restart);
        true
    }

    /// A new process: it has listed everything and remembers nothing.
    pub(crate) fn restart(&mut self) {
        let fresh = View { job: self.job.clone(), pods: self.pods.clone() };
        let operator = &mut self.operator;
        operator.down = false;
        operator.coming.clear();
        operator.view = fresh;
        operator.states = States::default();
        operator.recall = Recall::default();
        operator.missed_wake = false;
        operator.failures = 0;
        operator.alarm += 1;
        operator.process += 1;
        self.note(|_| "operator: back".to_owned());
        self.round();
    }

    /// The loop that asks for as long as somebody waits.
    pub(crate) fn ask(&mut self, process: u32) {
        if self.operator.down || self.operator.process != process {
            return;
        }
        if !self.operator.states.wanted {
            self.operator.states.asking = false;
            return;
        }
        let Some(buildkite) = &self.buildkite else {
            return self.violate("Buildkite was asked about a standalone job");
        };
        let word = Remote { state: buildkite.word(), asked_at: timestamp(self.now) };
        let delay = self.random.between(10, 700);
        if self.outage_left().is_none() {
            self.after(delay, Event::Answer(process, word));
        }
        self.after(delay + ASK_INTERVAL, Event::Ask(process));
    }

    /// Only news wakes the operator.
    pub(crate) fn answer(&mut self, process: u32, word: Remote) {
        if self.operator.down || self.operator.process != process {
            return;
        }
        let before = self.operator.states.remote.replace(word);
        if before.is_none_or(|before| before.state != word.state) {
            self.wake(None);
        }
    }
}

/// Why a step was not done.
#[derive(Debug)]
enum Failure {
    Conflict,
    Gone,
    Quota,
    Unreachable,
    /// Buildkite has settled the job without us, or an agent has it: look again.
    Refused,
}

fn describe(seen: &Observed<'_>, decision: &Decision) -> String {
    let status = seen.job.status_or_default();
    let pod = seen.pod.as_ref().map(|pod| {
        let containers: Vec<_> =
            pod.managed.iter().chain([&pod.agent]).map(|c| format!("{:?}", c.state)).collect();
        format!(
            "{} deleting={} failed={:?} [{}]",
            pod.uid,
            pod.is_deleting(),
            pod.failed,
            containers.join(", ")
        )
    });
    let actions: Vec<_> = decision.actions.iter().map(name_of).collect();
    format!(
        "operator: {:?}/{} verdict={:?} pod={} word={:?} → {} ask={} again={:?}",
        status.phase,
        status.attempt,
        status.verdict.map(|verdict| verdict.code),
        pod.unwrap_or_else(|| "none".to_owned()),
        seen.remote.map(|remote| remote.state),
        actions.join(", "),
        decision.ask_remote,
        decision.look_again,
    )
}

fn name_of(action: &Action) -> String {
    match action {
        Action::CreatePod(pod) => format!("create {}", pod.metadata.name.as_deref().unwrap_or_default()),
        Action::CreateBatchJob(_) => "create a batch Job".to_owned(),
        Action::DeletePod { uid, .. } | Action::DeleteBatchJob { uid, .. } => format!("delete {uid}"),
        Action::WriteStatus(status) => {
            let code = status.verdict.as_ref().map(|verdict| verdict.code);
            format!("write {:?}/{} {code:?}", status.phase, status.attempt)
        }
        Action::FinishRemote(verdict) => format!("finish {:?}", verdict.code),
        Action::Notify(verdict) => format!("notify {:?}", verdict.code),
        Action::Explain(reason) => format!("explain {reason}"),
        Action::DeleteJob { unrecorded } => {
            format!("delete job {:?}", unrecorded.as_ref().map(|status| status.phase))
        }
    }
}
