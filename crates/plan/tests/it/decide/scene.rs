//! A way to write down what is observed, and to read what is decided.
//!
//! Times are seconds since the BuildJob was created.

use bk_api::{
    BuildJob, BuildJobSpec, BuildJobStatus, Phase, Verdict, VerdictCode, build_job::WorkloadKind,
    config::NodeLeaving, names,
};
use bk_plan::{
    batch::BatchFacts,
    decide::{Action, Decision, Observed, decide, not_created, outrun},
    facts::{ContainerFacts, ContainerState, Ended, NodeFacts, PodFacts, Told},
    plugin::PluginError,
    recall::{Creation, Explained},
    remote::{Remote, RemoteState},
    surroundings::Surroundings,
    verdicts,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::fixtures::{job, rules};

/// What is observed.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) job: BuildJob,
    pub(crate) pod: Option<PodFacts>,
    batch: Option<BatchFacts>,
    pub(crate) remote: Option<Remote>,
    has_session: bool,
    node: Option<NodeFacts>,
    creation: Creation,
    explained: Option<Explained>,
    unreadable: Option<PluginError>,
    pub(crate) now: Timestamp,
}

pub(crate) fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("in range")
}

/// A job of Buildkite's, just created.
pub(crate) fn buildkite() -> Scene {
    scene("spec: { buildkite: { jobUUID: 0198f0a0-0000-7000-8000-000000000001 }, command: make }")
}

/// A standalone job, just created.
pub(crate) fn standalone() -> Scene {
    scene("spec: { command: make }")
}

/// A job from YAML, just created.
pub(crate) fn scene(yaml: &str) -> Scene {
    let mut job = job(yaml);
    job.metadata.creation_timestamp = Some(Time(time(0)));
    Scene {
        job,
        pod: None,
        batch: None,
        remote: None,
        has_session: false,
        node: None,
        creation: Creation::Unknown,
        explained: None,
        unreadable: None,
        now: time(0),
    }
}

impl Scene {
    fn status(mut self, change: impl FnOnce(&mut BuildJobStatus)) -> Self {
        change(self.job.status.get_or_insert_default());
        self
    }

    /// The pod of this attempt is on record.
    pub(crate) fn starting(self, attempt: u32) -> Self {
        self.status(|status| {
            status.phase = Phase::Starting;
            status.attempt = attempt;
            status.pod_name = Some(names::pod("nightly", attempt));
        })
    }

    /// All containers have started, at this time.
    pub(crate) fn running_since(self, seconds: i64) -> Self {
        self.starting(0).status(|status| {
            status.phase = Phase::Running;
            status.started_at = Some(Time(time(seconds)));
            status.node_name = Some("node-1".to_owned());
        })
    }

    pub(crate) fn attempt(self, attempt: u32) -> Self {
        self.status(|status| status.attempt = attempt)
    }

    /// A verdict is on record, and the phase is not terminal yet.
    pub(crate) fn judged(self, code: VerdictCode) -> Self {
        self.status(|status| status.verdict = Some(verdict(code)))
    }

    pub(crate) fn ended(self, phase: Phase, seconds: i64) -> Self {
        self.status(|status| {
            status.phase = phase;
            status.finished_at = Some(Time(time(seconds)));
            status.verdict = Some(verdict(VerdictCode::Passed));
        })
    }

    pub(crate) fn waiting_for(self, text: &str) -> Self {
        self.status(|status| status.waiting_for = Some(text.to_owned()))
    }

    pub(crate) fn spawned(mut self) -> Self {
        let label = (names::LABEL_SPAWNED_FROM.to_owned(), "default".to_owned());
        self.job.metadata.labels = Some([label].into());
        self
    }

    pub(crate) fn deleted(mut self) -> Self {
        self.job.metadata.deletion_timestamp = Some(Time(time(0)));
        self
    }

    /// The pod stands, or is to stand, in a Job.
    pub(crate) fn batch(mut self, batch: BatchFacts) -> Self {
        self.batch = Some(batch);
        self.in_job()
    }

    /// The pod is to stand in a Job.
    pub(crate) fn in_job(mut self) -> Self {
        self.job.spec.workload = Some(WorkloadKind::Job);
        self
    }

    /// The pod could not be created since then, and it is said why.
    pub(crate) fn not_created_since(self, seconds: i64, waiting_for: &str) -> Self {
        self.waiting_for(waiting_for).status(|status| {
            status.conditions = vec![Condition {
                type_: "PodCreated".to_owned(),
                status: "False".to_owned(),
                reason: "QuotaExceeded".to_owned(),
                message: waiting_for.to_owned(),
                observed_generation: None,
                last_transition_time: Time(time(seconds)),
            }];
        })
    }

    /// The job, with this spec.
    pub(crate) fn spec(mut self, change: impl FnOnce(&mut BuildJobSpec)) -> Self {
        change(&mut self.job.spec);
        self
    }

    /// Buildkite was told that the job waits for this.
    pub(crate) fn explained(mut self, text: &str, seconds: i64) -> Self {
        self.explained = Some(Explained { text: text.to_owned(), at: time(seconds) });
        self
    }

    /// What this process knows about the creation of the pod.
    pub(crate) fn creation(mut self, creation: Creation) -> Self {
        self.creation = creation;
        self
    }

    /// A standalone job's pod is named, and may exist.
    pub(crate) fn announced(self) -> Self {
        self.status(|status| status.pod_name = Some("nightly".to_owned()))
    }

    pub(crate) fn unreadable(mut self) -> Self {
        self.unreadable = Some(PluginError::NotOneKey { index: 0 });
        self
    }

    pub(crate) fn pod(mut self, pod: PodFacts) -> Self {
        let attempt = self.job.status_or_default().attempt;
        self.pod = Some(PodFacts { name: names::pod("nightly", attempt), ..pod });
        self
    }

    /// Buildkite's word, and when it was asked for.
    pub(crate) fn word(mut self, state: RemoteState, seconds: i64) -> Self {
        self.remote = Some(Remote { state, asked_at: time(seconds) });
        self
    }

    /// Buildkite has not said anything yet.
    pub(crate) fn unheard(mut self) -> Self {
        self.remote = None;
        self
    }

    /// The agent in the pod has registered by way of the operator.
    pub(crate) fn with_session(mut self) -> Self {
        self.has_session = true;
        self
    }

    /// The node is none of the cluster's any more, since then.
    pub(crate) fn node_deleted(mut self, seconds: i64) -> Self {
        self.node = Some(NodeFacts::deleted("node-1".to_owned(), time(seconds)));
        self
    }

    /// The node has not been heard of since then.
    pub(crate) fn silent_since(mut self, seconds: i64) -> Self {
        self.node.get_or_insert_default().silent_since = Some(time(seconds));
        self
    }

    /// The node says that it is about to go.
    pub(crate) fn leaving(mut self) -> Self {
        self.node.get_or_insert_default().leaving = Some("karpenter.sh/disrupted".to_owned());
        self
    }

    pub(crate) fn at(mut self, seconds: i64) -> Self {
        self.now = time(seconds);
        self
    }

    pub(crate) fn observed(&self) -> Observed<'_> {
        Observed {
            job: &self.job,
            pod: self.pod.clone(),
            batch: self.batch.clone(),
            creation: self.creation,
            explained: self.explained.clone(),
            remote: self.remote,
            has_session: self.has_session,
            node: self.node.clone(),
            surroundings: Surroundings::default(),
            unreadable: self.unreadable.clone(),
            now: self.now,
        }
    }

    pub(crate) fn decision(&self) -> Decision {
        decide(&self.observed(), &rules())
    }

    /// What is decided, in words.
    pub(crate) fn decides(&self) -> String {
        words_of(&self.decision())
    }

    /// What is decided, in words, when jobs on nodes that are about to go are interrupted.
    pub(crate) fn decides_to_interrupt(&self) -> String {
        let mut rules = rules();
        rules.pod.config.node_leaving = NodeLeaving::Interrupt;
        words_of(&decide(&self.observed(), &rules))
    }

    /// What is decided, in words, when Buildkite would not have the job ended for its agent.
    pub(crate) fn decides_when_outrun(&self) -> String {
        words_of(&outrun(&self.observed(), &rules()))
    }

    /// What is decided, in words, when the API server has answered the pod's creation with this.
    pub(crate) fn decides_when_answered(&self, status: u16, message: &str) -> String {
        words_of(&not_created(&self.observed(), &rules(), &verdicts::not_created(status, message)))
    }

    /// The status that is written last.
    pub(crate) fn written(&self) -> BuildJobStatus {
        let written = self.decision().actions.into_iter().rev().find_map(|action| match action {
            Action::WriteStatus(status) => Some(*status),
            _ => None,
        });
        written.expect("a status is written")
    }

    /// The verdict that is written last, in words.
    pub(crate) fn reason(&self) -> String {
        let verdict = self.decision().actions.into_iter().rev().find_map(|action| match action {
            Action::WriteStatus(status) => status.verdict,
            Action::DeleteJob { unrecorded } => unrecorded?.verdict,
            _ => None,
        });
        verdict.map(|verdict| verdict.message).unwrap_or_default()
    }
}

/// A decision, in words.
pub(crate) fn words_of(decision: &Decision) -> String {
    let mut words: Vec<_> = decision.actions.iter().map(in_words).collect();
    if decision.ask_remote {
        words.push("ask".to_owned());
    }
    if let Some(wait) = decision.look_again {
        words.push(format!("again in {wait:#}"));
    }
    words.join("; ")
}

fn in_words(action: &Action) -> String {
    match action {
        Action::CreatePod(pod) => format!("create {}", pod.metadata.name.as_deref().unwrap_or_default()),
        Action::CreateBatchJob(job) => {
            format!("create Job {}", job.metadata.name.as_deref().unwrap_or_default())
        }
        Action::DeletePod { name, uid, at_once } => {
            format!("delete {name} {uid}{}", if *at_once { " at once" } else { "" })
        }
        Action::DeleteBatchJob { name, uid } => format!("delete Job {name} {uid}"),
        Action::WriteStatus(status) => {
            let words = [
                Some(format!("write {:?}", status.phase)),
                (status.attempt > 0).then(|| format!("#{}", status.attempt)),
                status.verdict.as_ref().map(|verdict| format!("{:?}", verdict.code)),
                status.exit_status.map(|exit_status| exit_status.to_string()),
                status.waiting_for.as_ref().map(|reason| format!("(waits for {reason})")),
            ];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        Action::FinishRemote(verdict) => {
            format!("finish {:?} {}", verdict.code, verdict.exit_status.unwrap_or_default())
        }
        Action::EndForAgent(verdict) => {
            format!("end {:?} {}", verdict.code, verdict.exit_status.unwrap_or_default())
        }
        Action::EvictPod { name, uid } => format!("evict {name} {uid}"),
        Action::Notify(verdict) => format!("notify {:?}", verdict.code),
        Action::Remark(_) => "remark".to_owned(),
        Action::Explain(reason) => format!("explain {}", reason.split(' ').next().unwrap_or_default()),
        Action::DeleteJob { unrecorded: None } => "delete the job".to_owned(),
        Action::DeleteJob { unrecorded: Some(status) } => format!("delete the job, {:?}", status.phase),
    }
}

pub(crate) fn verdict(code: VerdictCode) -> Verdict {
    Verdict { exit_status: Some(-1), ..Verdict::new(code, "as recorded") }
}

/// A pod with one managed container, created after a second.
pub(crate) fn pod(managed: ContainerState, agent: ContainerState) -> PodFacts {
    PodFacts {
        uid: "u1".to_owned(),
        created_at: Some(time(1)),
        accepted_at: Some(time(1)),
        started_at: Some(time(2)),
        node: Some("node-1".to_owned()),
        managed: vec![container("container-0", managed)],
        agent: container("agent", agent),
        ..PodFacts::default()
    }
}

/// A Job around the pod, created after a second.
pub(crate) fn batch_job() -> BatchFacts {
    BatchFacts {
        name: "nightly".to_owned(),
        uid: "j1".to_owned(),
        active_since: Some(time(1)),
        is_deleting: false,
        is_suspended: false,
        has_run: false,
        failed: None,
        events: Vec::new(),
    }
}

/// Created at this time.
pub(crate) fn created(seconds: i64, pod: PodFacts) -> PodFacts {
    PodFacts { created_at: Some(time(seconds)), accepted_at: None, ..pod }
}

/// Taken by a kubelet at this time.
pub(crate) fn accepted(seconds: i64, pod: PodFacts) -> PodFacts {
    PodFacts { accepted_at: Some(time(seconds)), ..pod }
}

pub(crate) fn container(name: &str, state: ContainerState) -> ContainerFacts {
    let ready = state == ContainerState::Running;
    ContainerFacts {
        name: name.to_owned(),
        image: "busybox".to_owned(),
        state,
        ready,
        ..ContainerFacts::default()
    }
}

pub(crate) fn pending() -> ContainerState {
    waiting("", "")
}

pub(crate) fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState::Waiting { reason: reason.to_owned(), message: message.to_owned() }
}

pub(crate) fn running() -> ContainerState {
    ContainerState::Running
}

/// Ended with this status at this time.
pub(crate) fn ended(exit_status: i32, seconds: i64) -> ContainerState {
    because("", exit_status, seconds)
}

pub(crate) fn because(reason: &str, exit_status: i32, seconds: i64) -> ContainerState {
    ContainerState::Ended(Box::new(Ended {
        exit_status,
        reason: reason.to_owned(),
        message: String::new(),
        at: Some(time(seconds)),
    }))
}

pub(crate) fn deleting(pod: PodFacts) -> PodFacts {
    deleting_since(2, pod)
}

pub(crate) fn deleting_since(seconds: i64, pod: PodFacts) -> PodFacts {
    PodFacts { deleting_since: Some(time(seconds)), gone_by: Some(time(seconds + 30)), ..pod }
}

pub(crate) fn evicted(pod: PodFacts) -> PodFacts {
    PodFacts { given_up: Some(told("Evicted", "the node was low on memory").into()), ..failed(pod) }
}

/// Deleted at this time to make room for another.
pub(crate) fn preempted(seconds: i64, pod: PodFacts) -> PodFacts {
    PodFacts { disrupted: Some(told("PreemptionByScheduler", "").into()), ..deleting_since(seconds, pod) }
}

/// All of its containers have ended, one of them badly, or it was given up.
pub(crate) fn failed(pod: PodFacts) -> PodFacts {
    PodFacts { failed: true, ..pod }
}

pub(crate) fn unscheduled(pod: PodFacts) -> PodFacts {
    PodFacts {
        unscheduled: Some(told("Unschedulable", "0/3 nodes").into()),
        node: None,
        accepted_at: None,
        ..pod
    }
}

/// What the cluster says about a pod.
pub(crate) fn told(reason: &str, message: &str) -> Told {
    Told { reason: reason.to_owned(), message: message.to_owned() }
}

/// A pod that is at its init container; the others wait for that.
pub(crate) fn in_init(init: ContainerState) -> PodFacts {
    let others = waiting("PodInitializing", "");
    PodFacts { init: vec![container("prepare", init)], ..pod(others.clone(), others) }
}

/// A pod whose init container has failed. The kubelet says in the same breath that the pod has.
pub(crate) fn failed_in_init(init: ContainerState) -> PodFacts {
    failed(in_init(init))
}

/// With a native sidecar before everything else.
pub(crate) fn beside(sidecar: ContainerState, mut pod: PodFacts) -> PodFacts {
    pod.init.insert(0, ContainerFacts { sidecar: true, ..container("database", sidecar) });
    pod
}

/// Durations that a property may add up.
pub(crate) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}
