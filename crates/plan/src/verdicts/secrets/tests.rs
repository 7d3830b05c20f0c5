use proptest::prelude::*;
use rstest::rstest;

use super::{PREFIXES, hidden};

#[rstest]
#[case("401 for bkct_abcdefghijklmnop1234", "401 for [hidden]")]
#[case("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [hidden]")]
#[case("GET https://me:hunter2@example.com/x failed", "GET https://[hidden]@example.com/x failed")]
#[case("--token=hunter2 is wrong", "--token=[hidden] is wrong")]
#[case("the log says \"ghp_0123456789abcdefghij\"", "the log says \"[hidden]\"")]
#[case("secret \"git-token\" not found", "secret \"git-token\" not found")]
#[case("git@example.com:org/repo.git", "git@example.com:org/repo.git")]
#[case(
    "image registry.example.com/team/app:1@sha256:0123456789abcdef",
    "image registry.example.com/team/app:1@sha256:0123456789abcdef"
)]
fn secrets_are_hidden_and_nothing_else(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(hidden(text), expected);
}

proptest! {
    /// Wherever in a text a token stands, and whatever stands around it.
    #[test]
    fn no_token_survives(
        before in "\\PC{0,40}",
        prefix in prop::sample::select(PREFIXES.as_slice()),
        rest in "[A-Za-z0-9_]{24,60}",
        after in "\\PC{0,40}",
    ) {
        let token = format!("{prefix}{rest}");
        let text = hidden(&format!("{before} {token} {after}"));
        prop_assert!(!text.contains(&token), "{}", text);
    }

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        hidden(&text);
    }
}
