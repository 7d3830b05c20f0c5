//! How to read policies of the network. They add up: a pod that any of them selects may do what one of them allows, and nothing else.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::core::{Selector, SelectorExt};

/// Pods at one end of a connection.
pub(super) struct End {
    pub(super) namespace: String,
    /// The labels of that namespace.
    pub(super) of_namespace: BTreeMap<String, String>,
    /// The labels of the pods.
    pub(super) labels: BTreeMap<String, String>,
    /// Where they are, if it is known.
    pub(super) addresses: Vec<IpAddr>,
}

/// A port of the pods at the far end, as a number and by its names.
pub(super) struct Port {
    pub(super) protocol: &'static str,
    pub(super) number: u16,
    pub(super) names: Vec<String>,
}

/// Which way a rule looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ingress,
    Egress,
}

/// The policies that select these pods and have a say in this direction. Without any, all is allowed.
pub(super) fn concerning<'a>(
    policies: &'a [NetworkPolicy],
    pods: &End,
    direction: Direction,
) -> Vec<&'a NetworkPolicy> {
    let is_concerned = |policy: &&NetworkPolicy| {
        let Some(spec) = &policy.spec else { return false };
        let speaks = match (&spec.policy_types, direction) {
            (Some(types), Direction::Ingress) => types.iter().any(|kind| kind == "Ingress"),
            (Some(types), Direction::Egress) => types.iter().any(|kind| kind == "Egress"),
            (None, Direction::Ingress) => true,
            (None, Direction::Egress) => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        };
        speaks && spec.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pods.labels))
    };
    policies.iter().filter(is_concerned).collect()
}

/// Whether any of these policies, which are of pods in this namespace, lets a connection with those at the other end through. Without another end
/// only the port matters.
pub(super) fn is_allowed(
    policies: &[&NetworkPolicy],
    direction: Direction,
    (near, far): (&str, Option<&End>),
    port: &Port,
) -> bool {
    let allows = |peers: Option<&Vec<NetworkPolicyPeer>>, ports: Option<&Vec<NetworkPolicyPort>>| {
        has_peer(peers.map_or(&[], Vec::as_slice), near, far)
            && has_port(ports.map_or(&[], Vec::as_slice), port)
    };
    policies.iter().filter_map(|policy| policy.spec.as_ref()).any(|spec| match direction {
        Direction::Ingress => {
            spec.ingress.iter().flatten().any(|rule| allows(rule.from.as_ref(), rule.ports.as_ref()))
        }
        Direction::Egress => {
            spec.egress.iter().flatten().any(|rule| allows(rule.to.as_ref(), rule.ports.as_ref()))
        }
    })
}

fn has_peer(peers: &[NetworkPolicyPeer], near: &str, far: Option<&End>) -> bool {
    let Some(far) = far else { return true };
    let is_it = |peer: &NetworkPolicyPeer| {
        if let Some(block) = &peer.ip_block {
            // Where nobody is, nobody can tell.
            return far.addresses.is_empty() || far.addresses.iter().any(|address| contains(block, *address));
        }
        let in_namespace = match &peer.namespace_selector {
            Some(selector) => selects(selector, &far.of_namespace),
            None => far.namespace == near,
        };
        in_namespace && peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, &far.labels))
    };
    peers.is_empty() || peers.iter().any(is_it)
}

fn has_port(ports: &[NetworkPolicyPort], port: &Port) -> bool {
    let is_it = |one: &NetworkPolicyPort| {
        let number = i32::from(port.number);
        one.protocol.as_deref().unwrap_or("TCP") == port.protocol
            && match &one.port {
                None => true,
                Some(IntOrString::Int(first)) => (*first..=one.end_port.unwrap_or(*first)).contains(&number),
                Some(IntOrString::String(name)) => port.names.contains(name),
            }
    };
    ports.is_empty() || ports.iter().any(is_it)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    // The API server takes no selector that cannot be read.
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

fn contains(block: &IPBlock, address: IpAddr) -> bool {
    is_within(&block.cidr, address) && !block.except.iter().flatten().any(|part| is_within(part, address))
}

/// Whether an address is in a block such as `10.0.0.0/8`.
fn is_within(block: &str, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let parsed = block
        .split_once('/')
        .and_then(|(base, length)| Some((base.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?)));
    let Some((base, length)) = parsed else { return false };
    let ((base, width), (address, other)) = (bits(base), bits(address));
    width == other && length <= width && (length == 0 || (base ^ address) >> (128 - length) == 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.0.0.0/8", "10.4.3.2", true)]
    #[case("10.0.0.0/8", "11.4.3.2", false)]
    #[case("10.4.3.2/32", "10.4.3.2", true)]
    #[case("0.0.0.0/0", "10.4.3.2", true)]
    #[case("0.0.0.0/0", "fd00::1", false)]
    #[case("fd00::/8", "fd12::1", true)]
    #[case("::/0", "fd12::1", true)]
    #[case("fd00::/64", "fd00:0:0:1::1", false)]
    #[case("10.0.0.0", "10.0.0.0", false)]
    #[case("10.0.0.0/33", "10.0.0.0", false)]
    fn blocks_of_addresses(#[case] block: &str, #[case] address: &str, #[case] expected: bool) {
        assert_eq!(is_within(block, address.parse().unwrap()), expected);
    }
}
