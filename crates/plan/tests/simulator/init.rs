//! Init containers on the node: a sidecar that may have to be started twice, then one that has to end well.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning, ContainerStatus};

use super::{
    kubelet::Step,
    world::{Event, PodId, World},
};

/// What the init container that fails ends with.
pub(crate) const INIT_FAILURE: i32 = 4;

const SIDECAR: &str = "database";
const PREPARE: &str = "prepare";

/// In every fifth world the job's pod has these.
pub(crate) const POD_SPEC: &str = r#"{
    "podSpec": {
        "initContainers": [
            { "name": "database", "image": "postgres", "restartPolicy": "Always" },
            { "name": "prepare", "image": "busybox" }
        ]
    }
}"#;

#[derive(Clone, Copy)]
pub(crate) enum InitStep {
    SidecarEnds,
    SidecarRuns,
    PrepareRuns,
    PrepareEnds { exit: i32 },
}

impl World {
    /// Begins with the pod's init containers, if it has any.
    pub(super) fn begin_init(&mut self, uid: PodId) -> bool {
        let name = self.lives[uid].name.clone();
        let spec = self.pods.get(&name).and_then(|stored| stored.pod.spec.as_ref());
        if spec.is_none_or(|spec| spec.init_containers.is_none()) {
            return false;
        }
        let mut delay = 0;
        if self.random.chance(50) {
            delay += self.random.between(50, 500);
            self.plan_init(uid, delay, InitStep::SidecarEnds);
        }
        delay += self.random.between(50, 2_000);
        self.plan_init(uid, delay, InitStep::SidecarRuns);
        delay += self.random.between(50, 500);
        self.plan_init(uid, delay, InitStep::PrepareRuns);
        delay += self.random.span(100_000);
        let exit = if self.random.chance(40) { INIT_FAILURE } else { 0 };
        self.plan_init(uid, delay, InitStep::PrepareEnds { exit });
        true
    }

    fn plan_init(&mut self, uid: PodId, delay: i64, step: InitStep) {
        self.after(delay, Event::Pod(uid, Step::Init(step)));
    }

    pub(super) fn init(&mut self, uid: PodId, step: InitStep) {
        let running =
            ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
        match step {
            InitStep::SidecarEnds => self.set_init_state(uid, SIDECAR, self.terminated(1, self.now)),
            InitStep::SidecarRuns => self.set_init_state(uid, SIDECAR, running),
            InitStep::PrepareRuns => self.set_init_state(uid, PREPARE, running),
            InitStep::PrepareEnds { exit: 0 } => {
                self.set_init_state(uid, PREPARE, self.terminated(0, self.now));
                self.start_containers(uid);
            }
            InitStep::PrepareEnds { exit } => self.fail_in_init(uid, exit),
        }
    }

    /// Nothing of this pod is started any more, and the kubelet says so in one update.
    fn fail_in_init(&mut self, uid: PodId, exit: i32) {
        self.note(|_| format!("pod-{uid}: its init container ends with {exit}"));
        self.life(uid).dead = true;
        self.init_failed = true;
        let status = init_status(PREPARE, self.terminated(exit, self.now));
        self.change_pod(uid, move |pod| {
            let pod_status = pod.status.get_or_insert_default();
            pod_status.phase = Some("Failed".to_owned());
            replace(pod_status.init_container_statuses.get_or_insert_default(), status);
        });
        self.tell_batch();
    }

    fn set_init_state(&mut self, uid: PodId, name: &str, state: ContainerState) {
        let status = init_status(name, state);
        self.change_pod(uid, move |pod| {
            let pod_status = pod.status.get_or_insert_default();
            replace(pod_status.init_container_statuses.get_or_insert_default(), status);
        });
    }
}

fn init_status(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        started: Some(state.running.is_some()),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

fn replace(statuses: &mut Vec<ContainerStatus>, new: ContainerStatus) {
    statuses.retain(|status| status.name != new.name);
    statuses.push(new);
}
