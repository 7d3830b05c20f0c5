//! Every way in which a job can end: the one list behind codes, blame, advice, exit statuses and `docs/verdicts.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Course, Exit, Fault, NO_STATUS};

/// What a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Where the documents have it.
    pub chapter: Chapter,
    /// Who can change it.
    pub fault: Fault,
    /// What it leads to while no agent has the job.
    pub course: Course,
    /// The exit status that goes with it.
    pub exit: Exit,
    /// What happened.
    pub meaning: &'static str,
    /// What to do about it; empty if nothing is to be done.
    pub advice: &'static str,
}

/// Part of a job's life that codes are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chapter {
    /// The command ran, or somebody stopped it.
    Result,
    /// From the description to a pod on a node.
    Placement,
    /// Images.
    Images,
    /// Containers and what they need.
    Containers,
    /// The pod was taken away.
    Loss,
    /// The agent.
    Agent,
}

/// Declares the codes. Each has its chapter, fault, course and exit status, then meaning and advice.
macro_rules! catalogue {
    ($($code:ident: $chapter:ident, $fault:ident, $course:ident, $exit:expr, $meaning:literal, $advice:literal;)*) => {
        /// What happened. New codes may be added; existing ones keep their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum VerdictCode {
            $(#[doc = $meaning] $code,)*
        }

        impl VerdictCode {
            /// All codes, in the order of the documents.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// The code as it appears in statuses, events and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => stringify!($code),)*
                }
            }

            /// What the code stands for.
            pub fn about(self) -> &'static About {
                match self {
                    $(Self::$code => &About {
                        chapter: Chapter::$chapter,
                        fault: Fault::$fault,
                        course: Course::$course,
                        exit: $exit,
                        meaning: $meaning,
                        advice: $advice,
                    },)*
                }
            }
        }
    };
}

const NEVER_RAN: Exit = Exit::Always(NO_STATUS);

catalogue! {
    Passed: Result, None, Ends, Exit::Always(0),
        "The command ended with status 0.",
        "";
    CommandFailed: Result, User, Ends, Exit::Container,
        "A container of the job ended with another status.",
        "read the job's log";
    OutOfMemory: Result, User, Ends, Exit::Container,
        "A container of the job, or a sidecar or init container of its, used more memory than its limit.",
        "raise the container's memory limit, or make the command use less";
    StorageLimitExceeded: Result, User, Ends, Exit::Container,
        "The pod was evicted because it used more disk than its own limits allow.",
        "raise the container's ephemeral-storage limit or the volume's sizeLimit, or write less";
    TimedOut: Result, User, Ends, Exit::Buildkites,
        "The job ran for longer than Buildkite's time limit or the BuildJob's `timeout` allows.",
        "raise the step's timeout_in_minutes or the BuildJob's timeout, or make the command quicker";
    Canceled: Result, None, Ends, Exit::Buildkites,
        "The job was cancelled in Buildkite: before it had a pod, while that started, or while the command ran.",
        "";
    EndedByBuildkite: Result, Buildkite, Ends, Exit::Buildkites,
        "Buildkite ended the job before an agent took it: it expired, was skipped, or its build is broken.",
        "see in Buildkite why, and start the job again";
    BuildJobDeleted: Result, Cluster, Ends, NEVER_RAN,
        "Somebody deleted the BuildJob before the job had ended.",
        "start the job again; to stop a job, cancel it in Buildkite";
    ResultUnknown: Result, Cluster, Ends, Exit::Buildkites,
        "The job ended, but its pod was gone before the result could be read.",
        "look at the job in Buildkite, which has the result";

    InvalidSpec: Placement, User, Ends, NEVER_RAN,
        "The job's description, its plugins or its pod spec make no valid pod; the message names the field.",
        "correct the field and start the job again";
    ValidationRefused: Placement, User, Ends, NEVER_RAN,
        "A rule of `validation_config` refuses the job; the message is the rule's own.",
        "change the job as the rule asks, or have the rule changed";
    PodRefused: Placement, Configuration, Ends, NEVER_RAN,
        "An admission webhook or a policy of the cluster refused the pod.",
        "change the job's pod spec as the policy asks, or have the policy changed";
    ServiceAccountMissing: Placement, Configuration, Ends, NEVER_RAN,
        "The service account that the pod names does not exist in the job's namespace.",
        "create the service account, or correct serviceAccountName";
    QuotaExceeded: Placement, Cluster, Waits, NEVER_RAN,
        "A resource quota of the namespace had no room for the pod until its time was up.",
        "raise the quota, lower maxInFlight, or have the job request less";
    OperatorForbidden: Placement, Configuration, Waits, NEVER_RAN,
        "The operator may not create pods in the job's namespace.",
        "apply the operator's Role and RoleBinding for that namespace";
    ApiServerUnavailable: Placement, Cluster, Waits, NEVER_RAN,
        "The API server did not take the pod until its time was up: it, or a webhook that it asks, is failing.",
        "check the API server and its webhooks, and start the job again";
    Unschedulable: Placement, Cluster, Waits, NEVER_RAN,
        "No node took the pod until its time was up; the message has the scheduler's reasons.",
        "have the job request less or other nodes, add nodes, or raise timeouts in pod_config";

    ImageNameInvalid: Images, User, Ends, NEVER_RAN,
        "An image's name is not one.",
        "correct the image's name";
    ImageNotFound: Images, User, Ends, NEVER_RAN,
        "The registry has no such image.",
        "check the image's name and tag, and that it was pushed";
    ImageForbidden: Images, Configuration, Ends, NEVER_RAN,
        "The registry does not let the cluster have the image.",
        "check the image's name, the pod's imagePullSecrets, and that their account may read the image";
    ImageNeverPulled: Images, User, Ends, NEVER_RAN,
        "The node does not have the image, and the container's pull policy is Never.",
        "choose another imagePullPolicy, or bring the image to the nodes";
    ImageWrongArchitecture: Images, User, Ends, NEVER_RAN,
        "The image, or the program in it, is for another architecture than the node's.",
        "build the image for the node's architecture, or choose nodes with nodeRequirements on kubernetes.io/arch";
    RegistryUnreachable: Images, Cluster, Waits, NEVER_RAN,
        "The image could not be pulled until its time was up, as the registry could not be reached or failed.",
        "check the registry and the way to it, and start the job again";
    ImagePullTimeout: Images, Cluster, Waits, NEVER_RAN,
        "The image was still being pulled when its time was up.",
        "make the image smaller, bring it to the nodes beforehand, or give pods more time in pod_config";

    MissingReference: Containers, Configuration, Ends, NEVER_RAN,
        "A Secret, a ConfigMap, or a key in one, that a container or a volume refers to does not exist.",
        "create it in the job's namespace, or correct the reference";
    InvalidSecurityContext: Containers, User, Ends, NEVER_RAN,
        "A container's security context does not fit its image, such as runAsNonRoot with an image that runs as root.",
        "set runAsUser to a number other than 0, or choose another image or security context";
    ContainerNotStarted: Containers, User, Waits, Exit::Container,
        "A container could not be created or started on the node, or its program could not be executed.",
        "check the container's command, mounts and security context";
    VolumeNotMounted: Containers, Configuration, Waits, NEVER_RAN,
        "A volume of the pod could not be attached or mounted until the pod's time was up.",
        "check that the volume, its claim and its storage class exist and can be used on that node";
    InitFailed: Containers, User, Ends, Exit::Container,
        "An init container ended with another status than 0.",
        "read the init container's last words, and what it runs";
    SidecarFailed: Containers, User, Waits, Exit::Container,
        "A sidecar that the job waits for ended again and again, or never became ready.",
        "read the sidecar's last words; check its command and its startup probe";
    StartTimeout: Containers, Cluster, Waits, NEVER_RAN,
        "The pod was on a node, but did not start until its time was up; the message says what it waited for.",
        "see what the pod waited for, or raise timeouts in pod_config";

    Evicted: Loss, Cluster, Replaces, Exit::Container,
        "The node evicted the pod because it was short of memory or processes.",
        "start the job again; have it request as much memory as it uses";
    DiskPressure: Loss, Cluster, Replaces, Exit::Container,
        "The node evicted the pod because its disk was full.",
        "start the job again; have it request as much ephemeral-storage as it uses, or give nodes more disk";
    Preempted: Loss, Cluster, Replaces, Exit::Container,
        "The pod had to make room for one of higher priority.",
        "start the job again; give it a higher priority class if it may not be interrupted";
    NodeDrained: Loss, Cluster, Replaces, Exit::Container,
        "The node was drained or shut down.",
        "start the job again; drain nodes when their jobs have ended";
    NodeLost: Loss, Cluster, Replaces, Exit::Container,
        "The node was lost: it no longer answers, or no longer exists.",
        "start the job again; check the node";
    PodDeleted: Loss, Cluster, Replaces, Exit::Container,
        "Somebody deleted the pod.",
        "start the job again; to stop a job, cancel it in Buildkite";

    AgentNotRegistered: Agent, Configuration, Replaces, NEVER_RAN,
        "The agent ended before it took the job, as when Buildkite refuses its token or cannot be reached.",
        "read the agent's last words; check the agent token, and the pod's way to the operator, where it registers, and to Buildkite";
    NotAcquired: Agent, Buildkite, Replaces, NEVER_RAN,
        "Buildkite did not give the job to the pod's agent (its exit status is 27 or 28), or another agent has the job.",
        "see in Buildkite which agent has it; let only one operator serve the queue";
    AgentLost: Agent, Cluster, Replaces, Exit::Container,
        "The agent ended while the job ran.",
        "start the job again; retry rules on exit status -1 or on signal_reason agent_stop do so by themselves";
    AgentOutOfMemory: Agent, Configuration, Replaces, Exit::Container,
        "A container of the operator's own, such as agent or checkout, used more memory than its limit.",
        "raise that container's memory limit below resources in pod_config";
}
