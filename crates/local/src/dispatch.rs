//! Which agent may run which job. Pure; the store finds the jobs.

use crate::build::job::DEFAULT_QUEUE;

/// The queue that an agent with these tags serves.
pub(crate) fn queue_of(tags: &[String]) -> &str {
    tags.iter()
        .find_map(|tag| tag.strip_prefix("queue="))
        .filter(|queue| !queue.is_empty())
        .unwrap_or(DEFAULT_QUEUE)
}

/// Whether an agent with these tags satisfies every rule. A rule is `key=value`; `key=*` and a bare `key` take
/// any value. There are no partial wildcards. A bare tag has the value `true`.
pub(crate) fn matches(rules: &[String], tags: &[String]) -> bool {
    rules.iter().all(|rule| match rule.split_once('=') {
        None => has(tags, rule, None),
        Some((key, "*")) => has(tags, key, None),
        Some((key, value)) => has(tags, key, Some(value)),
    })
}

fn has(tags: &[String], key: &str, value: Option<&str>) -> bool {
    let fits = |given: &str| value.is_none_or(|wanted| wanted == given);
    if key == "queue" {
        return fits(queue_of(tags));
    }
    tags.iter()
        .map(|tag| tag.split_once('=').unwrap_or((tag, "true")))
        .any(|(name, given)| name == key && fits(given))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn list(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[rstest]
    #[case::no_rule_is_the_default_queue("", "", true)]
    #[case::any_agent_satisfies_no_rules("", "os=linux", true)]
    #[case::an_agent_without_a_queue_serves_the_default("queue=default", "os=linux", true)]
    #[case::the_queue_must_be_equal("queue=big", "queue=small", false)]
    #[case::the_queue_is_equal("queue=big", "queue=big", true)]
    #[case::every_rule_counts("os=linux gpu=true", "os=linux", false)]
    #[case::every_rule_holds("os=linux gpu=true", "gpu=true os=linux x=y", true)]
    #[case::a_star_takes_any_value("os=*", "os=linux", true)]
    #[case::a_star_needs_the_key("os=*", "gpu=true", false)]
    #[case::a_bare_rule_takes_any_value("os", "os=linux", true)]
    #[case::a_bare_tag_is_true("docker=true", "docker", true)]
    #[case::a_bare_tag_is_nothing_else("docker=yes", "docker", false)]
    #[case::a_bare_rule_takes_a_bare_tag("docker", "docker", true)]
    #[case::no_partial_wildcards("os=lin*", "os=linux", false)]
    #[case::one_of_several_values_will_do("os=linux", "os=darwin os=linux", true)]
    #[case::values_may_hold_an_equals_sign("opt=a=b", "opt=a=b", true)]
    #[case::keys_are_compared_as_they_are("OS=linux", "os=linux", false)]
    fn rules_and_tags(#[case] rules: &str, #[case] tags: &str, #[case] expected: bool) {
        assert_eq!(matches(&list(rules), &list(tags)), expected);
    }

    proptest! {
        /// More tags never take a job away from an agent, more rules never give it one; the queue aside,
        /// of which an agent has exactly one.
        #[test]
        fn tags_add_and_rules_take_away(
            rules in proptest::collection::vec("[a-c](=([x-z]|\\*))?", 0..4),
            tags in proptest::collection::vec("[a-c](=[x-z])?", 0..4),
            more in "[a-c](=[x-z])?",
        ) {
            let before = matches(&rules, &tags);
            let more_tags: Vec<String> = tags.iter().cloned().chain([more.clone()]).collect();
            prop_assert!(!before || matches(&rules, &more_tags));
            let more_rules: Vec<String> = rules.iter().cloned().chain([more]).collect();
            prop_assert!(before || !matches(&more_rules, &tags));
        }
    }
}
