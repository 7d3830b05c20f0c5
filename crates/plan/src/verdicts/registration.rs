//! What keeps an agent from registering by way of the operator.

use bk_api::{Verdict, VerdictCode};

use super::evidence;
use crate::facts::PodFacts;

/// What a job waits for whose agent has not registered there for so long.
pub fn unregistered(url: &str, seconds: i64) -> String {
    format!(
        "the agent to register by way of the operator at {url}: it has not for {seconds} s; `buildkite-operator doctor` looks at \
         NetworkPolicies, DNS and the certificate, and the operator's log has whom it refused"
    )
}

/// The agent did not register there within the pod's time.
pub fn registration_timeout(facts: &PodFacts, seconds: i64, url: &str) -> Verdict {
    let message = format!(
        "the job did not start within {seconds} s; it was waiting for its agent to register by way of the operator at {url}"
    );
    let advice = "run `buildkite-operator doctor`: it tells whether a NetworkPolicy, DNS or the certificate keeps pods from the operator";
    evidence::from(facts, Verdict::new(VerdictCode::StartTimeout, message).advising(advice))
}

/// The verdict on an agent that was to register there; if it could not, that is named.
pub fn by_way_of(url: &str, verdict: Verdict) -> Verdict {
    if verdict.code != VerdictCode::AgentNotRegistered {
        return verdict;
    }
    verdict.advising(format!(
        "read the agent's last words; it was to register by way of the operator at {url}, and `buildkite-operator doctor` tells whether it can"
    ))
}
