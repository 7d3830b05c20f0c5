//! Jobs that wait in a queue, and whether they are for us.

use std::cmp::Ordering;

use bk_api::config::CLUSTER_DEFAULT_QUEUE;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What jobs and agents outside Buildkite's clusters call the queue that nobody has named.
const UNCLUSTERED_DEFAULT: &str = "default";

/// A job that waits in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The job's UUID.
    pub uuid: String,
    /// The slug of its pipeline, if whoever listed the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Higher goes first.
    pub priority: i64,
    /// Older goes first among equals.
    pub scheduled_at: Timestamp,
    /// What whoever takes the job must offer, as `key=value`.
    pub rules: Vec<String>,
}

impl Candidate {
    /// Who goes first: the highest priority, then the oldest.
    pub(super) fn precedence(&self, other: &Self) -> Ordering {
        (other.priority.cmp(&self.priority))
            .then(self.scheduled_at.cmp(&other.scheduled_at))
            .then_with(|| self.uuid.cmp(&other.uuid))
    }
}

/// Whether jobs with these rules wait in a queue outside Buildkite's clusters, where the queue is a rule like any other. Jobs
/// without it wait in the default queue.
pub fn is_in_queue(rules: &[String], key: &str) -> bool {
    match rules.iter().find_map(|rule| rule.strip_prefix("queue=")) {
        Some(queue) => queue == key || (queue == UNCLUSTERED_DEFAULT && is_default(key)),
        None => is_default(key),
    }
}

/// The rule that all jobs of such a queue have, if there is one.
pub fn queue_rule(key: &str) -> Option<String> {
    (!is_default(key)).then(|| format!("queue={key}"))
}

fn is_default(key: &str) -> bool {
    key == UNCLUSTERED_DEFAULT || key == CLUSTER_DEFAULT_QUEUE
}

/// What an operator offers to the jobs of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Its tags besides the queue, as `key=value`.
    pub tags: Vec<String>,
}

impl Offer {
    /// Whether every rule is satisfied. The queue is settled by where the job was listed, and `resource_class`
    /// chooses resources, not operators. A value of `*`, on either side, stands for any.
    pub fn satisfies(&self, rules: &[String]) -> bool {
        rules.iter().all(|rule| {
            let (key, wanted) = rule.split_once('=').unwrap_or((rule, "*"));
            matches!(key, "queue" | "resource_class")
                || self.tags.iter().filter_map(|tag| tag.split_once('=')).any(|(offered, value)| {
                    offered == key && (wanted == "*" || value == "*" || wanted == value)
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_asked(&[], true)]
    #[case::queue_is_settled(&["queue=other"], true)]
    #[case::resource_class_is_ours(&["resource_class=large"], true)]
    #[case::the_same_value(&["os=linux"], true)]
    #[case::another_value(&["os=windows"], false)]
    #[case::any_value(&["os=*"], true)]
    #[case::the_key_alone(&["os"], true)]
    #[case::an_unknown_key(&["gpu=*"], false)]
    #[case::we_take_any(&["team=a"], true)]
    #[case::one_of_two_values_of_ours(&["zone=b"], true)]
    #[case::every_rule_counts(&["os=linux", "gpu=a100"], false)]
    #[case::equals_signs_in_a_value(&["flags=a=b"], true)]
    #[case::no_partial_wildcards(&["os=lin*"], false)]
    #[case::nothing_is_a_value(&["os="], false)]
    fn every_rule_must_hold(#[case] rules: &[&str], #[case] expected: bool) {
        let tags = ["os=linux", "team=*", "zone=a", "zone=b", "flags=a=b"];
        let offer = Offer { tags: tags.map(str::to_owned).to_vec() };
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        assert_eq!(offer.satisfies(&rules), expected);
    }

    #[rstest]
    #[case::named(&["os=linux", "queue=gpu"], "gpu", true)]
    #[case::another(&["queue=gpu2"], "gpu", false)]
    #[case::none_named(&["os=linux"], "gpu", false)]
    #[case::none_named_is_the_default(&["os=linux"], "_default", true)]
    #[case::so_is_its_name(&["queue=default"], "_default", true)]
    #[case::by_its_name(&[], "default", true)]
    #[case::named_is_not_the_default(&["queue=gpu"], "default", false)]
    fn outside_clusters_a_queue_is_a_rule(#[case] rules: &[&str], #[case] key: &str, #[case] expected: bool) {
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        assert_eq!(is_in_queue(&rules, key), expected);
        // Whatever waits in a queue is found by asking for its rule.
        let found = queue_rule(key).is_none_or(|rule| rules.contains(&rule));
        assert!(found || !expected);
    }
}
