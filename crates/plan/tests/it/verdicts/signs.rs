//! What kubelet 1.34, containerd and the control plane write into pods, sign by sign.

#![allow(clippy::needless_raw_string_hashes, reason = "the rows of the table look alike")]

use bk_api::VerdictCode::{self, *};
use bk_plan::facts::{PodEvent, PodFacts};
use k8s_openapi::api::core::v1::Pod;

use crate::fixtures::kept;

/// When a sign is seen.
#[derive(Clone, Copy)]
pub(crate) enum When {
    /// Before the start, and for good.
    Blocked,
    /// Before the start, and it may pass.
    Waiting,
    /// When the time to start is up.
    Late,
    /// After the pod's end, and no agent had the job.
    Untaken,
    /// After the pod's end, while an agent had the job.
    Running,
    /// After the end of the managed containers.
    Ended,
}

/// A pod as somebody saw it.
pub(crate) struct Sign {
    pub(crate) what: &'static str,
    pub(crate) when: When,
    status: &'static str,
    events: &'static [(&'static str, &'static str)],
    pub(crate) code: VerdictCode,
    pub(crate) says: &'static str,
    pub(crate) exit_status: &'static str,
}

const SPEC: &str = "
metadata: { name: nightly, uid: u1, creationTimestamp: '2027-01-15T08:00:00Z' }
spec:
  nodeName: node-1
  initContainers:
  - { name: database, image: postgres, restartPolicy: Always }
  - { name: prepare, image: busybox }
  containers:
  - { name: checkout, image: 'buildkite/agent:3', command: [/buildkite/shim/buildkite-shim, job] }
  - { name: container-0, image: 'golang:1.25', command: [/buildkite/shim/buildkite-shim, job] }
  - { name: agent, image: 'buildkite/agent:3', command: [/buildkite/shim/buildkite-shim, agent] }
  - { name: reporter, image: 'reporter:1' }
";

impl Sign {
    pub(crate) fn facts(&self) -> PodFacts {
        let pod: Pod = serde_saphyr::from_str(&format!("{SPEC}status: {}", self.status))
            .unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let events = self.events.iter().map(|(reason, message)| PodEvent {
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            warning: *reason != "Pulling",
            at: None,
        });
        PodFacts { events: events.collect(), ..kept(&pod) }
    }
}

macro_rules! signs {
    ($($what:literal, $when:ident, $status:literal $(, $reason:literal = $message:literal)* => $code:ident $says:literal $exit:literal;)*) => {
        pub(crate) const SIGNS: &[Sign] = &[$(Sign {
            what: $what,
            when: When::$when,
            status: $status,
            events: &[$(($reason, $message)),*],
            code: $code,
            says: $says,
            exit_status: $exit,
        }),*];
    };
}

signs! {
    "a tag that does not exist", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImagePull, message: 'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/golang:1.25": failed to resolve reference "docker.io/library/golang:1.25": docker.io/library/golang:1.25: not found' } } }] }"#
        => ImageNotFound "image golang:1.25 of container container-0 cannot be had: ErrImagePull: rpc error" "-1";
    "the pause after a tag that does not exist", Blocked,
    r#"{ containerStatuses: [{ name: agent, state: { waiting: { reason: ImagePullBackOff, message: 'Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "x": not found' } } }] }"#
        => ImageNotFound "of container agent" "-1";
    "an image that is private", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImagePull, message: 'failed to pull and unpack image "x": failed to resolve reference "x": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed' } } }] }"#
        => ImageForbidden "authorization failed" "-1";
    "a registry that wants credentials", Blocked,
    r#"{ initContainerStatuses: [{ name: prepare, state: { waiting: { reason: ErrImagePull, message: 'failed to resolve reference "r.example.com/x:1": unexpected status from HEAD request to https://r.example.com/v2/x/manifests/1: 401 Unauthorized' } } }] }"#
        => ImageForbidden "of container prepare" "-1";
    "a name that is none", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: InvalidImageName, message: 'Failed to apply default image tag "UPPER/case": couldn''t parse image name: repository name must be lowercase' } } }] }"#
        => ImageNameInvalid "must be lowercase" "-1";
    "a policy of Never", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImageNeverPull, message: 'Container image "golang:1.25" is not present with pull policy of Never' } } }] }"#
        => ImageNeverPulled "pull policy of Never" "-1";
    "an image for other machines", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImagePull, message: 'failed to pull and unpack image "x": no match for platform in manifest: not found' } } }] }"#
        => ImageWrongArchitecture "no match for platform" "-1";
    "a registry that is away", Waiting,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImagePull, message: 'failed to resolve reference "x": failed to do request: Head "https://x/v2/": dial tcp 10.0.0.1:443: connect: connection refused' } } }] }"#
        => RegistryUnreachable "connection refused" "-1";
    "a registry that nobody knows", Waiting,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ImagePullBackOff, message: 'Back-off pulling image "x": ErrImagePull: failed to do request: dial tcp: lookup r.example.com: no such host' } } }] }"#
        => RegistryUnreachable "no such host" "-1";
    "a registry that counts pulls", Waiting,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ErrImagePull, message: 'failed to copy: 429 Too Many Requests - Server message: toomanyrequests: You have reached your unauthenticated pull rate limit' } } }] }"#
        => RegistryUnreachable "rate limit" "-1";
    "a registry that fails", Waiting,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: RegistryUnavailable, message: 'image pull failed for x because the registry is unavailable' } } }] }"#
        => RegistryUnreachable "registry is unavailable" "-1";
    "an image that takes its time", Late,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ContainerCreating } } }, { name: checkout, state: { running: {} } }], initContainerStatuses: [{ name: database, started: true, state: { running: {} } }, { name: prepare, state: { terminated: { exitCode: 0 } } }] }"#,
    "Pulling" = "Pulling image \"golang:1.25\""
        => ImagePullTimeout "image golang:1.25 of container container-0 to be pulled" "-1";

    "an environment from a Secret that does not exist", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: CreateContainerConfigError, message: 'secret "deploy-key" not found' } } }] }"#
        => MissingReference "container container-0 lacks what it refers to" "-1";
    "a key that a ConfigMap does not have", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: CreateContainerConfigError, message: "couldn't find key url in ConfigMap ci/settings" } } }] }"#
        => MissingReference "key url in ConfigMap ci/settings" "-1";
    "a volume from a Secret that does not exist", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ContainerCreating } } }] }"#,
    "FailedMount" = "MountVolume.SetUp failed for volume \"keys\" : secret \"deploy-key\" not found"
        => MissingReference "a volume of the pod cannot be mounted: FailedMount" "-1";
    "a volume that is attached elsewhere", Late,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ContainerCreating } } }] }"#,
    "FailedAttachVolume" = "Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) x"
        => VolumeNotMounted "Multi-Attach error" "-1";
    "an image that runs as root", Blocked,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: CreateContainerConfigError, message: 'container has runAsNonRoot and image will run as root (pod: "nightly_ci(u1)", container: container-0)' } } }] }"#
        => InvalidSecurityContext "image will run as root" "-1";
    "a mount that the runtime refuses", Waiting,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: CreateContainerError, message: 'failed to generate container spec: failed to mkdir "/sys/x": read-only file system' } } }] }"#
        => ContainerNotStarted "container container-0 cannot be started: CreateContainerError" "-1";
    "a program that is not there", Untaken,
    r#"{ phase: Failed, containerStatuses: [{ name: container-0, state: { terminated: { exitCode: 128, reason: StartError, message: 'failed to create containerd task: OCI runtime create failed: exec: "/buildkite/shim/buildkite-shim": permission denied' } } }] }"#
        => ContainerNotStarted "permission denied" "128";
    "a program for other machines", Untaken,
    r#"{ phase: Running, containerStatuses: [{ name: container-0, state: { terminated: { exitCode: 255, reason: Error, message: 'exec /buildkite/shim/buildkite-shim: exec format error' } } }] }"#
        => ImageWrongArchitecture "container container-0 cannot execute its program" "-1";
    "an init container that fails", Blocked,
    r#"{ phase: Failed, initContainerStatuses: [{ name: prepare, state: { terminated: { exitCode: 4, reason: Error, message: "fetching\nno such bucket\n" } } }] }"#
        => InitFailed "init container prepare ended with exit status 4: no such bucket" "4";
    "an init container that is killed for its memory", Blocked,
    r#"{ phase: Failed, initContainerStatuses: [{ name: prepare, state: { terminated: { exitCode: 137, reason: OOMKilled } } }] }"#
        => OutOfMemory "container prepare was killed because it used more memory" "137";
    "a sidecar that fails again and again", Blocked,
    r#"{ initContainerStatuses: [{ name: database, restartCount: 3, state: { waiting: { reason: CrashLoopBackOff, message: back-off } }, lastState: { terminated: { exitCode: 2, reason: Error, message: "no data directory" } } }] }"#
        => SidecarFailed "sidecar database was started again 3 times, and ended with exit status 2: no data directory" "2";
    "a sidecar that is killed for its memory", Blocked,
    r#"{ initContainerStatuses: [{ name: database, restartCount: 1, state: { waiting: { reason: CrashLoopBackOff } }, lastState: { terminated: { exitCode: 137, reason: OOMKilled } } }] }"#
        => OutOfMemory "sidecar database was killed because it used more memory" "137";
    "a sidecar whose startup probe never passes", Late,
    r#"{ initContainerStatuses: [{ name: database, started: false, state: { running: {} } }] }"#
        => SidecarFailed "waiting for sidecar database to become ready" "-1";
    "no node", Late,
    r#"{ conditions: [{ type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/3 nodes are available: 3 Insufficient cpu.' }] }"#
        => Unschedulable "waiting for a node (Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.)" "-1";
    "no claim", Late,
    r#"{ conditions: [{ type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/1 nodes are available: persistentvolumeclaim "repo-mirrors" not found.' }] }"#
        => Unschedulable "persistentvolumeclaim \"repo-mirrors\" not found." "-1";
    "a start that takes its time", Late,
    r#"{ containerStatuses: [{ name: container-0, state: { waiting: { reason: ContainerCreating } } }], initContainerStatuses: [{ name: database, started: true, state: { running: {} } }, { name: prepare, state: { terminated: { exitCode: 0 } } }] }"#
        => StartTimeout "waiting for container checkout" "-1";

    "a node that does not admit the pod", Untaken,
    r#"{ phase: Failed, reason: UnexpectedAdmissionError, message: 'Pod was rejected: Allocate failed due to no devices' }"#
        => Unschedulable "UnexpectedAdmissionError: Pod was rejected" "-1";
    "a node that is full", Untaken,
    r#"{ phase: Failed, reason: OutOfcpu, message: 'Pod was rejected: Node didn''t have enough resource: cpu' }"#
        => Unschedulable "OutOfcpu" "-1";
    "a node short of memory", Running,
    r#"{ phase: Failed, reason: Evicted, message: 'The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container container-0 was using 900Mi, request is 0, has larger consumption of memory. ', containerStatuses: [{ name: container-0, state: { terminated: { exitCode: 137, reason: Error } } }] }"#
        => Evicted "the agent was lost while the job ran: Evicted: The node was low on resource: memory" "137";
    "a node short of disk", Ended,
    r#"{ phase: Failed, reason: Evicted, message: 'The node was low on resource: ephemeral-storage. Container container-0 was using 9Gi, request is 0, has larger consumption of ephemeral-storage. ', conditions: [{ type: DisruptionTarget, status: 'True', reason: TerminationByKubelet, message: 'The node was low on resource: ephemeral-storage. ' }], containerStatuses: [{ name: container-0, state: { terminated: { exitCode: 137, reason: Error } } }] }"#
        => DiskPressure "ephemeral-storage" "137";
    "a workspace that is full", Running,
    r#"{ phase: Failed, reason: Evicted, message: 'Usage of EmptyDir volume "workspace" exceeds the limit "1Gi". ' }"#
        => StorageLimitExceeded "exceeds the limit" "-1";
    "a container that writes too much", Running,
    r#"{ phase: Failed, reason: Evicted, message: 'Container container-0 exceeded its local ephemeral storage limit "1Gi". ' }"#
        => StorageLimitExceeded "ephemeral storage limit" "-1";
    "a pod of higher priority", Running,
    r#"{ conditions: [{ type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler, message: 'default-scheduler: preempting to accommodate a higher priority pod' }], phase: Failed, reason: Preempting }"#
        => Preempted "the job ran: Preempting" "-1";
    "a node that is shut down", Untaken,
    r#"{ phase: Failed, reason: Terminated, message: 'Pod was terminated in response to imminent node shutdown.' }"#
        => NodeDrained "imminent node shutdown" "-1";
    "a node that no longer exists", Untaken,
    r#"{ phase: Failed, reason: '', message: 'x', conditions: [{ type: DisruptionTarget, status: 'True', reason: DeletionByPodGC, message: 'PodGC: node no longer exists' }] }"#
        => NodeLost "no agent took the job in 3 attempts" "-1";

    "out of memory", Ended,
    r#"{ containerStatuses: [{ name: checkout, state: { terminated: { exitCode: 0 } } }, { name: container-0, state: { terminated: { exitCode: 137, reason: OOMKilled } } }] }"#
        => OutOfMemory "container container-0 was killed because it used more memory than its limit (exit status 137)" "137";
    "out of memory in the checkout", Ended,
    r#"{ containerStatuses: [{ name: checkout, state: { terminated: { exitCode: 137, reason: OOMKilled } } }, { name: container-0, state: { terminated: { exitCode: 137, reason: Error } } }] }"#
        => AgentOutOfMemory "container checkout was killed" "137";
    "a process that ran out of memory in a command that ended well", Ended,
    r#"{ containerStatuses: [{ name: checkout, state: { terminated: { exitCode: 0 } } }, { name: container-0, state: { terminated: { exitCode: 0, reason: OOMKilled } } }] }"#
        => Passed "passed" "0";
    "a command that fails", Ended,
    r#"{ containerStatuses: [{ name: checkout, state: { terminated: { exitCode: 0 } } }, { name: container-0, state: { terminated: { exitCode: 3, reason: Error } } }] }"#
        => CommandFailed "container container-0 ended with exit status 3" "3";
    "a checkout that fails, and what follows from it", Ended,
    r#"{ containerStatuses: [{ name: checkout, state: { terminated: { exitCode: 128, reason: Error } } }, { name: container-0, state: { terminated: { exitCode: 1, reason: Error } } }] }"#
        => CommandFailed "container checkout ended with exit status 128" "128";

    "an agent whose token is refused", Untaken,
    r#"{ containerStatuses: [{ name: agent, state: { terminated: { exitCode: 1, reason: Error, message: "buildkite-agent: fatal: POST https://agent.example.com/v3/register: 401 Unauthorized" } } }] }"#
        => AgentNotRegistered "the agent ended with exit status 1 (Error: buildkite-agent: fatal: POST" "-1";
    "an agent that is killed before the runtime knows why", Untaken,
    r#"{ containerStatuses: [{ name: agent, state: { terminated: { exitCode: 137, reason: Error, message: "buildkite-agent was ended by signal 9" } } }] }"#
        => AgentOutOfMemory "container agent was killed by signal 9" "137";
    "an agent that does not get the job", Untaken,
    r#"{ containerStatuses: [{ name: agent, state: { terminated: { exitCode: 27, reason: Error } } }] }"#
        => NotAcquired "the agent ended with exit status 27" "-1";
    "an agent that is killed for its memory", Running,
    r#"{ containerStatuses: [{ name: container-0, state: { running: {} } }, { name: agent, state: { terminated: { exitCode: 137, reason: OOMKilled } } }] }"#
        => AgentOutOfMemory "container agent was killed" "137";
    "an agent that dies", Running,
    r#"{ containerStatuses: [{ name: container-0, state: { running: {} } }, { name: agent, state: { terminated: { exitCode: 2, reason: Error } } }] }"#
        => AgentLost "the agent was lost while the job ran: the agent ended with exit status 2" "-1";
    "a pod that goes", Running, r#"{ phase: Failed }"# => AgentLost "the agent did not start" "-1";
}
