//! The node: containers start, run and end there, whatever the API server knows about it.

use std::sync::Arc;

use bk_plan::{
    origin::Origin,
    pod::{AGENT_CONTAINER, managed_containers},
};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodCondition, PodStatus,
};

use super::{
    api::Stored,
    init::InitStep,
    world::{Event, Instant, PodId, World, whole_seconds},
};

/// What a pod does on its node.
#[derive(Default)]
pub(crate) struct Life {
    pub(crate) name: Arc<str>,
    pub(crate) created: Instant,
    /// Which attempt at the job it is.
    pub(crate) attempt: u32,
    /// When a node took it.
    pub(crate) placed: Option<Instant>,
    /// Managed containers by turn, then the agent.
    pub(super) containers: Vec<Arc<str>>,
    running: usize,
    /// The processes are gone.
    pub(super) dead: bool,
    pub(super) agent_dead: bool,
    acquired: bool,
    /// When the command ended, and how.
    pub(super) ended: Option<(Instant, i32)>,
    /// Until when its node cannot be reached, and what that has to say then.
    pub(super) cut_until: Instant,
    pub(super) unsaid: Vec<Change>,
}

/// What a kubelet has to say about a pod.
pub(crate) type Change = Box<dyn FnOnce(&mut Pod)>;

#[derive(Clone, Copy)]
pub(crate) enum Step {
    Placed,
    Init(InitStep),
    Blocked {
        container: usize,
        reason: &'static str,
        message: &'static str,
    },
    Started {
        container: usize,
    },
    AgentActs,
    Acquires,
    AgentEnds {
        exit: i32,
    },
    /// The kernel kills the agent while it has the job.
    AgentKilled,
    CommandEnds {
        exit: i32,
    },
    EndSeen,
    Reports {
        exit: i32,
    },
    StopNoticed,
    Terminated,
    Removed,
    HeartbeatMissed,
    /// The node is gone, and the cluster has forgotten its pods.
    NodeGone,
    /// The cluster notices that the node does not answer.
    Silent,
    /// It has waited for long enough.
    Unreachable,
    Reconnected,
}

impl World {
    /// The API server stores a new pod; a scheduler and a kubelet will find it.
    pub(crate) fn store_pod(&mut self, mut pod: Pod) {
        let id = self.lives.len();
        let name: Arc<str> = pod.metadata.name.clone().expect("pods are rendered with a name").into();
        pod.metadata.uid = Some(format!("pod-{id}"));
        pod.metadata.creation_timestamp = Some(whole_seconds(self.now));
        let spec = pod.spec.as_ref().expect("pods are rendered with a spec");
        let managed = managed_containers(spec).map(|container| container.name.as_str().into());
        let containers = managed.chain([AGENT_CONTAINER.into()]).collect();
        let attempt = pod.attempt().expect("pods are rendered with their attempt");
        self.lives.push(Life {
            name: name.clone(),
            created: self.now,
            attempt,
            containers,
            ..Life::default()
        });
        if self.random.chance(5) {
            let condition = PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some("Unschedulable".to_owned()),
                message: Some("0/3 nodes are available".to_owned()),
                ..PodCondition::default()
            };
            pod.status = Some(PodStatus { conditions: Some(vec![condition]), ..PodStatus::default() });
        }
        let unscheduled = pod.status.is_some();
        let delay = if unscheduled { self.random.span(200_000) } else { self.random.between(5, 400) };
        self.pods.insert(name, Stored::new(id, pod));
        self.after(delay, Event::Pod(id, Step::Placed));
        self.publish_pods();
    }

    pub(crate) fn live(&mut self, uid: PodId, step: Step) {
        match step {
            Step::Removed => return self.remove(uid),
            Step::HeartbeatMissed => return self.report(uid, -1),
            Step::NodeGone => {
                self.kill(uid);
                return self.remove(uid);
            }
            Step::Silent => return self.fall_silent(uid),
            Step::Unreachable => return self.give_up_node(uid),
            Step::Reconnected => return self.reconnect(uid),
            // It will hear of it when its node is back.
            Step::Terminated if self.lives[uid].cut_until > self.now => return,
            // It has ended by itself meanwhile.
            Step::Terminated if self.lives[uid].dead => return self.remove(uid),
            _ if self.lives[uid].dead => return,
            _ => {}
        }
        match step {
            Step::Placed => self.place(uid),
            Step::Init(step) => self.init(uid, step),
            Step::Blocked { container, reason, message } => {
                let waiting = ContainerStateWaiting {
                    reason: Some(reason.to_owned()),
                    message: Some(message.to_owned()),
                };
                let state = ContainerState { waiting: Some(waiting), ..ContainerState::default() };
                self.set_state(uid, container, state);
            }
            Step::Started { container } => self.start(uid, container),
            Step::AgentActs => self.choose_agents_way(uid),
            Step::Acquires => self.acquire(uid),
            Step::AgentEnds { exit } => self.end_agent(uid, exit),
            // An agent that is killed once it has reported the end, and before it has left, is not told from one that was refused.
            Step::AgentKilled if self.has_job(uid) => self.end_agent(uid, 137),
            Step::AgentKilled => {}
            Step::CommandEnds { exit } => self.end_command(uid, exit),
            Step::EndSeen => self.show_end(uid),
            Step::Reports { exit } => self.agent_reports(uid, exit),
            // The bootstrap kills the command, whose shell says so.
            Step::StopNoticed => self.end_command(uid, 143),
            Step::Terminated => self.terminate(uid),
            Step::Removed
            | Step::HeartbeatMissed
            | Step::NodeGone
            | Step::Silent
            | Step::Unreachable
            | Step::Reconnected => unreachable!("handled above"),
        }
    }

    fn place(&mut self, uid: PodId) {
        self.life(uid).placed = Some(self.now);
        let start_time = Some(whole_seconds(self.now + self.operator.clock_skew));
        self.change_pod(uid, move |pod| {
            let status = pod.status.get_or_insert_default();
            status.start_time = start_time;
            status.conditions.iter_mut().for_each(|all| all.retain(|c| c.type_ != "PodScheduled"));
            pod.spec.as_mut().expect("it has a spec").node_name = Some("node-1".to_owned());
        });
        if !self.begin_init(uid) {
            self.start_containers(uid);
        }
    }

    pub(super) fn start_containers(&mut self, uid: PodId) {
        for container in 0..self.lives[uid].containers.len() {
            let mut delay = self.random.between(50, 1_500);
            let fate = self.random.between(0, 100);
            if fate < 3 {
                let step = blocked(container, "ErrImagePull", "manifest unknown");
                self.after(delay, Event::Pod(uid, step));
                continue;
            }
            if fate < 7 {
                let until = delay + self.random.span(90_000);
                while delay < until {
                    let step = blocked(container, "ErrImagePull", "connection refused");
                    self.after(delay, Event::Pod(uid, step));
                    let step = blocked(container, "ImagePullBackOff", "back-off");
                    self.after(delay + 1_000, Event::Pod(uid, step));
                    delay += 12_000;
                }
            }
            self.after(delay, Event::Pod(uid, Step::Started { container }));
        }
    }

    fn start(&mut self, uid: PodId, container: usize) {
        let running = Some(ContainerStateRunning::default());
        self.set_state(uid, container, ContainerState { running, ..ContainerState::default() });
        let life = self.life(uid);
        life.running += 1;
        if life.running < life.containers.len() {
            return;
        }
        if self.buildkite.is_none() {
            self.start_command(uid);
        } else {
            let delay = self.random.between(20, 800);
            self.after(delay, Event::Pod(uid, Step::AgentActs));
        }
    }

    fn choose_agents_way(&mut self, uid: PodId) {
        let (delay, step) = match self.random.between(0, 100) {
            0..8 => (10, Step::AgentEnds { exit: 1 }),
            // It hangs.
            8..11 => return,
            11..15 => (self.random.between(1_000, 60_000), Step::Acquires),
            _ => (self.random.between(10, 800), Step::Acquires),
        };
        self.after(delay, Event::Pod(uid, step));
    }

    fn acquire(&mut self, uid: PodId) {
        if let Some(left) = self.outage_left() {
            return self.after(left + 500, Event::Pod(uid, Step::Acquires));
        }
        if !self.registers(uid) {
            return;
        }
        let buildkite = self.buildkite.as_mut().expect("standalone pods acquire nothing");
        if buildkite.acquire(uid).is_err() {
            self.note(|_| format!("pod-{uid}: the job is refused"));
            return self.end_agent(uid, 27);
        }
        self.note(|_| format!("pod-{uid}: acquires the job"));
        self.life(uid).acquired = true;
        self.start_command(uid);
        if self.random.chance(5) {
            let delay = self.random.span(20_000);
            self.after(delay, Event::Pod(uid, Step::AgentKilled));
        }
    }

    fn start_command(&mut self, uid: PodId) {
        self.starts += 1;
        self.note(|_| format!("pod-{uid}: the command starts"));
        let exit = match self.random.between(0, 10) {
            0..6 => 0,
            6 => 137,
            _ => 3,
        };
        let delay = self.random.span(300_000);
        self.after(delay, Event::Pod(uid, Step::CommandEnds { exit }));
    }

    /// The agent ends by itself; without it the containers that wait for it end too.
    fn end_agent(&mut self, uid: PodId, exit: i32) {
        let life = self.life(uid);
        if life.agent_dead {
            return;
        }
        life.agent_dead = true;
        let agent = life.containers.len() - 1;
        // A kubelet reports on all containers of a pod at once.
        self.show_end(uid);
        self.set_state(uid, agent, self.terminated(exit, self.now));
        if self.has_job(uid) {
            self.disturbed = true;
            self.lose_agent(uid);
        }
        if self.lives[uid].ended.is_none() {
            let delay = self.random.between(100, 30_000);
            self.after(delay, Event::Pod(uid, Step::CommandEnds { exit: 1 }));
        }
    }

    fn end_command(&mut self, uid: PodId, exit: i32) {
        let now = self.now;
        let life = self.life(uid);
        if life.ended.is_some() {
            return;
        }
        life.ended = Some((now, exit));
        let (acquired, agent_dead) = (life.acquired, life.agent_dead);
        if acquired || self.buildkite.is_none() {
            self.exit = Some(exit);
        }
        self.note(|_| format!("pod-{uid}: the command ends with {exit}"));
        let (seen, reported) = (self.random.between(0, 1_500), self.random.between(10, 800));
        self.after(seen, Event::Pod(uid, Step::EndSeen));
        if !agent_dead {
            self.after(reported, Event::Pod(uid, Step::Reports { exit }));
        }
    }

    fn agent_reports(&mut self, uid: PodId, exit: i32) {
        if self.lives[uid].agent_dead {
            return;
        }
        if let Some(left) = self.outage_left() {
            return self.after(left + 500, Event::Pod(uid, Step::Reports { exit }));
        }
        self.report(uid, exit);
        let delay = self.random.between(0, 3_000);
        self.after(delay, Event::Pod(uid, Step::AgentEnds { exit: 0 }));
    }

    fn show_end(&mut self, uid: PodId) {
        let Some((at, exit)) = self.lives[uid].ended else {
            return;
        };
        let managed = self.lives[uid].containers.len() - 1;
        for container in 0..managed {
            // The checkout went well; what is left of a failure is the last container's.
            let status = if container + 1 == managed { exit } else { 0 };
            self.set_state(uid, container, self.terminated(status, at));
        }
    }

    fn terminate(&mut self, uid: PodId) {
        let life = self.life(uid);
        life.dead = true;
        let (acquired, agent_dead, ended) = (life.acquired, life.agent_dead, life.ended);
        let containers = life.containers.len();
        if acquired && !agent_dead {
            self.report(uid, ended.map_or(-1, |(_, exit)| exit));
        }
        for container in 0..containers {
            if self.is_running(uid, container) && self.random.chance(70) {
                self.set_state(uid, container, self.terminated(143, self.now));
            }
        }
        let delay = self.random.between(0, 1_000);
        self.after(delay, Event::Pod(uid, Step::Removed));
    }

    pub(super) fn remove(&mut self, uid: PodId) {
        let name = self.lives[uid].name.clone();
        if self.pods.get(&name).is_some_and(|stored| stored.id == uid) {
            self.pods.remove(&name);
            self.note(|_| format!("pod-{uid}: gone"));
            self.tell_batch();
            self.publish_pods();
        }
    }

    pub(super) fn report(&mut self, uid: PodId, exit: i32) {
        if let Some(buildkite) = &mut self.buildkite {
            buildkite.end(uid, exit);
        }
        self.note(|world| format!("Buildkite: {:?}", world.buildkite.as_ref().map(|b| &b.state)));
    }

    /// Whether Buildkite has given the job to the pod's agent, and has not heard of an end.
    pub(super) fn has_job(&self, uid: PodId) -> bool {
        self.buildkite.as_ref().is_some_and(|buildkite| buildkite.is_held_by(uid))
    }

    pub(super) fn life(&mut self, uid: PodId) -> &mut Life {
        &mut self.lives[uid]
    }

    fn is_running(&self, uid: PodId, container: usize) -> bool {
        let life = &self.lives[uid];
        let stored = self.pods.values().find(|stored| stored.id == uid);
        let statuses = stored.and_then(|stored| stored.pod.status.as_ref()?.container_statuses.as_ref());
        let named = |status: &&ContainerStatus| status.name == *life.containers[container];
        let state = statuses.and_then(|all| all.iter().find(named)?.state.as_ref());
        state.is_some_and(|state| state.running.is_some())
    }

    pub(super) fn set_state(&mut self, uid: PodId, container: usize, state: ContainerState) {
        let name = self.lives[uid].containers[container].clone();
        self.change_pod(uid, move |pod| {
            let statuses = pod.status.get_or_insert_default().container_statuses.get_or_insert_default();
            statuses.retain(|status| status.name != *name);
            statuses.push(ContainerStatus {
                name: name.to_string(),
                state: Some(state),
                ..ContainerStatus::default()
            });
        });
    }

    pub(super) fn terminated(&self, exit: i32, at: Instant) -> ContainerState {
        let terminated = ContainerStateTerminated {
            exit_code: exit,
            reason: (exit == 137).then(|| "OOMKilled".to_owned()),
            finished_at: Some(whole_seconds(at + self.operator.clock_skew)),
            ..ContainerStateTerminated::default()
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }
}

fn blocked(container: usize, reason: &'static str, message: &'static str) -> Step {
    Step::Blocked { container, reason, message }
}
