//! The operator's shell: caches that lag, one round at a time, and crashes between any two actions.

mod describe;

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

use bk_api::{BuildJob, WorkloadKind, names};
use bk_plan::{
    decide::{Action, Decision, Observed, decide, not_created, outrun},
    facts::PodFacts,
    recall::{Creation, Recall},
    remote::Remote,
    surroundings::Surroundings,
    verdicts::{self, Blocker},
};
use describe::describe;
use k8s_openapi::api::core::v1::Pod;

use super::{
    api::{Batch, Fate},
    decisions, invariants,
    node::Nodes,
    random::Random,
    world::{Event, Instant, World, timestamp},
};

/// Time between two questions to Buildkite about a job.
const ASK_INTERVAL: Instant = 500;
/// Time between two questions about a job that an agent has, and that nobody wants to hear about.
const LEASE: Instant = 300_000;
const MOST_CRASHES: u32 = 8;
/// How soon to look again when the cache shows what has been overwritten.
const STALE: Instant = 5_000;
/// How soon to look again when Buildkite has refused to end the job.
const UNSETTLED: Instant = 5_000;

type Pods = BTreeMap<Arc<str>, Rc<PodFacts>>;

/// Pods, the Job around one, and the nodes.
pub(crate) type View = (Pods, Option<Batch>, Nodes);

/// What a watch shows: the present, and what is on its way.
struct Cache<T> {
    view: T,
    coming: VecDeque<(Instant, T)>,
}

impl<T> Cache<T> {
    /// What happens now will be seen after what is on its way already; answers when.
    fn see(&mut self, now: Instant, at: Instant, view: T) -> Instant {
        let at = self.coming.back().map_or(at, |(last, _)| (*last).max(at));
        self.coming.push_back((at, view));
        at - now
    }

    /// Brings the view up to date, and shows what it was meanwhile.
    fn catch_up(&mut self, now: Instant, mut shown: impl FnMut(&T)) {
        while self.coming.front().is_some_and(|(at, _)| *at <= now) {
            self.view = self.coming.pop_front().expect("there is one").1;
            shown(&self.view);
        }
    }
}

impl<T: Default> Default for Cache<T> {
    fn default() -> Self {
        Self { view: T::default(), coming: VecDeque::new() }
    }
}

/// Buildkite's word, in memory only.
#[derive(Default)]
struct States {
    remote: Option<Remote>,
    /// A younger word is wanted.
    wanted: bool,
    /// The loop that asks is under way.
    asking: bool,
    /// The next answer is the first to a question.
    is_new: bool,
}

#[derive(Default)]
pub(crate) struct Operator {
    down: bool,
    /// In per cent, at each boundary of actions.
    crash_chance: i64,
    most_lag: Instant,
    /// In per cent: how often a watch breaks, and is quiet until it is made anew.
    gap_chance: i64,
    /// How far the node's clock is ahead of the operator's.
    pub(crate) clock_skew: Instant,
    /// By how much somebody has set the operator's clock.
    pub(crate) clock_step: Instant,
    jobs: Cache<Option<Rc<BuildJob>>>,
    pods: Cache<View>,
    states: States,
    /// What this process has done that the cache may not show.
    pub(super) recall: Recall,
    /// Failed rounds in a row.
    failures: u32,
    /// Only the last alarm that was set counts.
    alarm: u64,
    /// Which process this is.
    process: u32,
    /// What is left of the round under way, and the version of the job it is based on.
    actions: VecDeque<Action>,
    pub(super) based_on: Option<String>,
    /// What the round is based on: the job as it was seen or has been written since, and Buildkite's word.
    pub(super) basis: Option<(Rc<BuildJob>, Option<Remote>)>,
    missed_wake: bool,
    look_again: Option<Instant>,
}

/// Why a step was not done.
pub(crate) enum Failure {
    Conflict,
    Gone,
    /// The API server fails.
    Api,
    /// It does not take the pod.
    NotCreated(Box<Blocker>),
    /// Buildkite cannot be reached.
    Unreachable,
    /// Buildkite has settled the job without us, or an agent has it: look again.
    Refused,
    /// Buildkite would not have the job ended for its agent.
    Outrun,
}

impl Operator {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            crash_chance: [0, 0, 3, 20][usize::try_from(random.between(0, 4)).expect("small")],
            most_lag: [20, 200, 3_000][usize::try_from(random.between(0, 3)).expect("small")],
            gap_chance: [0, 0, 2, 10][usize::try_from(random.between(0, 4)).expect("small")],
            clock_skew: random.between(-800, 800),
            ..Self::default()
        }
    }

    /// When something that happens now will be seen.
    fn visible_at(&self, now: Instant, random: &mut Random) -> Instant {
        let gap = if random.chance(self.gap_chance) { random.between(1_000, 20_000) } else { 0 };
        now + random.between(1, self.most_lag) + gap
    }

    /// The BuildJob as it is now will be in the cache; answers when.
    pub(crate) fn see_job(
        &mut self,
        now: Instant,
        job: Option<Rc<BuildJob>>,
        random: &mut Random,
    ) -> Instant {
        let at = self.visible_at(now, random);
        self.jobs.see(now, at, job)
    }

    /// The pods as they are now will be in the cache, which knows nothing of the other; answers when.
    pub(crate) fn see_pods(&mut self, now: Instant, view: View, random: &mut Random) -> Instant {
        let at = self.visible_at(now, random);
        self.pods.see(now, at, view)
    }

    /// Whether the cache may show a pod as it was long ago.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gap_chance > 0
    }

    /// What Buildkite has said, as far as it still counts.
    fn word(&self) -> Option<Remote> {
        self.states.remote.filter(|remote| self.recall.still_counts(remote))
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.down
    }

    /// Which process this is.
    pub(crate) fn process(&self) -> u32 {
        self.process
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
        self.catch_up();
        let Some(job) = self.operator.jobs.view.clone() else {
            return;
        };
        if self.operator.recall.is_outdated(job.metadata.resource_version.as_deref()) {
            // What is newer is on its way.
            self.operator.alarm += 1;
            return self.after(STALE, Event::Wake(Some(self.operator.alarm)));
        }
        self.rounds += 1;
        self.operator.recall.seen();
        let remote = self.operator.word();
        let seen = self.observed(&job);
        if seen.pod.is_some() || seen.batch.is_some() {
            self.operator.recall.saw(attempt(&job));
        }
        let decision = decide(&seen, self.rules);
        let is_settled = job.is_terminal() && !decision.ask_remote;
        self.operator.based_on.clone_from(&job.metadata.resource_version);
        self.begin(&seen, decision);
        drop(seen);
        if is_settled {
            self.operator.states.remote = None;
        }
        self.operator.basis = Some((job, remote));
        self.continue_round();
    }

    /// Whatever the watch has shown of the pod that could not be created, or of the Job around it, has been created.
    fn catch_up(&mut self) {
        let Operator { jobs, pods, recall, .. } = &mut self.operator;
        jobs.catch_up(self.now, |_| {});
        let Some(job) = &jobs.view else {
            return pods.catch_up(self.now, |_| {});
        };
        let attempt = attempt(job);
        let name = names::pod(job.metadata.name.as_deref().unwrap_or_default(), attempt);
        pods.catch_up(self.now, |(pods, batch, _)| {
            if pods.contains_key(name.as_str()) || batch.as_ref().is_some_and(|batch| *batch.name == *name) {
                recall.saw(attempt);
            }
        });
    }

    fn observed<'a>(&self, job: &'a BuildJob) -> Observed<'a> {
        let (pod, batch) = self.workload(job);
        let nodes = &self.operator.pods.view.2;
        let node = pod.as_ref().and_then(|pod| nodes.get(&pod.uid).cloned());
        Observed {
            job,
            pod: pod.map(|facts| (*facts).clone()),
            batch: batch.as_ref().map(Batch::facts),
            creation: self.operator.recall.creation(attempt(job)),
            remote: self.operator.word(),
            has_session: self.session(attempt(job)).is_some() && self.operator.recall.can_speak(attempt(job)),
            node,
            unreadable: None,
            explained: self.operator.recall.explained().cloned(),
            surroundings: Surroundings::default(),
            now: timestamp(self.now + self.operator.clock_step),
        }
    }

    /// Sets out to do what was decided.
    fn begin(&mut self, seen: &Observed<'_>, decision: Decision) {
        self.note(|_| describe(seen, &decision));
        if let Some(problem) = decisions::of_decision(seen, &decision) {
            self.violate(problem);
        }
        self.operator.actions = decision.actions.into();
        self.operator.look_again =
            decision.look_again.map(|wait| i64::try_from(wait.as_millis()).expect("short"));
        let states = &mut self.operator.states;
        states.is_new |= decision.ask_remote && !states.wanted;
        states.wanted = decision.ask_remote;
        if decision.ask_remote && !self.operator.states.asking {
            self.operator.states.asking = true;
            self.after(0, Event::Ask(self.operator.process));
        }
    }

    /// The pod of the current attempt, and the Job around it. What the cache does not have may exist all the same:
    /// if it should exist, the API server is asked.
    fn workload(&self, job: &BuildJob) -> (Option<Rc<PodFacts>>, Option<Batch>) {
        let status = job.status_or_default();
        let tried = self.operator.recall.creation(status.attempt) != Creation::Unknown;
        let has_registered = self.session(status.attempt).is_some();
        let recorded = status.pod_name.is_some() || status.job_name.is_some() || has_registered;
        let ask = (recorded || tried) && !status.phase.is_terminal();
        let name = names::pod(job.metadata.name.as_deref().unwrap_or_default(), status.attempt);
        let (pods, batch, _) = &self.operator.pods.view;
        if job.spec.workload == Some(WorkloadKind::Job) {
            let named = |batch: &&Batch| *batch.name == *name;
            let found = batch.as_ref().filter(named);
            let found = found.or_else(|| self.batch.as_ref().filter(|_| ask).filter(named)).cloned();
            let belongs = |pod: &&Rc<PodFacts>| pod.name.starts_with(&format!("{name}-"));
            let live = || self.pods.values().map(|stored| &stored.facts).find(belongs).filter(|_| ask);
            let pod = found.as_ref().and_then(|_| pods.values().find(belongs).or_else(live).cloned());
            return (pod, found);
        }
        let live = || self.pods.get(name.as_str()).filter(|_| ask).map(|stored| stored.facts.clone());
        (pods.get(name.as_str()).cloned().or_else(live), None)
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
            Err(failure) => self.fail(failure),
        }
        self.continue_round();
    }

    /// The rest of the round makes no sense any more.
    fn fail(&mut self, failure: Failure) {
        self.note(|_| format!("operator: {}", describe::failure(&failure)));
        self.operator.actions.clear();
        match failure {
            Failure::Refused => self.operator.look_again = Some(UNSETTLED),
            Failure::NotCreated(blocker) => self.obstructed(&blocker),
            Failure::Outrun => self.outrun(),
            _ => {
                self.operator.look_again = Some((200 << self.operator.failures.min(7)).min(30_000));
                self.operator.failures += 1;
            }
        }
    }

    /// The API server does not take a pod: something else is decided in the same round.
    fn obstructed(&mut self, blocker: &Blocker) {
        let (job, remote) = self.operator.basis.clone().expect("a round has begun");
        let seen = Observed { pod: None, batch: None, remote, ..self.observed(&job) };
        let decision = not_created(&seen, self.rules, blocker);
        let retry_at = seen.now + decision.look_again.unwrap_or_default();
        self.begin(&seen, decision);
        let attempt = self.job.as_deref().map(attempt).unwrap_or_default();
        self.operator.recall.created(attempt, Creation::Failed { retry_at });
    }

    /// The agent does not have the job any more: the same.
    fn outrun(&mut self) {
        let (job, remote) = self.operator.basis.clone().expect("a round has begun");
        let seen = Observed { remote, ..self.observed(&job) };
        let decision = outrun(&seen, self.rules);
        self.begin(&seen, decision);
    }

    fn perform(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::CreatePod(pod) => self.create(|world| {
                let name = pod.metadata.name.clone().unwrap_or_default();
                if !world.pods.contains_key(name.as_str()) {
                    world.writes += 1;
                    invariants::before_create(world);
                    world.store_pod(*pod);
                }
            })?,
            Action::CreateBatchJob(batch) => self.create(|world| {
                let name = batch.metadata.name.clone().unwrap_or_default();
                if world.batch.as_ref().is_none_or(|batch| *batch.name != *name) {
                    world.writes += 1;
                    let template = batch.spec.map(|spec| spec.template).unwrap_or_default();
                    let metadata = template.metadata.unwrap_or_default();
                    world.store_batch(name.into(), Pod { metadata, spec: template.spec, status: None });
                }
            })?,
            Action::DeletePod { uid, .. } => {
                let pod = self.pods.values().find(|stored| stored.facts.uid == uid).map(|stored| stored.id);
                self.write(|world| {
                    if let Some(pod) = pod {
                        invariants::before_delete(world, pod);
                        world.delete_pod(pod);
                    }
                })?;
            }
            Action::DeleteBatchJob { uid, .. } => self.write(|world| {
                if world.batch.as_ref().is_some_and(|batch| batch.uid() == uid) {
                    world.delete_batch();
                }
            })?,
            Action::WriteStatus(status) => return self.write_status(*status),
            Action::FinishRemote(verdict) => return self.finish(verdict.exit_status.unwrap_or(-1)),
            Action::Notify(verdict) => invariants::of_notice(self, &verdict),
            Action::Explain(reason) => {
                let now = timestamp(self.now + self.operator.clock_step);
                self.operator.recall.told(reason, now);
            }
            Action::Remark(_) => {}
            Action::EndForAgent(verdict) => return self.end_for_agent(&verdict),
            Action::EvictPod { uid, .. } => return self.evict_by_request(&uid),
            Action::DeleteJob { unrecorded } => return self.delete_job(unrecorded.as_deref()),
        }
        Ok(())
    }

    /// Creates something, unless there is no room or a policy is against it. Some answers leave open whether it was done.
    fn create(&mut self, store: impl FnOnce(&mut Self)) -> Result<(), Failure> {
        let attempt = self.job.as_deref().map(attempt).unwrap_or_default();
        if self.job.is_none() {
            return Err(Failure::Gone);
        }
        let answer = if self.trouble.has_no_room(self.now) {
            (403, "pods \"x\" is forbidden: exceeded quota: ci")
        } else if self.trouble.refuses {
            (403, "admission webhook \"policy\" denied the request")
        } else {
            match self.fate() {
                Fate::Done => {
                    store(self);
                    self.operator.recall.created(attempt, Creation::Done);
                    return Ok(());
                }
                Fate::Refused => (429, "too many requests"),
                Fate::Lost => (500, "etcdserver: leader changed"),
                Fate::DoneUnheard => {
                    store(self);
                    // It is looked for at once, if the API server answers that.
                    if self.random.chance(50) {
                        self.operator.recall.created(attempt, Creation::Done);
                        return Ok(());
                    }
                    (504, "the server was unable to return a response in the time allotted")
                }
            }
        };
        Err(Failure::NotCreated(Box::new(verdicts::not_created(answer.0, answer.1))))
    }

    /// Makes a write, whose answer may get lost.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Self)) -> Result<(), Failure> {
        match self.fate() {
            Fate::Refused | Fate::Lost => Err(Failure::Api),
            Fate::Done => {
                write(self);
                Ok(())
            }
            Fate::DoneUnheard => {
                write(self);
                Err(Failure::Api)
            }
        }
    }

    fn finish(&mut self, exit: i32) -> Result<(), Failure> {
        if self.outage_left().is_some() {
            return Err(Failure::Unreachable);
        }
        let unheard = matches!(self.fate(), Fate::DoneUnheard);
        let buildkite = self.buildkite.as_mut().expect("standalone jobs are not finished remotely");
        let result = buildkite.finish(exit).map_err(|_| Failure::Refused);
        if unheard { Err(Failure::Unreachable) } else { result }
    }

    fn delete_job(&mut self, unrecorded: Option<&bk_api::BuildJobStatus>) -> Result<(), Failure> {
        let Some(job) = self.job.clone() else {
            return if unrecorded.is_some() { Err(Failure::Gone) } else { Ok(()) };
        };
        if let Some(status) = unrecorded {
            if job.metadata.resource_version != self.operator.based_on {
                return Err(Failure::Conflict);
            }
            invariants::of_status(self, &job.status_or_default(), status);
        }
        self.write(|world| {
            world.writes += 1;
            world.remove_job();
        })?;
        self.operator.recall.deleted();
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
        let pods = self.pods.iter().map(|(name, stored)| (name.clone(), stored.facts.clone())).collect();
        let fresh = (self.job.clone(), (pods, self.batch.clone(), self.nodes.clone()));
        let operator = &mut self.operator;
        operator.down = false;
        operator.jobs = Cache { view: fresh.0, coming: VecDeque::new() };
        operator.pods = Cache { view: fresh.1, coming: VecDeque::new() };
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
        if !self.operator.states.wanted || self.operator.jobs.view.is_none() {
            self.operator.states.asking = false;
            return;
        }
        let delay = self.question(process);
        self.after(delay + ASK_INTERVAL, Event::Ask(process));
    }

    /// A job that an agent has is asked about from time to time.
    pub(crate) fn renew(&mut self, process: u32) {
        let acquired = self.operator.states.remote.is_some_and(|remote| remote.state.is_acquired());
        if !self.operator.down && self.operator.process == process && acquired {
            self.question(process);
            self.after(LEASE, Event::Renew(process));
        }
    }

    /// Asks Buildkite, which answers if it can be reached, and says how long that takes.
    fn question(&mut self, process: u32) -> Instant {
        let delay = self.random.between(10, 700);
        let Some(buildkite) = &self.buildkite else {
            self.violate("Buildkite was asked about a standalone job");
            return delay;
        };
        let asked_at = timestamp(self.now + self.operator.clock_step);
        let word = Remote { state: buildkite.word(), asked_at };
        if self.outage_left().is_none() {
            self.after(delay, Event::Answer(process, word));
        }
        delay
    }

    /// News wakes the operator, and so does the first answer to a question.
    pub(crate) fn answer(&mut self, process: u32, word: Remote) {
        if self.operator.down || self.operator.process != process {
            return;
        }
        let before = self.operator.states.remote.replace(word).map(|before| before.state);
        if before != Some(word.state) && word.state.is_acquired() {
            self.after(LEASE, Event::Renew(process));
        }
        if std::mem::take(&mut self.operator.states.is_new) || before != Some(word.state) {
            self.wake(None);
        }
    }
}

fn attempt(job: &BuildJob) -> u32 {
    job.status.as_ref().map_or(0, |status| status.attempt)
}
