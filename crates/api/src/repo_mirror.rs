//! RepoMirror: a repository of which the cluster keeps a copy to borrow from.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::credentials::GitCredentials;

/// References that a mirror has if its spec names none: branches, tags and the heads of pull requests.
pub const DEFAULT_REFS: [&str; 3] = ["refs/heads/*", "refs/tags/*", "refs/pull/*/head"];

/// Condition: whether jobs can borrow from the mirror.
pub const CONDITION_READY: &str = "Ready";
/// Condition: whether the last fetch went well.
pub const CONDITION_SYNCED: &str = "Synced";

/// A repository of which the cluster keeps a copy, so that checkouts fetch only what is new.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "buildkite-operator.dev",
    version = "v1alpha1",
    kind = "RepoMirror",
    plural = "repomirrors",
    singular = "repomirror",
    shortname = "rm",
    category = "buildkite",
    namespaced,
    status = "RepoMirrorStatus",
    derive = "PartialEq",
    doc = "A git repository of which the cluster keeps a copy, so that checkouts fetch only what is new.",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Last-Sync", type_ = "date", json_path = ".status.lastSync"),
    printcolumn(name = "Bytes", type_ = "integer", json_path = ".status.sizeBytes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Head", type_ = "string", json_path = ".status.head.commit", priority = 1),
    printcolumn(name = "Error", type_ = "string", json_path = ".status.error", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct RepoMirrorSpec {
    /// The repository's address, as jobs have it or in another spelling: `https://github.com/example/app.git`,
    /// `ssh://git@github.com/example/app` and `git@github.com:example/app.git` are the same. No password belongs here.
    #[schemars(length(min = 3, max = 2048))]
    #[x_kube(
        validation = Rule::new("self.matches('^(https?|ssh|git)://[^ ]+$') || self.matches('^([^/@: ]+@)?[^/@: ]+:[^ ]+$') && !self.contains('://') && !self.contains('::')")
            .message("the address of a repository begins with https://, http://, ssh:// or git://, or has the form user@host:path"),
        validation = Rule::new("!self.matches('^[a-z]+://[^/@]*:[^/@]*@')")
            .message("a password in an address is seen by everybody; use `credentials`")
    )]
    pub url: String,

    /// How many seconds pass between two fetches. The operator's configuration decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 604_800))]
    pub interval_seconds: Option<u32>,

    /// Secrets with which the syncer authenticates, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<GitCredentials>,

    /// Which references are kept, such as `refs/heads/release-*`; a leading `^` leaves some out. Branches, tags and
    /// the heads of pull requests if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 256)))]
    #[x_kube(validation = Rule::new("self.all(r, r.matches('^\\\\^?refs/[A-Za-z0-9._/@#+=-]*[*]?[A-Za-z0-9._/@#+=-]*$'))")
        .message("a reference begins with refs/ and has at most one `*`"))]
    pub refs: Vec<String>,

    /// Whether files that Git LFS keeps apart are fetched too.
    #[serde(default)]
    pub lfs: bool,

    /// Whether the mirror is left as it is.
    #[serde(default)]
    pub suspend: bool,
}

/// How a mirror is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoMirrorStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The mirror's directory below that of all mirrors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// When the mirror was last the same as the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<Time>,
    /// When that was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Time>,
    /// When the mirror was last made from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt_at: Option<Time>,
    /// The default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<MirrorHead>,
    /// How much room it takes, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Why the last try failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How it is on each node, if every node has mirrors of its own; the other fields are then of the node that wrote last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeMirror>,
    /// `Ready`: jobs can borrow from it. `Synced`: the last fetch went well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The default branch of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MirrorHead {
    /// Its name.
    pub branch: String,
    /// Its commit.
    pub commit: String,
}

/// A mirror on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMirror {
    /// When it was last the same as the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<Time>,
    /// When that was last tried. A node that has not tried for a day is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Time>,
    /// The default branch's commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Why the last try failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl RepoMirrorSpec {
    /// The references that are kept.
    pub fn kept_refs(&self) -> Vec<String> {
        if self.refs.is_empty() {
            return DEFAULT_REFS.map(str::to_owned).into();
        }
        self.refs.clone()
    }
}
