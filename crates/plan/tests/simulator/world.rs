//! One job's world: a clock, an API server, a node, Buildkite, an operator, and what goes wrong in it.

use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use bk_api::{BuildJob, WorkloadKind, config::NodeLeaving};
use bk_plan::{decide::Rules, remote::Remote};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    api::{Batch, Stored, Trouble},
    batch::BatchStep,
    buildkite::{Buildkite, ELSEWHERE, Outcome, State},
    faults::Fault,
    fixtures, init,
    kubelet::{Life, Step},
    node::Nodes,
    operator::Operator,
    random::Random,
    session::Sessions,
};

/// Milliseconds since the world began.
pub(crate) type Instant = i64;

/// Which of the world's pods, in the order of their creation.
pub(crate) type PodId = usize;

/// How long Buildkite waits for a sign of life from an agent.
pub(crate) const HEARTBEAT_TIMEOUT: Instant = 240_000;

pub(crate) enum Event {
    /// Something happens to a pod.
    Pod(PodId, Step),
    /// Something happens to the Job with this number.
    Batch(usize, BatchStep),
    /// The operator looks at the job, if the alarm is still the one it set.
    Wake(Option<u64>),
    /// The operator performs its next action.
    Act,
    /// The operator asks Buildkite.
    Ask(u32),
    /// The operator asks about a job that an agent has.
    Renew(u32),
    /// Buildkite's answer arrives, for the process that asked.
    Answer(u32, Remote),
    /// A new operator process takes over.
    Restart,
    /// Somebody cancels the job in Buildkite, or its time is up.
    Stop(Outcome),
    /// The reservation has run out, unless the operator extends it in time.
    Lapse,
    /// An agent elsewhere takes the job, if nobody has, or ends it.
    Elsewhere(Option<i32>),
    /// By now the job of this pod, whose agent is lost, has ended.
    Due(PodId),
    /// The operator hears that somebody has deleted the BuildJob, if it is still this process.
    Departed(u32),
    /// What people and clusters do to pods.
    Fault(Fault),
}

pub(crate) struct World {
    pub(crate) now: Instant,
    queue: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    pub(crate) random: Random,
    pub(crate) rules: &'static Rules,
    /// The API server's truth.
    pub(crate) job: Option<Rc<BuildJob>>,
    pub(crate) pods: BTreeMap<Arc<str>, Stored>,
    pub(crate) batch: Option<Batch>,
    pub(crate) batches: usize,
    pub(crate) trouble: Trouble,
    pub(crate) writes: u32,
    /// The node's truth, by pod id.
    pub(crate) lives: Vec<Life>,
    /// None for standalone jobs.
    pub(crate) buildkite: Option<Buildkite>,
    pub(crate) operator: Operator,
    pub(crate) sessions: Sessions,
    /// What the cluster says about the nodes that are not well.
    pub(crate) nodes: Nodes,
    /// How often a pod was evicted because its node was about to go.
    pub(crate) evictions: u32,
    pub(crate) rounds: u32,
    /// How often the user's command was started.
    pub(crate) starts: u32,
    /// How the user's command ended.
    pub(crate) exit: Option<i32>,
    /// Whether an init container has failed.
    pub(crate) init_failed: bool,
    /// Whether something took the pod or the agent away from a job that had not ended.
    pub(crate) disturbed: bool,
    /// The BuildJob that somebody deleted.
    pub(crate) job_deleted: Option<Rc<BuildJob>>,
    /// Whether Buildkite heard of that.
    pub(crate) told_of_departure: bool,
    pub(crate) crashes: u32,
    pub(crate) violation: Option<String>,
    trace: Option<Vec<String>>,
}

/// Where every history begins; parsing YAML a hundred thousand times would be most of the work.
struct Fixtures {
    buildkite: BuildJob,
    standalone: BuildJob,
    with_init: BuildJob,
    /// Without a broker and with one; where jobs on a node that is about to go wait, and where they are interrupted.
    rules: [[Rules; 2]; 2],
}

static FIXTURES: LazyLock<Fixtures> = LazyLock::new(|| {
    let mut with_init = fixtures::job(BUILDKITE);
    with_init.spec.kubernetes = serde_json::from_str(init::POD_SPEC).expect("the fixture is an object");
    let rules = |has_broker: bool| {
        let mut waiting = fixtures::rules();
        waiting.pod.broker = has_broker.then(fixtures::broker);
        let mut interrupting = waiting.clone();
        interrupting.pod.config.node_leaving = NodeLeaving::Interrupt;
        [waiting, interrupting]
    };
    Fixtures {
        buildkite: fixtures::job(BUILDKITE),
        standalone: fixtures::job(STANDALONE),
        with_init,
        rules: [rules(false), rules(true)],
    }
});

fn any_job(random: &mut Random) -> BuildJob {
    let mut job = match random.between(0, 20) {
        0..3 => FIXTURES.standalone.clone(),
        3..7 => FIXTURES.with_init.clone(),
        _ => FIXTURES.buildkite.clone(),
    };
    job.metadata.creation_timestamp = Some(Time(timestamp(0)));
    job.metadata.resource_version = Some("1".to_owned());
    if random.chance(50) {
        let label = (bk_api::names::LABEL_SPAWNED_FROM.to_owned(), "default".to_owned());
        job.metadata.labels = Some([label].into());
    }
    if random.chance(20) {
        job.spec.workload = Some(WorkloadKind::Job);
    }
    job
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let job = any_job(&mut random);
        let outage = if random.chance(10) {
            let begin = random.between(0, 30_000);
            // Most are over in two minutes, and some last an hour.
            let length = if random.chance(10) { 3_600_000 } else { random.span(120_000) };
            begin..begin + length
        } else {
            0..0
        };
        let are_kept = random.chance(50);
        let mut world = Self {
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            operator: Operator::new(&mut random),
            rules: &FIXTURES.rules[usize::from(are_kept)][usize::from(random.chance(50))],
            sessions: Sessions { are_kept, ..Sessions::default() },
            nodes: Nodes::new(),
            evictions: 0,
            buildkite: job.spec.buildkite.is_some().then(|| Buildkite::new(outage)),
            job: Some(Rc::new(job)),
            pods: BTreeMap::new(),
            batch: None,
            batches: 0,
            trouble: Trouble::new(&mut random),
            random,
            writes: 0,
            lives: Vec::new(),
            rounds: 0,
            starts: 0,
            exit: None,
            init_failed: false,
            disturbed: false,
            job_deleted: None,
            told_of_departure: false,
            crashes: 0,
            violation: None,
            trace: traced.then(Vec::new),
        };
        world.plan_faults();
        world.publish_job();
        world
    }

    fn plan_faults(&mut self) {
        if self.random.chance(30) {
            let at = self.random.span(90_000);
            self.after(at, Event::Stop(Outcome::Canceled));
        }
        if self.random.chance(8) {
            let at = self.random.span(90_000);
            self.after(at, Event::Stop(Outcome::TimedOut));
        }
        if self.random.chance(10) {
            let at = self.random.span(120_000);
            self.after(at, Event::Lapse);
        }
        let faults = if self.random.chance(50) { 0 } else { self.random.between(1, 4) };
        for _ in 0..faults {
            let fault = Fault::any(&mut self.random);
            let at = self.random.span(60_000);
            self.after(at, Event::Fault(fault));
        }
    }

    /// Plans an event.
    pub(crate) fn after(&mut self, delay: Instant, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), event);
    }

    /// Lets the next event happen; false when nothing will happen any more.
    pub(crate) fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else {
            return false;
        };
        self.now = at;
        match event {
            Event::Pod(pod, step) => self.live(pod, step),
            Event::Batch(batch, step) => self.batch_step(batch, step),
            Event::Wake(alarm) => self.wake(alarm),
            Event::Act => self.act(),
            Event::Ask(process) => self.ask(process),
            Event::Renew(process) => self.renew(process),
            Event::Answer(process, word) => self.answer(process, word),
            Event::Restart => self.restart(),
            Event::Stop(outcome) => self.stop(outcome),
            Event::Lapse => self.lapse(),
            Event::Elsewhere(end) => self.elsewhere(end),
            Event::Departed(process) => self.depart(process),
            Event::Due(pod) => self.due(pod),
            Event::Fault(fault) => self.fault(fault),
        }
        true
    }

    /// Whether all that the job brought into the world has left it.
    pub(crate) fn is_clean(&self) -> bool {
        self.job.is_none() && self.pods.is_empty() && self.batch.is_none()
    }

    fn stop(&mut self, outcome: Outcome) {
        let Some(buildkite) = &mut self.buildkite else {
            return;
        };
        let agent = buildkite.stop(outcome);
        self.note(|world| {
            format!("Buildkite: {outcome:?} → {:?}", world.buildkite.as_ref().map(|b| &b.state))
        });
        if let Some(agent) = agent {
            let delay = self.random.between(10, 3_000);
            self.after(delay, Event::Pod(agent, Step::StopNoticed));
        }
    }

    /// The job is back in its queue, where anybody's agent may take it. An operator that is there extends most reservations.
    fn lapse(&mut self) {
        if self.operator.is_up() && self.random.chance(60) {
            let held = self.random.between(1_000, 60_000);
            return self.after(held, Event::Lapse);
        }
        if self.buildkite.as_ref().is_some_and(|buildkite| buildkite.state == State::Waiting) {
            self.note(|_| "Buildkite: the reservation runs out".to_owned());
            let delay = self.random.span(60_000);
            self.after(delay, Event::Elsewhere(None));
        }
    }

    fn elsewhere(&mut self, end: Option<i32>) {
        let Some(buildkite) = &mut self.buildkite else {
            return;
        };
        if let Some(exit) = end {
            return self.report(ELSEWHERE, exit);
        }
        if buildkite.acquire(ELSEWHERE).is_ok() {
            self.disturbed = true;
            self.note(|_| "Buildkite: an agent elsewhere takes the job".to_owned());
            let (exit, delay) = (self.random.between(0, 2), self.random.span(200_000));
            self.after(delay, Event::Elsewhere(Some(i32::try_from(exit).expect("small"))));
        }
    }

    /// Buildkite will miss this agent's heartbeat.
    pub(crate) fn lose_agent(&mut self, pod: PodId) {
        if !self.has_job(pod) {
            return;
        }
        self.after(HEARTBEAT_TIMEOUT, Event::Pod(pod, Step::HeartbeatMissed));
        // Of what happens on a node that is cut off nobody hears: its silence counts.
        if self.lives[pod].cut_until <= self.now {
            self.await_end(pod);
        }
    }

    /// Whether operator and agents can talk to Buildkite; if not, for how long.
    pub(crate) fn outage_left(&self) -> Option<Instant> {
        let outage = &self.buildkite.as_ref()?.outage;
        outage.contains(&self.now).then(|| outage.end - self.now)
    }

    pub(crate) fn violate(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.note(|_| format!("VIOLATION {text}"));
        self.violation.get_or_insert(text);
    }

    /// Writes a line of the trace, if anybody wants one.
    pub(crate) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line =
                format!("{:>9.3}  {}", SignedDuration::from_millis(self.now).as_secs_f64(), line(self));
            self.trace.get_or_insert_default().push(line);
        }
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }
}

/// The wall clock.
pub(crate) fn timestamp(at: Instant) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + at).expect("in range")
}

/// The wall clock as Kubernetes writes it: whole seconds, rounded down.
pub(crate) fn whole_seconds(at: Instant) -> Time {
    Time(Timestamp::from_second(1_800_000_000 + at.div_euclid(1_000)).expect("in range"))
}

const BUILDKITE: &str = "
spec:
  buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }
  command: make test
  image: busybox
";

const STANDALONE: &str = "
spec:
  command: make test
  source: { repo: https://example.com/repo.git }
  image: busybox
";
