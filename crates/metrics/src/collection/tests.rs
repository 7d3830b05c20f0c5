use rstest::rstest;

use super::merge;
use crate::family::{Labels, Page};

fn labels() -> Labels {
    [("pipeline", "app"), ("step", "test")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn files_become_one_page_with_the_jobs_labels() {
    let files = [
        ("a.prom", "# HELP tests Tests.\n# TYPE tests counter\ntests{suite=\"unit\"} 3\n"),
        ("b.prom", "# TYPE tests counter\ntests{suite=\"e2e\",step=\"own\"} 4\nother 1\n"),
    ];
    let collection = merge(files, &labels());
    assert_eq!(collection.refused, []);
    insta::assert_snapshot!(Page(&collection.families), @r#"
    # TYPE other untyped
    other{pipeline="app",step="test"} 1
    # HELP tests Tests.
    # TYPE tests counter
    tests{pipeline="app",step="test",suite="unit"} 3
    tests{exported_step="own",pipeline="app",step="test",suite="e2e"} 4
    "#);
}

#[rstest]
#[case::text("a 1\nb x", "line 2: the value of b is no number: `x`")]
#[case::kind("# TYPE one gauge\none 2", "one is a gauge here and a counter in good")]
#[case::twice("# TYPE one counter\none 2", "one{pipeline=\"app\",step=\"test\"} is in good too")]
fn a_bad_file_is_left_out_whole_and_the_others_stay(#[case] bad: &str, #[case] reason: &str) {
    let files = [("good", "# TYPE one counter\none 1\n"), ("bad", bad), ("last", "two 2\n")];
    let collection = merge(files, &labels());
    let refused: Vec<_> =
        collection.refused.iter().map(|(file, why)| (file.as_str(), why.to_string())).collect();
    assert_eq!(refused, [("bad", reason.to_owned())]);
    insta::allow_duplicates! {
        insta::assert_snapshot!(Page(&collection.families), @r#"
        # TYPE one counter
        one{pipeline="app",step="test"} 1
        # TYPE two untyped
        two{pipeline="app",step="test"} 2
        "#);
    }
}

#[test]
fn labels_that_were_exported_before_are_kept_too() {
    let text = "a{step=\"one\",exported_step=\"two\"} 1\n";
    let collection = merge([("a", text)], &labels());
    assert_eq!(
        collection.families["a"].samples[0].to_string(),
        "a{exported_exported_step=\"one\",exported_step=\"two\",pipeline=\"app\",step=\"test\"} 1"
    );
}
