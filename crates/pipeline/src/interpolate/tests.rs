use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn known() -> Env {
    [("B", "main"), ("EMPTY", ""), ("SHA", "0123456789"), ("WORD", "größe")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

#[rstest]
#[case::bare("on $B.", "on main.")]
#[case::braces("${B}x", "mainx")]
#[case::longest_name("$BX $B_1 $B-1", "$BX $B_1 main-1")]
#[case::default_of_empty("${B:-y} ${EMPTY:-y}", "main y")]
#[case::default_of_unset("${B-y} ${EMPTY-y}", "main ")]
#[case::default_holds_variables("${EMPTY:-a $B ${EMPTY:-${SHA:0:2}}}", "a main 01")]
#[case::default_holds_unknown("${EMPTY:-$OTHER ${OTHER:-x}}", "$OTHER ${OTHER:-x}")]
#[case::default_holds_escapes("${EMPTY:-$$B \\$B}", "$B $B")]
#[case::required("${B?no} ${B:?no} ${EMPTY?no}", "main main ")]
#[case::an_unused_default_is_not_asked("${B:-${EMPTY:?no}}", "main")]
#[case::head("${SHA:0:7} ${SHA:3} ${SHA: 2 : 3 }", "0123456 3456789 234")]
#[case::tail("${SHA:-3} ${SHA: -3} ${SHA: -3:1}", "0123456789 789 7")]
#[case::negative_length("${SHA:1:-2} ${SHA:8:-5}|", "1234567 |")]
#[case::beyond("${SHA:99} ${SHA:-99:2} ${SHA: -99:2} ${SHA:8:99}|", " 0123456789 01 89|")]
#[case::huge("${SHA:9223372036854775807} ${SHA:1:9223372036854775807}", " 123456789")]
#[case::characters("${WORD:2:2}", "öß")]
#[case::escapes("$$B \\$B $$$B $${B} \\${B:-x}", "$B $B $main ${B} ${B:-x}")]
#[case::backslashes("\\\\$B a\\nb \\", "\\\\main a\\nb \\")]
#[case::unknown(
    "$OTHER ${OTHER} ${OTHER:-x} ${OTHER?no} ${OTHER:1:2}",
    "$OTHER ${OTHER} ${OTHER:-x} ${OTHER?no} ${OTHER:1:2}"
)]
#[case::unknown_with_known_inside("${OTHER:-$B}", "${OTHER:-$B}")]
#[case::shell("$(pwd) $? $1 $_ $", "$(pwd) $? $1 $_ $")]
#[case::left_to_the_shell(
    "${B%%x} ${B/a/b} ${#B} ${B:x} ${B:} ${}",
    "${B%%x} ${B/a/b} ${#B} ${B:x} ${B:} ${}"
)]
#[case::unclosed("${B ${B:0:2} ${B:-", "${B ma ${B:-")]
fn known_variables_are_filled_in(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(fill(text, &known()).as_deref(), Ok(expected));
}

#[rstest]
#[case("${EMPTY:?a tag is needed on $B}", "$EMPTY: a tag is needed on main")]
#[case("${EMPTY:?}", "$EMPTY: not set")]
#[case("${EMPTY:-${EMPTY:?inner}}", "$EMPTY: inner")]
#[case("x ${EMPTY:?${EMPTY:?first}}", "$EMPTY: first")]
fn what_is_required_is_refused_without(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(fill(text, &known()).unwrap_err(), expected);
}

#[test]
fn a_refusal_tells_the_place() {
    let root = Node::from_yaml("steps:\n  - command: go\n    env: {A: '${EMPTY:?needs a tag}'}\n").unwrap();
    let problem = interpolate(root.clone(), &known()).unwrap_err().within(&root);
    assert_eq!(problem.to_string(), "line 3, column 14: steps[0].env.A: $EMPTY: needs a tag");
}

#[test]
fn deep_nesting_is_left_alone() {
    let text = "${EMPTY:-".repeat(20_000);
    assert_eq!(fill(&text, &known()).unwrap(), text);
}

proptest! {
    /// Any text is filled in or refused, and text without a dollar sign or backslash is kept.
    #[test]
    fn never_panics(text in "([$\\\\{}:?0-9 -]|\\$\\{|EMPTY|B|SHA|WORD|OTHER|ö|:-){0,40}") {
        let filled = fill(&text, &known());
        if !text.contains(['$', '\\']) {
            prop_assert_eq!(filled.unwrap(), text);
        }
    }

    /// Without known variables nothing changes but escaped dollar signs.
    #[test]
    fn unknown_variables_stay(text in "([{}:?0-9 -]|\\$\\{|\\$|B|SHA|:-){0,40}") {
        prop_assume!(!text.contains("$$"));
        prop_assert_eq!(fill(&text, &Env::new()).unwrap(), text);
    }

    /// A substring is what slicing would give.
    #[test]
    fn substrings(value in "[a-z]{0,12}", from in 0usize..15, back in any::<bool>(), length in prop::option::of(0usize..15)) {
        let back = back && from > 0;
        let start = if back { value.len().saturating_sub(from) } else { from };
        let expected: String = value.chars().skip(start).take(length.unwrap_or(usize::MAX)).collect();
        let sign = if back { "-" } else { "" };
        let length = length.map(|length| format!(":{length}")).unwrap_or_default();
        let text = format!("${{X: {sign}{from}{length}}}");
        prop_assert_eq!(fill(&text, &Env::from([("X".into(), value)])).unwrap(), expected);
    }
}
