//! What is kept of an agent that has registered, so that the operator can end its job when nobody else will.
//!
//! Records are in a few Secrets, by the job's UUID: so two replicas that register for one job meet in the same Secret, and its version lets
//! only one of them.

use bk_api::names;
use serde::{Deserialize, Serialize};

/// How many Secrets records are spread over.
pub const SHARDS: usize = 4;

/// How many records one Secret may have: it holds 1 MiB, and a record takes less than 500 bytes.
pub const MAX_RECORDS: usize = 2_000;

/// An agent that has registered. It is spelt as briefly as it is often written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The UID of the BuildJob.
    #[serde(rename = "b")]
    pub build_job: String,
    /// Its name, if that does not follow from the job.
    #[serde(rename = "j", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is, and its pod.
    #[serde(rename = "s")]
    pub namespace: String,
    /// Which attempt at it.
    #[serde(rename = "n")]
    pub attempt: u32,
    /// The agent's id at Buildkite.
    #[serde(rename = "i")]
    pub agent: String,
    /// The agent's access token.
    #[serde(rename = "t")]
    pub token: String,
    /// Where the agent was told to go on, if it was told anything.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The address that it registered from, until that is known to be its pod's.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl std::fmt::Debug for SessionRecord {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { build_job, attempt, agent, .. } = self;
        write!(formatter, "SessionRecord({build_job}, attempt {attempt}, agent {agent})")
    }
}

impl SessionRecord {
    /// Whether this agent is that of a BuildJob's attempt.
    pub fn is_of(&self, build_job: &str, attempt: u32) -> bool {
        self.build_job == build_job && self.attempt == attempt
    }

    /// Whether no other agent may come for a BuildJob's attempt: this one is of it, or of one after it.
    pub fn bars(&self, build_job: &str, attempt: u32) -> bool {
        self.build_job == build_job && self.attempt >= attempt
    }

    /// Whether this agent is that of an earlier attempt at the same BuildJob.
    pub fn is_before(&self, other: &Self) -> bool {
        self.build_job == other.build_job && self.attempt < other.attempt
    }

    /// The name of the BuildJob, whose job this is.
    pub fn build_job_name(&self, job_uuid: &str) -> String {
        self.name.clone().unwrap_or_else(|| names::build_job(job_uuid))
    }
}

/// The Secret, by its number, with the record of a job.
pub fn shard(job_uuid: &str) -> usize {
    // UUIDs begin with the time; their ends are random.
    job_uuid.bytes().rev().take(8).fold(0, |sum, byte| sum + usize::from(byte)) % SHARDS
}

/// The name of a Secret with records.
pub fn secret_name(broker: &str, shard: usize) -> String {
    format!("{broker}-sessions-{shard}")
}

/// The names of all of these.
pub fn secret_names(broker: &str) -> impl Iterator<Item = String> {
    (0..SHARDS).map(move |shard| secret_name(broker, shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SessionRecord {
        SessionRecord {
            build_job: "4d0d3a86-6f8c-4d07-8a26-c6f0d1b1a111".to_owned(),
            name: None,
            namespace: "n".repeat(63),
            attempt: 1,
            agent: "019a0f7e-93cf-7e3c-a2b7-0d8f3f3f0001".to_owned(),
            token: "x".repeat(64),
            endpoint: Some("https://agent-edge.buildkite.com/v3".to_owned()),
            address: Some("10.200.64.117".to_owned()),
        }
    }

    #[test]
    fn a_record_is_small_and_read_as_it_was_written() {
        let text = serde_json::to_string(&record()).unwrap();
        assert_eq!(serde_json::from_str::<SessionRecord>(&text).unwrap(), record());
        let uuid = 36;
        let in_secret = text.len().div_ceil(3) * 4 + uuid + 6;
        assert!(in_secret * MAX_RECORDS < 1 << 20, "{in_secret}");
    }

    #[test]
    fn a_build_job_has_the_name_of_its_job_or_its_own() {
        assert_eq!(record().build_job_name("1-2"), "buildkite-1-2");
        let by_hand = SessionRecord { name: Some("by-hand".to_owned()), ..record() };
        assert_eq!(by_hand.build_job_name("1-2"), "by-hand");
    }

    #[test]
    fn only_agents_of_earlier_attempts_are_gone() {
        let (first, second) = (record(), SessionRecord { attempt: 2, ..record() });
        assert!(first.is_before(&second) && !second.is_before(&first) && !first.is_before(&first));
        let another = SessionRecord { build_job: "another".to_owned(), ..second };
        assert!(!first.is_before(&another), "which may run");
    }

    #[test]
    fn nobody_comes_after_an_agent_of_the_same_attempt_or_a_later_one() {
        let second = SessionRecord { attempt: 2, ..record() };
        assert_eq!([1, 2, 3].map(|attempt| second.bars(&second.build_job, attempt)), [true, true, false]);
        assert!(!second.bars("another", 1));
    }

    #[test]
    fn tokens_are_not_printed() {
        assert!(!format!("{:?}", record()).contains("xxx"));
    }

    #[test]
    fn jobs_are_spread_evenly() {
        let mut counts = [0; SHARDS];
        for number in 0_u128..4_000 {
            let uuid = uuid::Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            counts[shard(&uuid.to_string())] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
