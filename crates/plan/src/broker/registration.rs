//! Whether a pod may register an agent now, and as what.

use std::net::IpAddr;

use bk_api::config::TOKEN_KEY;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use crate::{
    facts::PodFacts,
    pod::{self, AGENT_CONTAINER},
};

/// How long after the last of a pod's containers has started its agent may register. Agents try for five minutes.
pub const VALIDITY: SignedDuration = SignedDuration::from_mins(10);

/// Who shows a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller<'a> {
    /// Somebody at this address.
    Address(IpAddr),
    /// The pod with this UID, as the API server vouches for.
    Pod(&'a str),
}

/// What an agent is registered as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// Its tags; nothing if only the kubelet knows them.
    pub tags: Option<Vec<String>>,
    /// Whether it is certain that the caller is the pod. An address is not known before the kubelet has told it.
    pub is_certain: bool,
}

/// Why a ticket is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody has issued it, or it was altered.
    #[error("this is no one-time token of this operator's")]
    Unknown,
    /// An agent has registered with it.
    #[error("the one-time token has been used")]
    Used,
    /// Its pod started too long ago.
    #[error("the one-time token has expired")]
    Expired,
    /// Its pod is gone, or about to go.
    #[error("the one-time token's pod is gone")]
    PodGone,
    /// Somebody else shows it.
    #[error("the one-time token is another pod's")]
    Foreign,
}

impl Refusal {
    /// The refusal as a word, for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::PodGone => "pod_gone",
            Self::Foreign => "foreign",
        }
    }
}

/// Decides on a ticket that is good as it is shown, by the pod that it was made for as the API server has that now.
pub fn decide(
    shown: &str,
    pod: Option<&Pod>,
    caller: Caller<'_>,
    now: Timestamp,
) -> Result<Registration, Refusal> {
    let (pod, agent) = pod.and_then(|pod| Some((pod, bearer(pod, shown)?))).ok_or(Refusal::PodGone)?;
    let facts = PodFacts::of(pod);
    if facts.is_deleting() || facts.is_over() {
        return Err(Refusal::PodGone);
    }
    let is_certain = is_caller(pod, &facts, caller).ok_or(Refusal::Foreign)?;
    if facts.all_started() && facts.started_at.is_some_and(|at| now.duration_since(at) > VALIDITY) {
        return Err(Refusal::Expired);
    }
    let listed = |tags: String| {
        let tags = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        tags.map(str::to_owned).collect()
    };
    Ok(Registration {
        name: variable(agent, "BUILDKITE_AGENT_NAME").to_owned(),
        // A value with other variables in it is put together on the node.
        tags: pod::plain(variable(agent, "BUILDKITE_AGENT_TAGS")).map(listed),
        is_certain,
    })
}

/// The pod's agent, if this ticket was sealed into it: a pod of the same name may be another attempt's, or another BuildJob's.
fn bearer<'a>(pod: &'a Pod, shown: &str) -> Option<&'a Container> {
    let agent = pod.spec.as_ref()?.containers.iter().find(|container| container.name == AGENT_CONTAINER)?;
    (variable(agent, TOKEN_KEY) == shown).then_some(agent)
}

/// Whether the caller is the pod: for certain, as far as can be said yet, or not at all.
fn is_caller(pod: &Pod, facts: &PodFacts, caller: Caller<'_>) -> Option<bool> {
    match caller {
        Caller::Pod(uid) => (pod.metadata.uid.as_deref() == Some(uid)).then_some(true),
        Caller::Address(address) => match &facts.addresses {
            None => Some(false),
            Some(known) => known.contains(&address).then_some(true),
        },
    }
}

/// The addresses that a pod may be seen to call from, once the kubelet has told them: its own, and that of its node, behind which some networks hide
/// their pods.
pub(crate) fn addresses(status: &PodStatus) -> Option<Box<[IpAddr]>> {
    let own = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).chain(status.pod_ip.as_deref());
    let mut own: Vec<IpAddr> = own.filter_map(|text| text.parse().ok()).collect();
    own.dedup();
    if own.is_empty() {
        return None;
    }
    let node = status.host_ips.iter().flatten().map(|ip| ip.ip.as_str()).chain(status.host_ip.as_deref());
    own.extend(node.filter_map(|text| text.parse::<IpAddr>().ok()));
    Some(own.into())
}

fn variable<'a>(agent: &'a Container, name: &str) -> &'a str {
    let mut variables = agent.env.iter().flatten().filter(|variable| variable.name == name);
    variables.find_map(|variable| variable.value.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    /// What is shown.
    const TICKET: &str = "bkot~j~b~1~nightly~seal";

    /// A pod with a ticket whose containers run since then, if they do.
    fn pod(ticket: &str, address: Option<&str>, started: Option<i64>) -> Value {
        let state = started.map_or_else(
            || json!({"waiting": {}}),
            |at| json!({"running": {"startedAt": Timestamp::from_second(at).unwrap()}}),
        );
        let status = |name: &str| json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        json!({
            "metadata": {"name": "nightly-try1", "uid": "p"},
            "spec": {"containers": [
                {"name": "container-0", "command": ["/buildkite/shim/buildkite-shim", "run"]},
                {"name": "agent", "env": [
                    {"name": "BUILDKITE_AGENT_NAME", "value": "nightly-try1"},
                    {"name": "BUILDKITE_AGENT_TAGS", "value": "queue=default,arch=arm64"},
                    {"name": TOKEN_KEY, "value": ticket}]}]},
            "status": {"podIP": address, "containerStatuses": [status("container-0"), status("agent")]},
        })
    }

    fn asked(pod: Value, caller: Caller<'_>) -> Result<Registration, Refusal> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        decide(TICKET, Some(&pod), caller, Timestamp::from_second(NOW).unwrap())
    }

    fn at(address: &str) -> Caller<'static> {
        Caller::Address(address.parse().unwrap())
    }

    #[rstest]
    #[case::its_address(pod(TICKET, Some("10.0.0.7"), Some(NOW - 5)), at("10.0.0.7"), Ok(true))]
    #[case::its_address_is_not_known_yet(pod(TICKET, None, None), at("10.0.0.7"), Ok(false))]
    #[case::as_the_api_server_vouches(pod(TICKET, None, None), Caller::Pod("p"), Ok(true))]
    #[case::of_another_pod(pod(TICKET, None, None), Caller::Pod("q"), Err(Refusal::Foreign))]
    #[case::from_elsewhere(pod(TICKET, Some("10.0.0.7"), None), at("10.0.0.8"), Err(Refusal::Foreign))]
    #[case::of_another_build_job(
        pod("bkot~j~c~1~nightly~seal", None, None),
        at("10.0.0.7"),
        Err(Refusal::PodGone)
    )]
    #[case::of_another_attempt(
        pod("bkot~j~b~2~nightly~seal", None, None),
        at("10.0.0.7"),
        Err(Refusal::PodGone)
    )]
    #[case::of_nobody(pod("", None, None), at("10.0.0.7"), Err(Refusal::PodGone))]
    #[case::in_time(pod(TICKET, Some("10.0.0.7"), Some(NOW - 600)), at("10.0.0.7"), Ok(true))]
    #[case::too_late(pod(TICKET, Some("10.0.0.7"), Some(NOW - 601)), at("10.0.0.7"), Err(Refusal::Expired))]
    fn a_ticket_is_good_for_its_pod_and_for_minutes(
        #[case] pod: Value,
        #[case] caller: Caller<'_>,
        #[case] expected: Result<bool, Refusal>,
    ) {
        assert_eq!(asked(pod, caller).map(|registration| registration.is_certain), expected);
    }

    #[test]
    fn the_pod_says_what_the_agent_is() {
        let registration = asked(pod(TICKET, None, None), Caller::Pod("p")).unwrap();
        assert_eq!(registration.name, "nightly-try1");
        assert_eq!(registration.tags.unwrap(), ["queue=default", "arch=arm64"]);
        let mut put_together = pod(TICKET, None, None);
        put_together["spec"]["containers"][1]["env"][1]["value"] = json!("node=$(BUILDKITE_K8S_NODE)");
        assert_eq!(asked(put_together, Caller::Pod("p")).unwrap().tags, None);
        let mut written_so = pod(TICKET, None, None);
        written_so["spec"]["containers"][1]["env"][1]["value"] = json!("price=$$(NODE)$$$");
        assert_eq!(asked(written_so, Caller::Pod("p")).unwrap().tags.unwrap(), ["price=$(NODE)$$"]);
    }

    #[test]
    fn a_pod_that_goes_or_is_gone_registers_nobody() {
        let now = Timestamp::from_second(NOW).unwrap();
        assert_eq!(decide(TICKET, None, Caller::Pod("p"), now), Err(Refusal::PodGone));
        let mut going = pod(TICKET, None, None);
        going["metadata"]["deletionTimestamp"] = json!(now);
        assert_eq!(asked(going, Caller::Pod("p")), Err(Refusal::PodGone));
        let mut failed = pod(TICKET, None, None);
        failed["status"]["phase"] = json!("Failed");
        assert_eq!(asked(failed, Caller::Pod("p")), Err(Refusal::PodGone));
    }
}
