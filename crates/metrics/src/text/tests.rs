use proptest::prelude::*;
use rstest::rstest;

use super::read;
use crate::family::{Families, Family, Kind, Labels, Page, Sample};

#[test]
fn all_that_the_format_has() {
    let text = r#"# HELP tests How many\ntests \\ ran.
# TYPE tests counter
tests{suite="unit",result="ok"} 1027 1395066363000
tests{ suite = "a \"quoted\" \\ one\n" , } 3

# Only a comment, and values without words about them:
plain -1.5e3
nothing NaN
most{} +Inf
# TYPE seconds histogram
seconds_bucket{le="0.5"} 1
seconds_bucket{le="+Inf"} 2
seconds_sum 3.5
seconds_count 2
# TYPE share summary
share{quantile="0.5"} 7
share_sum 8
share_count 1
seconds_count_of_others 4
"#;
    let families = read(text).unwrap();
    insta::assert_snapshot!(Page(&families), @r#"
    # TYPE most untyped
    most +Inf
    # TYPE nothing untyped
    nothing NaN
    # TYPE plain untyped
    plain -1500
    # TYPE seconds histogram
    seconds_bucket{le="0.5"} 1
    seconds_bucket{le="+Inf"} 2
    seconds_sum 3.5
    seconds_count 2
    # TYPE seconds_count_of_others untyped
    seconds_count_of_others 4
    # TYPE share summary
    share{quantile="0.5"} 7
    share_sum 8
    share_count 1
    # HELP tests How many\ntests \\ ran.
    # TYPE tests counter
    tests{result="ok",suite="unit"} 1027 1395066363000
    tests{suite="a \"quoted\" \\ one\n"} 3
    "#);
}

#[rstest]
#[case::no_value("a\nb", "line 1: a has no value")]
#[case::no_number("a 1\nb x", "line 2: the value of b is no number: `x`")]
#[case::no_name("1a 1", "line 1: `1a` is no name of a metric")]
#[case::no_name_at_all("{a=\"b\"} 1", "line 1: `` is no name of a metric")]
#[case::label_name("a{b:c=\"d\"} 1", "line 1: `b:c` is no name of a label")]
#[case::unquoted("a{b=c} 1", "line 1: the value of label `b` is not in quotes")]
#[case::unclosed("a{b=\"c} 1", "line 1: the value of label `b` does not end")]
#[case::unclosed_labels("a{b=\"c\"", "line 1: a comma or `}` is missing after label `b`")]
#[case::no_brace("a{b 1", "line 1: labels end without `}`")]
#[case::twice_label("a{b=\"c\",b=\"d\"} 1", "line 1: label `b` is there twice")]
#[case::escape("a{b=\"\\x\"} 1", "line 1: unknown escape `\\x`")]
#[case::time("a 1 x", "line 1: the time of a is no number of milliseconds: `x`")]
#[case::more("a 1 2 3", "line 1: `3` after the time of a")]
#[case::kind(
    "# TYPE a thing",
    "line 1: unknown type `thing` of a; there are counter, gauge, histogram, summary and untyped"
)]
#[case::second_kind("# TYPE a gauge\n# TYPE a gauge", "line 2: a second TYPE line for a")]
#[case::late_kind("a 1\n# TYPE a gauge", "line 2: the TYPE line for a must come before its values")]
#[case::second_help("# HELP a b\n# HELP a c", "line 2: a second HELP line for a")]
#[case::twice("a{b=\"c\"} 1\na{b=\"c\"} 2", "line 2: a is there twice with the same labels")]
#[case::bucket("# TYPE a histogram\na_bucket 1", "line 2: a_bucket needs the label `le` with a number")]
#[case::bare_histogram(
    "# TYPE a histogram\na 1",
    "line 2: a is a histogram: it has a_bucket, a_sum and a_count"
)]
#[case::quantile("# TYPE a summary\na 1", "line 2: a needs the label `quantile` with a number")]
fn what_is_wrong_is_named_with_its_line(#[case] text: &str, #[case] problem: &str) {
    assert_eq!(read(text).unwrap_err().to_string(), problem);
}

fn sample() -> impl Strategy<Value = Sample> {
    let labels = prop::collection::btree_map("[a-z_][a-z0-9_]{0,3}", "\\PC{0,8}|[\\\\\"\n]{0,4}", 0..3);
    let value =
        prop_oneof![any::<f64>().prop_filter("equal to itself", |v| !v.is_nan()), Just(f64::INFINITY)];
    (labels, value, prop::option::of(any::<i64>())).prop_map(|(labels, value, timestamp)| Sample {
        name: String::new(),
        labels,
        value,
        timestamp,
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(
        names in prop::collection::btree_map("[a-z:_][a-z0-9:]{0,6}", (prop::collection::vec(sample(), 0..4), prop::option::of("\\PC{0,10}")), 0..4),
    ) {
        let mut families = Families::new();
        for (name, (samples, help)) in names {
            let mut seen = Vec::<Labels>::new();
            let mut own = Vec::new();
            for sample in samples {
                if !seen.contains(&sample.labels) {
                    seen.push(sample.labels.clone());
                    own.push(Sample { name: name.clone(), ..sample });
                }
            }
            let help = help.map(|help| help.trim().to_owned());
            families.insert(name, Family { kind: Kind::Gauge, help, samples: own });
        }
        prop_assert_eq!(read(&Page(&families).to_string()), Ok(families));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z#{}=\"\\\\ \n0-9,]{0,60}|\\PC{0,60}") {
        let _ = read(&text);
    }
}
