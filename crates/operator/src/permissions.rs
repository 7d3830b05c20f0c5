//! What the operator and the syncer of mirrors may do in the cluster: the one place that says so. The chart, and with it the plain manifests, are
//! written from here.

use bk_plan::broker::session::secret_names;

/// A rule of a Role, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// What it is for.
    pub why: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The kinds of objects.
    pub resources: &'static [&'static str],
    /// The names of the objects, if not all.
    pub names: Vec<String>,
    /// What may be done.
    pub verbs: &'static [&'static str],
}

/// Names of objects that an installation chooses.
#[derive(Clone, Debug)]
pub struct Names {
    /// The Secret with the agent token.
    pub agent_token: String,
    /// The Secret with the API token.
    pub api_token: String,
    /// The operator's Deployment.
    pub deployment: String,
}

const OWN: &str = "buildkite-operator.dev";
const COORDINATION: &str = "coordination.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];

/// What the operator may do in the job namespace.
pub fn in_job_namespace(names: &Names) -> Vec<Permission> {
    let all = |why, group, resources, verbs| Permission { why, group, resources, names: Vec::new(), verbs };
    vec![
        all("", OWN, &["buildjobs"], &["get", "list", "watch", "create", "delete"]),
        all("", OWN, &["buildjobs/status"], &["patch"]),
        all("What BuildJobs refer to by name.", OWN, &["buildenvironments"], READ),
        all("", "", &["podtemplates"], &["get"]),
        all("", "batch", &["jobs"], &["get", "list", "watch", "create", "delete"]),
        all("", "", &["pods"], &["get", "list", "watch", "create", "delete"]),
        all(
            "The shim, the JobSpawner's written choices, and the broker's authority.",
            "",
            &["configmaps"],
            &["get", "list", "watch", "create", "patch"],
        ),
        Permission {
            why: "The tokens, and no other Secret.",
            group: "",
            resources: &["secrets"],
            names: vec![names.agent_token.clone(), names.api_token.clone()],
            verbs: READ,
        },
        all(
            "After whose UID the operator is called at Buildkite; a Role allows for its own namespace only.",
            "",
            &["namespaces"],
            &["get"],
        ),
        all("What happens to pods beyond their status.", "", &["events"], &["list", "watch"]),
        all("", "events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// What the operator may do in its own namespace, besides.
pub fn in_own_namespace(names: &Names) -> Vec<Permission> {
    let only = |why, group, resources, name: &str, verbs| Permission {
        why,
        group,
        resources,
        names: vec![name.to_owned()],
        verbs,
    };
    vec![
        only("Its configuration.", "", &["configmaps"], bk_api::config::CONFIG_MAP, READ),
        only("Whether this replica is the last.", "apps", &["deployments"], &names.deployment, &["get"]),
        only(
            "Which replica works.",
            COORDINATION,
            &["leases"],
            &names.deployment,
            &["get", "list", "watch", "update"],
        ),
        Permission {
            why: "",
            group: COORDINATION,
            resources: &["leases"],
            names: Vec::new(),
            verbs: &["create"],
        },
        Permission {
            why: "What somebody has to do something about.",
            group: "events.k8s.io",
            resources: &["events"],
            names: Vec::new(),
            verbs: &["create", "patch"],
        },
    ]
}

/// What the operator may do in its own namespace besides, if it answers webhooks. Their certificate's Secret and their configurations are called
/// `webhook`.
pub fn webhooks_in_own_namespace(webhook: &str) -> Vec<Permission> {
    vec![Permission {
        why: "The certificate of the webhooks, which the replicas share.",
        group: "",
        resources: &["secrets"],
        names: vec![webhook.to_owned()],
        verbs: &["list", "watch", "update"],
    }]
}

/// What it may do in the job namespace, too.
pub fn webhooks_in_job_namespace() -> Vec<Permission> {
    vec![Permission {
        why: "Whether there is what BuildJobs refer to.",
        group: "",
        resources: &["persistentvolumeclaims", "serviceaccounts"],
        names: Vec::new(),
        verbs: &["get"],
    }]
}

/// What it may do in the job namespace if it is to know of Secrets. It asks for their metadata, but nothing keeps it to that.
pub fn secrets_in_job_namespace() -> Vec<Permission> {
    vec![Permission {
        why: "Whether there are the Secrets that BuildJobs refer to.",
        group: "",
        resources: &["secrets"],
        names: Vec::new(),
        verbs: &["get"],
    }]
}

/// What it may do in the cluster, then.
pub fn webhooks_in_cluster() -> Vec<Permission> {
    let all = |why, group, resources, verbs| Permission { why, group, resources, names: Vec::new(), verbs };
    vec![
        all("Whether any node can run a job.", "", &["nodes"], &["list", "watch"]),
        all("Whether there is what BuildJobs refer to.", "scheduling.k8s.io", &["priorityclasses"], &["get"]),
        all("", "node.k8s.io", &["runtimeclasses"], &["get"]),
    ]
}

/// What it may do in the cluster, too, if it makes the certificate itself.
pub fn webhook_configurations(webhook: &str) -> Vec<Permission> {
    vec![Permission {
        why: "Its own webhooks, which are to trust its certificate.",
        group: "admissionregistration.k8s.io",
        resources: &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        names: vec![webhook.to_owned()],
        verbs: &["list", "watch", "patch"],
    }]
}

/// What the operator may do in its own namespace besides, if agents register at its broker. The Secret of the broker is called `name`, and
/// those of its sessions after it.
pub fn broker_in_own_namespace(name: &str) -> Vec<Permission> {
    vec![
        Permission {
            why: "The broker's authority, certificate and signing key, which the replicas share.",
            group: "",
            resources: &["secrets"],
            names: vec![name.to_owned()],
            verbs: &["list", "watch", "update"],
        },
        Permission {
            why: "Its sessions, which they share, too.",
            group: "",
            resources: &["secrets"],
            names: secret_names(name).collect(),
            verbs: &["list", "watch", "patch"],
        },
    ]
}

/// What it may do in the job namespace, then.
pub fn broker_in_job_namespace() -> Vec<Permission> {
    vec![Permission {
        why: "Jobs leave a node that is about to go, where `nodeLeaving` is `interrupt`.",
        group: "",
        resources: &["pods/eviction"],
        names: Vec::new(),
        verbs: &["create"],
    }]
}

/// What it may do in the cluster, then, if it is to know of nodes.
pub fn broker_in_cluster() -> Vec<Permission> {
    vec![Permission {
        why: "Whether the node of a job is lost or about to go.",
        group: "",
        resources: &["nodes"],
        names: Vec::new(),
        verbs: READ,
    }]
}

/// What it may do in the cluster if agents show their pod's service account token when they register.
pub fn token_reviews_in_cluster() -> Vec<Permission> {
    vec![Permission {
        why: "Which pod a service account token is of.",
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        names: Vec::new(),
        verbs: &["create"],
    }]
}

/// What the syncer of mirrors may do in the job namespace.
pub fn syncer_in_job_namespace() -> Vec<Permission> {
    let all = |why, resources, verbs| Permission { why, group: OWN, resources, names: Vec::new(), verbs };
    vec![
        all(
            "It passes on requests to fetch at once, as an annotation.",
            &["repomirrors"],
            &["get", "list", "watch", "patch"],
        ),
        all("", &["repomirrors/status"], &["patch"]),
    ]
}

/// Which Secrets it may read there.
pub fn syncer_secrets(names: Vec<String>) -> Vec<Permission> {
    vec![Permission {
        why: "The Secrets that RepoMirrors and the endpoint name: add yours.",
        group: "",
        resources: &["secrets"],
        names,
        verbs: &["get"],
    }]
}

/// What it may do in the operator's namespace.
pub fn syncer_in_own_namespace() -> Vec<Permission> {
    vec![Permission {
        why: "Its configuration.",
        group: "",
        resources: &["configmaps"],
        names: vec![bk_api::config::CONFIG_MAP.to_owned()],
        verbs: READ,
    }]
}

/// The rules as YAML, one after the other.
pub fn rules(permissions: &[Permission]) -> String {
    permissions.iter().map(rule).collect()
}

fn rule(permission: &Permission) -> String {
    let Permission { why, group, resources, names, verbs } = permission;
    let why = if why.is_empty() { String::new() } else { format!("# {why}\n") };
    let group = if group.is_empty() { "\"\"" } else { group };
    let names =
        if names.is_empty() { String::new() } else { format!("  resourceNames: [{}]\n", names.join(", ")) };
    let (resources, verbs) = (resources.join(", "), verbs.join(", "));
    format!("{why}- apiGroups: [{group}]\n  resources: [{resources}]\n{names}  verbs: [{verbs}]\n")
}
