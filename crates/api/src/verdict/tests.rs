mod document;

use std::collections::BTreeSet;

use super::*;

#[test]
fn codes_are_written_as_they_are_named() {
    for code in VerdictCode::ALL {
        let written = serde_json::to_value(code).expect("codes serialise");
        assert_eq!(written, code.as_str());
    }
    let names: BTreeSet<_> = VerdictCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(names.len(), VerdictCode::ALL.len());
}

#[test]
fn every_code_says_what_it_means_and_what_to_do() {
    for code in VerdictCode::ALL {
        let about = code.about();
        assert!(about.meaning.ends_with('.'), "{code:?}: the meaning is a sentence");
        assert!(!about.advice.ends_with('.'), "{code:?}: advice is part of a sentence");
        assert_eq!(about.advice.is_empty(), about.fault == Fault::None, "{code:?}");
        assert!(
            !about.meaning.contains('|') && !about.advice.contains('|'),
            "{code:?}: both stand in a table"
        );
    }
}

#[test]
fn a_containers_status_counts_only_where_the_code_leaves_it_to_that() {
    let status = |code| Verdict::new(code, "").of_container(3).exit_status;
    assert_eq!(status(VerdictCode::CommandFailed), Some(3));
    assert_eq!(status(VerdictCode::InvalidSpec), Some(NO_STATUS));
    assert_eq!(status(VerdictCode::Canceled), None);
    assert_eq!(Verdict::new(VerdictCode::Evicted, "").exit_status, Some(NO_STATUS));
}

#[test]
fn a_message_that_ends_a_sentence_by_itself_gets_no_full_stop() {
    let sentence = |message: &str| Verdict::new(VerdictCode::InvalidSpec, message).sentence();
    assert!(sentence("did you mean `env`?").starts_with("did you mean `env`? InvalidSpec: "));
    assert!(sentence("there is no `enw`").starts_with("there is no `enw`. InvalidSpec: "));
}
