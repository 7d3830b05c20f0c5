//! Which known name somebody may have meant.

/// How alike two names must be for one to be taken for a misspelling of the other.
const ALIKE: f64 = 0.84;

/// The known name that is most like `given`, if one is like it at all. Styles of spelling do not count: `no-pty` is `noPty`.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let given = plain(given);
    let alike = known.map(|known| (strsim::jaro_winkler(&plain(known), &given), known));
    let nearest = alike.filter(|(likeness, _)| *likeness >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest.map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::nearest;

    #[rstest]
    #[case("podSpecPach", Some("podSpecPatch"))]
    #[case("pod_spec", Some("podSpec"))]
    #[case("nonsense", None)]
    fn what_was_meant_is_found(#[case] given: &str, #[case] expected: Option<&str>) {
        assert_eq!(nearest(given, ["podSpec", "podSpecPatch", "metadata"].into_iter()), expected);
    }
}
