//! A job pod as it is kept: whose it is, and what matters about it.
//!
//! Most of a pod is environment, mounts and volumes, and no decision depends on them. They are passed over where the API
//! server's answer is read, as thousands of pods would otherwise fill the memory.

use std::collections::BTreeMap;

use k8s_openapi::{
    Metadata, NamespaceResourceScope, Resource,
    api::core::v1::{Container, EnvVar, Pod, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use serde::Deserialize;

use super::PodFacts;
use crate::origin::{self, Origin};

/// A job pod as it is kept. To the API server it is a pod like any other, but it can only be read.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire<WireContainer>")]
pub struct JobPod {
    /// Without labels and annotations: maps of one entry take as much as everything else that is kept.
    metadata: ObjectMeta,
    build_job: Option<Box<str>>,
    attempt: Option<u32>,
    facts: PodFacts,
}

impl JobPod {
    /// What matters about the pod. What has happened to it beyond its status is not known here.
    pub fn facts(&self) -> &PodFacts {
        &self.facts
    }

    /// The same, if nothing else is wanted of it.
    pub fn into_facts(self) -> PodFacts {
        self.facts
    }
}

impl Origin for JobPod {
    fn build_job(&self) -> Option<&str> {
        self.build_job.as_deref()
    }

    fn attempt(&self) -> Option<u32> {
        self.attempt
    }
}

/// What is a pod to the API server.
macro_rules! read_as_pod {
    ($($kind:ty),*) => {$(
        impl Resource for $kind {
            const API_VERSION: &'static str = Pod::API_VERSION;
            const GROUP: &'static str = Pod::GROUP;
            const KIND: &'static str = Pod::KIND;
            const VERSION: &'static str = Pod::VERSION;
            const URL_PATH_SEGMENT: &'static str = Pod::URL_PATH_SEGMENT;
            type Scope = NamespaceResourceScope;
        }

        impl Metadata for $kind {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

read_as_pod!(JobPod, Applicant);

/// A job pod as the broker reads it when its agent registers: with the agent's variables besides.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire<WireApplicant>")]
pub struct Applicant {
    metadata: ObjectMeta,
    spec: PodSpec,
    status: Option<PodStatus>,
}

impl From<Applicant> for Pod {
    fn from(Applicant { metadata, spec, status }: Applicant) -> Self {
        Self { metadata, spec: Some(spec), status }
    }
}

/// What is read of a pod.
#[derive(Deserialize)]
#[serde(bound = "C: Deserialize<'de>")]
struct Wire<C> {
    metadata: WireMeta,
    #[serde(default)]
    spec: WireSpec<C>,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    owner_references: Option<Vec<WireOwner>>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// What tells owners apart.
#[derive(Deserialize)]
struct WireOwner {
    kind: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "C: Deserialize<'de>")]
struct WireSpec<C> {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<C>,
    init_containers: Option<Vec<C>>,
}

impl<C> Default for WireSpec<C> {
    fn default() -> Self {
        Self { node_name: None, containers: Vec::new(), init_containers: None }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    name: String,
    image: Option<String>,
    restart_policy: Option<String>,
    command: Option<Vec<String>>,
}

/// A container with its variables, so far as they have values of their own.
#[derive(Deserialize)]
struct WireApplicant {
    name: String,
    command: Option<Vec<String>>,
    env: Option<Vec<WireVariable>>,
}

#[derive(Deserialize)]
struct WireVariable {
    name: String,
    value: Option<String>,
}

impl<C> From<WireSpec<C>> for PodSpec
where
    Container: From<C>,
{
    fn from(wire: WireSpec<C>) -> Self {
        let containers = |of: Vec<C>| of.into_iter().map(Container::from).collect();
        Self {
            node_name: wire.node_name,
            containers: containers(wire.containers),
            init_containers: wire.init_containers.map(containers),
            ..Self::default()
        }
    }
}

impl From<Wire<WireApplicant>> for Applicant {
    fn from(wire: Wire<WireApplicant>) -> Self {
        Self { metadata: wire.metadata.into(), spec: wire.spec.into(), status: wire.status }
    }
}

impl From<Wire<WireContainer>> for JobPod {
    fn from(wire: Wire<WireContainer>) -> Self {
        let spec = PodSpec::from(wire.spec);
        let mut metadata = ObjectMeta::from(wire.metadata);
        let (build_job, attempt) = (origin::label(&metadata).map(Box::from), origin::annotation(&metadata));
        (metadata.labels, metadata.annotations) = (None, None);
        let pod = Pod { metadata, spec: Some(spec), status: wire.status };
        let mut facts = PodFacts::of(&pod);
        // Lists are made with room for more than there are containers.
        facts.managed.shrink_to_fit();
        Self { build_job, attempt, facts, metadata: pod.metadata }
    }
}

impl From<WireMeta> for ObjectMeta {
    fn from(wire: WireMeta) -> Self {
        Self {
            name: wire.name,
            namespace: wire.namespace,
            uid: wire.uid,
            resource_version: wire.resource_version,
            creation_timestamp: wire.creation_timestamp,
            deletion_timestamp: wire.deletion_timestamp,
            deletion_grace_period_seconds: wire.deletion_grace_period_seconds,
            owner_references: wire
                .owner_references
                .map(|owners| owners.into_iter().map(OwnerReference::from).collect()),
            labels: wire.labels,
            annotations: wire.annotations,
            ..Self::default()
        }
    }
}

impl From<WireOwner> for OwnerReference {
    fn from(wire: WireOwner) -> Self {
        Self { kind: wire.kind, uid: wire.uid, ..Self::default() }
    }
}

impl From<WireApplicant> for Container {
    fn from(WireApplicant { name, command, env }: WireApplicant) -> Self {
        let variable = |WireVariable { name, value }| EnvVar { name, value, value_from: None };
        let env = env.map(|env| env.into_iter().map(variable).collect());
        Self { name, command, env, ..Self::default() }
    }
}

impl From<WireContainer> for Container {
    fn from(wire: WireContainer) -> Self {
        Self {
            name: wire.name,
            image: wire.image,
            restart_policy: wire.restart_policy,
            command: wire.command,
            ..Self::default()
        }
    }
}
