//! What the policies of the network let through between job pods and the operator.

use std::collections::BTreeMap;

use bk_api::{BuildJob, names};
use k8s_openapi::api::{core::v1::Pod, networking::v1::NetworkPolicy};
use kube::ResourceExt;

use super::{
    CHECK, Facts, address, is_stuck,
    policy::{Direction, End, Port, concerning, is_allowed},
    qualified,
};
use crate::{
    cli::doctor::{UNREADABLE, finding::Finding},
    settings::deployment,
};

/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Whether job pods may go to the operator, and the operator lets them in.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let seen = facts.seen;
    let mut findings = Vec::new();
    let unread = [seen.of_jobs.as_ref().err(), seen.of_operator.as_ref().err(), seen.pods.as_ref().err()];
    findings.extend(unread.into_iter().flatten().map(|problem| Finding::warn(CHECK, problem, UNREADABLE)));
    let (jobs, operator) = (jobs(facts), operator(facts));
    let port = port(facts);
    let number = port.number;
    if let Ok(policies) = &seen.of_jobs {
        let concerned = concerning(policies, &jobs, Direction::Egress);
        let allows =
            |far, port: &Port| is_allowed(&concerned, Direction::Egress, (&jobs.namespace, far), port);
        let namespace = &operator.namespace;
        if !concerned.is_empty() && !allows(Some(&operator), &port) {
            let problem = format!(
                "{} job pods from the operator: no egress to namespace {namespace} on port {number}",
                keeping(&concerned, &jobs.namespace)
            );
            let cure = format!(
                "allow egress from pods with the label {} to {} in namespace {namespace} on TCP port {number}",
                names::LABEL_BUILD_JOB,
                labelled(&operator.labels)
            );
            findings.push(told(facts, &operator, problem, cure));
        }
        let dns =
            |protocol| Port { protocol, number: 53, names: vec!["dns".to_owned(), "dns-tcp".to_owned()] };
        if !concerned.is_empty() && !allows(None, &dns("UDP")) && !allows(None, &dns("TCP")) {
            let problem = format!(
                "{} job pods from DNS, so they cannot look up {}: no egress on port 53",
                keeping(&concerned, &jobs.namespace),
                facts.address.host
            );
            let cure = format!(
                "allow egress from pods with the label {} to the cluster's DNS on UDP and TCP port 53",
                names::LABEL_BUILD_JOB
            );
            findings.push(Finding::fail(CHECK, problem, cure));
        }
    }
    if let Ok(policies) = &seen.of_operator {
        let concerned = concerning(policies, &operator, Direction::Ingress);
        let ends = (operator.namespace.as_str(), Some(&jobs));
        if !concerned.is_empty() && !is_allowed(&concerned, Direction::Ingress, ends, &port) {
            let namespace = &jobs.namespace;
            let problem = format!(
                "{} job pods from the operator: no ingress from namespace {namespace} on port {number}",
                keeping(&concerned, &operator.namespace)
            );
            let cure = format!(
                "allow ingress to {} from pods with the label {} in namespace {namespace} on TCP port {number}",
                labelled(&operator.labels),
                names::LABEL_BUILD_JOB
            );
            findings.push(told(facts, &jobs, problem, cure));
        }
    }
    findings
}

/// A policy that is in the way, as far as the labels of the namespace at the far end may be read.
fn told(facts: &Facts<'_>, far: &End, problem: String, cure: String) -> Finding {
    match facts.seen.namespaces.get(&far.namespace) {
        Some(Err(unread)) => {
            Finding::warn(CHECK, format!("{problem}, unless its labels allow it; {unread}"), cure)
        }
        _ => Finding::fail(CHECK, problem, cure),
    }
}

/// Who is in the way.
fn keeping(policies: &[&NetworkPolicy], namespace: &str) -> String {
    let names: Vec<String> = policies.iter().map(|policy| qualified(namespace, &policy.metadata)).collect();
    match names.as_slice() {
        [name] => format!("NetworkPolicy {name} keeps"),
        names => format!("NetworkPolicies {} keep", names.join(", ")),
    }
}

fn labelled(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() {
        "the operator's pods".to_owned()
    } else {
        format!("pods with {}", labels.join(","))
    }
}

fn of_namespace(facts: &Facts<'_>, namespace: &str) -> BTreeMap<String, String> {
    let read = facts.seen.namespaces.get(namespace).and_then(|labels| labels.as_ref().ok());
    let automatic = || BTreeMap::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]);
    read.cloned().unwrap_or_else(automatic)
}

/// The pods of jobs, by one of them: one whose agent does not register, or the newest, or what all have in common.
fn jobs(facts: &Facts<'_>) -> End {
    let namespace = facts.installation.job_namespace();
    let pods = facts.seen.pods.as_deref().unwrap_or_default();
    let stuck: Vec<String> = facts
        .seen
        .jobs
        .iter()
        .flatten()
        .filter(|job| is_stuck(job))
        .filter_map(|job: &BuildJob| job.status.as_ref()?.pod_name.clone())
        .collect();
    let pod =
        pods.iter().max_by_key(|pod: &&Pod| (stuck.contains(&pod.name_any()), pod.creation_timestamp()));
    let any = || BTreeMap::from([(names::LABEL_BUILD_JOB.to_owned(), "any".to_owned())]);
    let addresses = pod.and_then(|pod| pod.status.as_ref()).and_then(|status| status.pod_ips.as_ref());
    End {
        namespace: namespace.to_owned(),
        of_namespace: of_namespace(facts, namespace),
        labels: pod.map_or_else(any, |pod| pod.labels().clone()),
        addresses: addresses.into_iter().flatten().filter_map(|one| one.ip.parse().ok()).collect(),
    }
}

/// The operator's pods.
fn operator(facts: &Facts<'_>) -> End {
    let namespace = &facts.installation.namespace;
    let spec = facts.deployment.spec.as_ref();
    let labels = spec.and_then(|spec| spec.template.metadata.as_ref()?.labels.clone());
    let slices = facts.seen.slices.as_deref().unwrap_or_default();
    let addresses = slices.iter().flat_map(|slice| &slice.endpoints).flat_map(|endpoint| &endpoint.addresses);
    End {
        namespace: namespace.clone(),
        of_namespace: of_namespace(facts, namespace),
        labels: labels.unwrap_or_default(),
        addresses: addresses.filter_map(|address| address.parse().ok()).collect(),
    }
}

/// The broker's port at the operator's pods.
fn port(facts: &Facts<'_>) -> Port {
    let number = address::pod_port(facts);
    let container = deployment::container(facts.deployment);
    let ports = container.and_then(|container| container.ports.as_ref()).into_iter().flatten();
    let names =
        ports.filter(|port| port.container_port == i32::from(number)).filter_map(|port| port.name.clone());
    Port { protocol: "TCP", number, names: names.collect() }
}
