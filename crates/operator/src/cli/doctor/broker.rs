//! The registration broker: whether agents in job pods find it, get there, and believe it.
//!
//! - [`address`]: where pods look for it, and who is there
//! - [`certificate`]: what it proves itself with, and what pods trust
//! - [`network`]: what the policies of the network let through
//! - [`policy`]: how to read them

mod address;
mod certificate;
mod network;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bk_api::{
    BuildJob,
    config::{AgentCredentials, Config, RegistrationProof},
    names,
};
use bk_plan::{
    broker::session::{SHARDS, secret_name},
    decide,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        authorization::v1::ResourceAttributes,
        core::v1::{ConfigMap, Namespace, Pod, Secret, Service},
        discovery::v1::EndpointSlice,
        networking::v1::NetworkPolicy,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use self::address::Address;
use super::{
    UNREADABLE, checks,
    finding::{Finding, Grade},
};
use crate::{
    cli::{
        connection::failed,
        installation::{Broker, Installation},
    },
    permissions,
};

const CHECK: &str = "broker";

/// How many jobs are named whose agents do not register.
const NAMED: usize = 3;

/// What the operator may do because of its broker, besides.
pub(super) fn permissions(broker: &Broker, installation: &Installation) -> Vec<ResourceAttributes> {
    let own = permissions::broker_in_own_namespace(&broker.name);
    let mut all = checks::attributes(&own, &installation.namespace);
    let job = permissions::broker_in_job_namespace();
    all.extend(checks::attributes(&job, installation.job_namespace()));
    let asks = |config: &Config| {
        config.pods.registers_by_operator()
            && config.pods.registration_proof == RegistrationProof::ServiceAccount
    };
    if installation.config.as_ref().is_ok_and(asks) {
        all.extend(checks::attributes(&permissions::token_reviews_in_cluster(), ""));
    }
    all
}

/// What it means that the operator may not see nodes; it works without.
pub(super) fn nodes(denied: &[ResourceAttributes]) -> Option<Finding> {
    let problem =
        "it may not see nodes, so the job of a lost node ends only when the cluster takes its pod away";
    let cure = "set broker.watchNodes in the chart, if that is too late";
    (!denied.is_empty()).then(|| Finding::warn("permissions", problem, cure))
}

/// What was read of the broker and of what is around it. What may not be read is told by its error.
struct Seen {
    service: Result<Option<Service>, String>,
    slices: Result<Vec<EndpointSlice>, String>,
    secret: Result<Option<Secret>, String>,
    trusted: Result<Option<ConfigMap>, String>,
    /// Which Secrets of sessions are missing.
    sessionless: Result<Vec<String>, String>,
    jobs: Result<Vec<BuildJob>, String>,
    /// Pods of jobs.
    pods: Result<Vec<Pod>, String>,
    /// The policies of the job namespace.
    of_jobs: Result<Vec<NetworkPolicy>, String>,
    /// The policies of the operator's namespace.
    of_operator: Result<Vec<NetworkPolicy>, String>,
    /// The labels of namespaces, by name.
    namespaces: BTreeMap<String, Result<BTreeMap<String, String>, String>>,
}

/// Looks at the broker of an installation, if it has one that pods use.
pub(super) async fn examine(client: &Client, installation: &Installation) -> Vec<Finding> {
    let Some(deployment) = installation.deployment() else { return Vec::new() };
    let default = Config::default();
    let config = installation.config.as_ref().unwrap_or(&default);
    let broker = match used(installation.broker(), config.pods.agent_credentials) {
        Ok(broker) => broker,
        Err(finding) => return finding.into_iter().collect(),
    };
    let address = match Address::of(&broker.url) {
        Ok(address) => address,
        Err(finding) => return vec![finding],
    };
    let seen = Box::pin(read(client, installation, &broker, &address)).await;
    let facts = Facts { broker: &broker, address: &address, installation, deployment, seen: &seen };
    findings(&facts, Timestamp::now())
}

/// The broker, if pods use it; or what there is to say about that they do not.
fn used(broker: Option<Broker>, credentials: Option<AgentCredentials>) -> Result<Broker, Option<Finding>> {
    match (broker, credentials) {
        (None, Some(AgentCredentials::Broker)) => Err(Some(Finding::fail(
            CHECK,
            "agentCredentials is broker, and the operator has none",
            "set broker.enabled in the chart, or agentCredentials: secret in pod_config",
        ))),
        (None, _) => Err(None),
        (Some(_), Some(AgentCredentials::Secret)) => Err(Some(Finding::ok(
            CHECK,
            "not used: agentCredentials is secret, so agents have the agent token",
        ))),
        (Some(broker), _) => Ok(broker),
    }
}

async fn read(client: &Client, installation: &Installation, broker: &Broker, address: &Address) -> Seen {
    let (own, jobs) = (installation.namespace.as_str(), installation.job_namespace());
    let name = broker.name.as_str();
    let (service, slices) = match address.service() {
        Some((service, namespace)) => (
            object::<Service>(client, namespace, service, "Service").await,
            objects::<EndpointSlice>(
                client,
                namespace,
                "EndpointSlices",
                &format!("kubernetes.io/service-name={service}"),
            )
            .await,
        ),
        None => (Ok(None), Ok(Vec::new())),
    };
    let mut sessionless = Ok(Vec::new());
    for shard in 0..SHARDS {
        let secret = secret_name(name, shard);
        let found = Api::<Secret>::namespaced(client.clone(), own).get_metadata_opt(&secret).await;
        match (&mut sessionless, found) {
            (Ok(missing), Ok(None)) => missing.push(secret),
            (Ok(_), Err(error)) => {
                sessionless = Err(failed(format!("read Secret {own}/{secret}"))(error).to_string());
            }
            _ => {}
        }
    }
    let mut namespaces = BTreeMap::new();
    for namespace in [own, jobs] {
        let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await;
        let labels = found
            .map(|found| found.metadata.labels.unwrap_or_default())
            .map_err(|error| failed(format!("read Namespace {namespace}"))(error).to_string());
        namespaces.insert(namespace.to_owned(), labels);
    }
    Seen {
        service,
        slices,
        secret: object(client, own, name, "Secret").await,
        trusted: object(client, jobs, name, "ConfigMap").await,
        sessionless,
        jobs: objects(client, jobs, "BuildJobs", "").await,
        pods: objects(client, jobs, "pods", names::LABEL_BUILD_JOB).await,
        of_jobs: objects(client, jobs, "NetworkPolicies", "").await,
        of_operator: objects(client, own, "NetworkPolicies", "").await,
        namespaces,
    }
}

async fn object<K>(client: &Client, namespace: &str, name: &str, kind: &str) -> Result<Option<K>, String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.map_err(|error| failed(format!("read {kind} {namespace}/{name}"))(error).to_string())
}

async fn objects<K>(client: &Client, namespace: &str, kinds: &str, labels: &str) -> Result<Vec<K>, String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = ListParams::default().labels(labels);
    let found = Api::<K>::namespaced(client.clone(), namespace).list(&params).await;
    found
        .map(|list| list.items)
        .map_err(|error| failed(format!("list {kinds} in namespace {namespace}"))(error).to_string())
}

/// All that findings depend on.
struct Facts<'a> {
    broker: &'a Broker,
    address: &'a Address,
    installation: &'a Installation,
    deployment: &'a Deployment,
    seen: &'a Seen,
}

fn findings(facts: &Facts<'_>, now: Timestamp) -> Vec<Finding> {
    let mut findings = address::findings(facts);
    findings.extend(certificate::findings(facts, now));
    findings.extend(network::findings(facts));
    if findings.is_empty() {
        let message = format!(
            "job pods find {}, get there as far as NetworkPolicies go, and trust it",
            facts.broker.url
        );
        findings.push(Finding::ok(CHECK, message));
    }
    let stuck = unregistered(facts, &findings);
    findings.extend(stuck);
    findings
}

/// The jobs whose pods run and whose agents do not register, with the reason if one was found.
fn unregistered(facts: &Facts<'_>, found: &[Finding]) -> Option<Finding> {
    let jobs = match &facts.seen.jobs {
        Ok(jobs) => jobs,
        Err(problem) => return Some(Finding::warn(CHECK, problem, UNREADABLE)),
    };
    let stuck: Vec<&BuildJob> = jobs.iter().filter(|job| is_stuck(job)).collect();
    let first = stuck.first()?;
    let mut named: Vec<String> = stuck.iter().take(NAMED).map(|job| job.name_any()).collect();
    named.extend((stuck.len() > NAMED).then(|| format!("{} more", stuck.len() - NAMED)));
    let problem = format!(
        "all containers of {} run, but no agent has registered: {}",
        if stuck.len() == 1 { "a job".to_owned() } else { format!("{} jobs", stuck.len()) },
        named.join(", ")
    );
    if let Some(reason) = found.iter().find(|finding| finding.grade == Grade::Fail) {
        return Some(Finding::fail(CHECK, format!("{problem}; {}", reason.message), "see above"));
    }
    let pod = first.status.as_ref().and_then(|status| status.pod_name.clone()).unwrap_or_default();
    let cure = format!(
        "see `kubectl logs {pod} -c agent` and the operator's log; policies of other kinds, such as Cilium's or a mesh's, are not looked at"
    );
    Some(Finding::fail(CHECK, format!("{problem}; nothing above explains it"), cure))
}

/// Whether a job's pod runs and its agent should have registered.
fn is_stuck(job: &BuildJob) -> bool {
    let missed = |status: &bk_api::BuildJobStatus| {
        !status.phase.is_terminal() && decide::has_registered(status) == Some(false)
    };
    job.status.as_ref().is_some_and(missed)
}

/// The name of an object with its namespace.
fn qualified(namespace: &str, metadata: &ObjectMeta) -> String {
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}
