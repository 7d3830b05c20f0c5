//! Where pods look for the broker, and who is there.

use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::Endpoint;
use reqwest::Url;

use super::{CHECK, Facts};
use crate::cli::{
    doctor::{UNREADABLE, finding::Finding},
    installation::flag,
};

/// The parts of the broker's URL.
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether it has a certificate.
    pub(super) has_tls: bool,
}

impl Address {
    /// The parts of a URL, or what is wrong with it.
    pub(super) fn of(url: &str) -> Result<Self, Finding> {
        let parts = url.parse::<Url>().ok().and_then(|url| {
            let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
            Some(Self { host, port: url.port_or_known_default()?, has_tls: url.scheme() == "https" })
        });
        let cure = "expected something like https://buildkite-operator-broker.buildkite.svc:8444/v3";
        parts.ok_or_else(|| Finding::fail(CHECK, format!("--broker-url {url} is no URL of a server"), cure))
    }

    /// The Service that the host is the name of, and its namespace.
    pub(super) fn service(&self) -> Option<(&str, &str)> {
        let mut labels = self.host.split('.');
        let (service, namespace) = (labels.next()?, labels.next()?);
        (labels.next() == Some("svc")).then_some((service, namespace))
    }
}

/// Whether there is a Service behind the name, and anybody behind the Service.
pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let Address { host, port, .. } = facts.address;
    let Some((name, namespace)) = facts.address.service() else {
        let problem =
            format!("{host} is not the name of a Service, so from here nobody knows where it leads");
        let cure = "check that job pods can look it up and that it leads to the operator, or let the chart choose --broker-url";
        return vec![Finding::warn(CHECK, problem, cure)];
    };
    let service = match &facts.seen.service {
        Ok(Some(service)) => service,
        Ok(None) => {
            let problem =
                format!("DNS: there is no Service {namespace}/{name}, so job pods cannot look up {host}");
            return vec![Finding::fail(CHECK, problem, "upgrade the chart, or correct --broker-url")];
        }
        Err(problem) => return vec![Finding::warn(CHECK, problem, UNREADABLE)],
    };
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    if !ports.into_iter().any(|one| one.port == i32::from(*port)) {
        let problem = format!("Service {namespace}/{name} has no port {port}");
        return vec![Finding::fail(CHECK, problem, "upgrade the chart, or correct --broker-url")];
    }
    match &facts.seen.slices {
        Err(problem) => vec![Finding::warn(CHECK, problem, UNREADABLE)],
        Ok(slices) => {
            let ready = |endpoint: &Endpoint| {
                endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
            };
            let is_any = slices.iter().flat_map(|slice| &slice.endpoints).any(ready);
            let problem =
                format!("no endpoint of Service {namespace}/{name} is ready, so agents reach nobody");
            let cure = "see why the operator's pods are not: their /readyz and their log tell";
            (!is_any).then(|| Finding::fail(CHECK, problem, cure)).into_iter().collect()
        }
    }
}

/// On which port of the operator's pods the broker answers.
pub(super) fn pod_port(facts: &Facts<'_>) -> u16 {
    let listens = flag(facts.deployment, "--broker-listen").and_then(|at| at.parse::<SocketAddr>().ok());
    listens.map_or(facts.address.port, |at| at.port())
}
