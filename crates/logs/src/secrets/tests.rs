use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn hidden(environment: &str, text: &str) -> String {
    let mut out = Vec::new();
    Redactor::of_environments(&[environment.replace('|', "\0").into_bytes()], &["EXTRA_?".to_owned()]).hide(
        text.as_bytes(),
        0,
        &mut out,
    );
    String::from_utf8(out).unwrap()
}

#[rstest]
#[case(
    "BUILDKITE_REDACTED_VARS=*_TOKEN, X|A_TOKEN=secret1|X=secret2",
    "a secret1 b secret2",
    "a [REDACTED] b [REDACTED]"
)]
#[case("A_TOKEN=secret1", "secret1 is one by the usual patterns", "[REDACTED] is one by the usual patterns")]
#[case(
    "BUILDKITE_REDACTED_VARS=|A_TOKEN=secret1",
    "nothing is secret, secret1 stays",
    "nothing is secret, secret1 stays"
)]
#[case("BUILDKITE_REDACTED_VARS=*_TOKEN|A_TOKEN=short", "short stays", "short stays")]
#[case("BUILDKITE_REDACTED_VARS=*_TOKEN|A_TOKEN=secret", "secretsecret", "[REDACTED][REDACTED]")]
#[case("BUILDKITE_REDACTED_VARS=*_TOKEN|A_TOKEN=abcabcabc", "xabcabcabcabcy", "x[REDACTED]y")]
#[case("BUILDKITE_REDACTED_VARS=*|A=abcdef|B=abcdefghi", "abcdefghi", "[REDACTED]")]
#[case(
    "BUILDKITE_REDACTED_VARS=K|K=first line\n  second line \nend",
    "second line|first line|end",
    "[REDACTED]|[REDACTED]|end"
)]
#[case("BUILDKITE_REDACTED_VARS=K|K=a\"b\\c\nd", r#"printed as "a\"b\\c\nd""#, r#"printed as "[REDACTED]""#)]
#[case("EXTRA_1=topsecret|EXTRA_11=visible", "topsecret visible", "[REDACTED] visible")]
#[case("BUILDKITE_REDACTED_VARS=[|NO EQUALS|=x", "nonsense is no harm", "nonsense is no harm")]
fn values_of_secret_variables_are_hidden(
    #[case] environment: &str,
    #[case] text: &str,
    #[case] expected: &str,
) {
    assert_eq!(hidden(environment, text), expected);
}

/// Looks at every place for every needle.
fn naive(needles: &[Vec<u8>], text: &[u8]) -> Vec<u8> {
    let mut covered = vec![false; text.len()];
    let mut joined = vec![false; text.len()];
    for needle in needles {
        for start in 0..text.len() {
            if text[start..].starts_with(needle) {
                covered[start..start + needle.len()].fill(true);
                joined[start + 1..start + needle.len()].fill(true);
            }
        }
    }
    let mut out = Vec::new();
    for (index, byte) in text.iter().enumerate() {
        match (covered[index], joined[index]) {
            (false, _) => out.push(*byte),
            (true, false) => out.extend_from_slice(REDACTED),
            (true, true) => {}
        }
    }
    out
}

proptest! {
    /// Few letters, so that secrets overlap each other and themselves.
    #[test]
    fn as_if_every_place_were_looked_at(
        needles in prop::collection::vec("[ab]{6,9}", 0..4),
        text in "[ab]{0,60}",
    ) {
        let needles: Vec<Vec<u8>> = needles.into_iter().map(String::into_bytes).collect();
        let redactor = Redactor::new(needles.iter().map(Vec::as_slice));
        let mut out = Vec::new();
        redactor.hide(text.as_bytes(), 0, &mut out);
        prop_assert_eq!(redactor.finds(text.as_bytes()), out != text.as_bytes());
        prop_assert_eq!(out, naive(&needles, text.as_bytes()));
    }

    /// Parts of a line that was cut are together what the whole line would have been.
    #[test]
    fn cuts_do_not_let_secrets_through(
        needles in prop::collection::vec("[ab]{6,9}", 0..3),
        text in "[ab]{0,120}",
        most in 10_usize..20,
    ) {
        let needles: Vec<Vec<u8>> = needles.into_iter().map(String::into_bytes).collect();
        let redactor = Redactor::new(needles.iter().map(Vec::as_slice));
        let (mut rest, mut covered, mut out) = (text.as_bytes(), 0, Vec::new());
        while rest.len() > most + redactor.longest() {
            let cut = redactor.cut(rest, covered, most);
            prop_assert!(cut.dropped > 0, "it goes on");
            redactor.hide(&rest[..cut.end], covered, &mut out);
            rest = &rest[cut.dropped..];
            covered = cut.covered;
        }
        redactor.hide(rest, covered, &mut out);
        let expected = naive(&needles, text.as_bytes());
        prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
    }
}
