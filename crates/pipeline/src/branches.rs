//! `branches`: patterns that the build's branch must match.

/// Whether a branch passes space-separated patterns: `*` stands for any text, a leading `!` excludes. At least
/// one of the others must match when there is one, and none of the excluding ones may.
pub fn matches(patterns: &str, branch: &str) -> bool {
    let (negative, positive): (Vec<&str>, Vec<&str>) =
        patterns.split_whitespace().partition(|pattern| pattern.starts_with('!'));
    let wanted = positive.is_empty() || positive.iter().any(|pattern| fits(pattern, branch));
    wanted && !negative.iter().any(|pattern| fits(&pattern[1..], branch))
}

/// Whether the whole text fits one pattern. Each part between stars is looked for from where the last ended.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("main", "main", true)]
    #[case("main", "mainly", false)]
    #[case("main develop", "develop", true)]
    #[case("feature/*", "feature/a/b", true)]
    #[case("*/a*b", "x/ab", true)]
    #[case("a*a", "a", false)]
    #[case("a**b", "ab", true)]
    #[case("*", "anything", true)]
    #[case("!main", "other", true)]
    #[case("!main", "main", false)]
    #[case("!wip-* !main", "wip-1", false)]
    #[case("release-* !release-old*", "release-1", true)]
    #[case("release-* !release-old*", "release-older", false)]
    #[case("release-* !release-old*", "main", false)]
    #[case("", "main", true)]
    fn filters(#[case] patterns: &str, #[case] branch: &str, #[case] expected: bool) {
        assert_eq!(matches(patterns, branch), expected);
    }

    proptest! {
        /// As a regular expression that says the same.
        #[test]
        fn stars_are_any_text(pattern in "[ab*]{1,8}", branch in "[ab]{0,8}") {
            let same = regex::Regex::new(&format!("^{}$", pattern.replace('*', ".*"))).unwrap();
            prop_assert_eq!(matches(&pattern, &branch), same.is_match(&branch));
        }
    }
}
