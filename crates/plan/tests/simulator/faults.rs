//! What people, nodes and clusters do to pods.

use bk_plan::decide::{Action, departed};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::{
    kubelet::Step,
    node::{NOTICED, TOLERATION},
    random::Random,
    world::{Event, PodId, World, whole_seconds},
};
use crate::api::GRACE;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Somebody deletes the pod.
    Deleted,
    /// The cluster deletes it and says why.
    Disrupted(&'static str),
    Evicted,
    /// The node is gone and the cluster has forgotten its pods.
    NodeGone,
    /// The node is gone, and its pods stay as they were, marked for deletion, for a long time.
    NodeDark,
    /// The node cannot be reached for a while; its containers go on, and it comes back.
    NodeAway,
    /// The node says that it is about to go, and goes.
    NodeLeaves,
    /// The cluster has forgotten a pod that lives on.
    Forgotten,
    /// Somebody deletes the BuildJob.
    JobDeleted,
    /// The operator's clock is set.
    ClockStep,
}

impl Fault {
    pub(crate) fn any(random: &mut Random) -> Self {
        match random.between(0, 22) {
            0..4 => Self::Deleted,
            4..6 => Self::Disrupted("PreemptionByScheduler"),
            6 => Self::Disrupted("EvictionByEvictionAPI"),
            7..10 => Self::Evicted,
            10..12 => Self::NodeGone,
            12..14 => Self::NodeDark,
            14..17 => Self::NodeAway,
            17 => Self::Forgotten,
            18 => Self::JobDeleted,
            19..21 => Self::NodeLeaves,
            _ => Self::ClockStep,
        }
    }
}

impl World {
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::JobDeleted => return self.delete_job_by_hand(),
            Fault::ClockStep => {
                self.disturbed = true;
                self.operator.clock_step = self.random.between(-300_000, 300_000);
                return self.note(|world| format!("the clock is set by {} ms", world.operator.clock_step));
            }
            _ => {}
        }
        let alive = self.pods.values().find(|stored| stored.pod.metadata.deletion_timestamp.is_none());
        let Some(pod) = alive.map(|stored| stored.id) else {
            return;
        };
        self.note(|_| format!("pod-{pod}: {fault:?}"));
        self.disturbed = true;
        match fault {
            Fault::Deleted => self.delete_pod(pod),
            Fault::Disrupted(reason) => self.disrupt(pod, reason),
            Fault::Evicted => self.evict(pod),
            Fault::NodeGone => self.live(pod, Step::NodeGone),
            Fault::NodeDark => {
                self.kill(pod);
                self.fall_silent(pod);
                self.after(TOLERATION, Event::Pod(pod, Step::Unreachable));
                self.after(600_000, Event::Pod(pod, Step::Removed));
            }
            Fault::NodeAway => self.cut_off(pod),
            Fault::NodeLeaves => self.node_leaves(pod),
            Fault::Forgotten => self.remove(pod),
            Fault::JobDeleted | Fault::ClockStep => unreachable!("handled above"),
        }
    }

    fn delete_job_by_hand(&mut self) {
        let running = self.job.as_ref().is_some_and(|job| !job.is_terminal());
        if running {
            self.note(|_| "somebody deletes the BuildJob".to_owned());
            self.disturbed = true;
            self.job_deleted = self.job.clone();
            let delay = self.random.between(1, 3_000);
            self.after(delay, Event::Departed(self.operator.process()));
            self.remove_job();
        }
    }

    /// What the operator tells Buildkite about a BuildJob that somebody has deleted.
    pub(crate) fn depart(&mut self, process: u32) {
        let (Some(job), Some(buildkite)) = (&self.job_deleted, &mut self.buildkite) else {
            return;
        };
        let is_there = self.operator.is_up() && self.operator.process() == process;
        if !is_there || buildkite.outage.contains(&self.now) {
            return;
        }
        self.told_of_departure = true;
        if let Some(Action::FinishRemote(verdict)) = departed(job, buildkite.word()) {
            // If an agent was quicker, it is stopped with its pod.
            let _refused = buildkite.finish(verdict.exit_status.unwrap_or(-1));
        }
    }

    pub(super) fn disrupt(&mut self, pod: PodId, reason: &'static str) {
        self.change_stored(pod, |pod| add_disruption(pod, reason));
        self.delete_pod(pod);
    }

    fn mark_unreachable(&mut self, pod: PodId) {
        let end = whole_seconds(self.now + GRACE);
        self.change_stored(pod, |pod| {
            add_disruption(pod, "DeletionByTaintManager");
            pod.metadata.deletion_timestamp = Some(end);
            pod.metadata.deletion_grace_period_seconds = Some(GRACE / 1_000);
        });
    }

    /// The node's containers go on, and nobody hears of it until it is back.
    fn cut_off(&mut self, pod: PodId) {
        let away = self.random.between(1_000, 200_000);
        self.lives[pod].cut_until = self.now + away;
        self.after(away, Event::Pod(pod, Step::Reconnected));
        if away > NOTICED + TOLERATION {
            self.after(NOTICED + TOLERATION, Event::Pod(pod, Step::Unreachable));
        }
        if away > NOTICED {
            self.after(NOTICED, Event::Pod(pod, Step::Silent));
        }
    }

    /// The cluster gives up on a node that is cut off.
    pub(crate) fn give_up_node(&mut self, pod: PodId) {
        if self.stored(pod).is_some_and(|stored| stored.pod.metadata.deletion_timestamp.is_none()) {
            self.mark_unreachable(pod);
        }
    }

    /// The node is back, says what has happened, and hears what it has to do.
    pub(crate) fn reconnect(&mut self, pod: PodId) {
        self.note(|_| format!("pod-{pod}: its node is back"));
        self.nodes.remove(&format!("pod-{pod}"));
        let unsaid = std::mem::take(&mut self.lives[pod].unsaid);
        self.change_stored(pod, |pod| unsaid.into_iter().for_each(|change| change(pod)));
        let marked = self.stored(pod).is_none_or(|stored| stored.pod.metadata.deletion_timestamp.is_some());
        if marked {
            let delay = self.random.between(50, 4_000);
            self.after(delay, Event::Pod(pod, Step::Terminated));
        }
    }

    fn evict(&mut self, pod: PodId) {
        // The kubelet leaves alone what has ended: nothing runs there that it could stop.
        if self.stored(pod).is_some_and(|stored| stored.facts.failed) {
            return;
        }
        if self.random.chance(50) {
            let exit = self.random.between(0, 2) * 137;
            self.report(pod, i32::try_from(exit).expect("small"));
        }
        self.kill(pod);
        if self.random.chance(50) {
            for container in 0..self.lives[pod].containers.len() {
                let mut state = self.terminated(137, self.now);
                state.terminated.as_mut().expect("it is").reason = Some("Error".to_owned());
                self.set_state(pod, container, state);
            }
        }
        self.change_pod(pod, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Failed".to_owned());
            status.reason = Some("Evicted".to_owned());
            status.message = Some("The node was low on resource: memory.".to_owned());
        });
        self.tell_batch();
    }

    /// The pod's processes are gone, and nobody has said so yet.
    pub(super) fn kill(&mut self, pod: PodId) {
        self.lives[pod].dead = true;
        self.lose_agent(pod);
    }
}

fn add_disruption(pod: &mut Pod, reason: &str) {
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        ..PodCondition::default()
    };
    pod.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
}
