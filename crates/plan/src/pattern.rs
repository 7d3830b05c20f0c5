//! Names with stars.

/// Whether a name is like a pattern, in which `*` stands for anything, as the agent has it.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            let Some(left) = name.strip_prefix(start) else { return false };
            (0..=left.len()).filter(|at| left.is_char_boundary(*at)).any(|at| matches(rest, &left[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::matches;

    #[rstest]
    #[case("linux", "linux", true)]
    #[case("linux", "linux-large", false)]
    #[case("linux-*", "linux-large", true)]
    #[case("*", "", true)]
    #[case("*-large", "linux-large", true)]
    #[case("a*b*c", "aXbYbZc", true)]
    #[case("a*b*c", "aXbYbZ", false)]
    fn stars_stand_for_anything(#[case] pattern: &str, #[case] name: &str, #[case] expected: bool) {
        assert_eq!(matches(pattern, name), expected);
    }
}
