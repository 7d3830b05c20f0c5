use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn facts() -> Facts {
    Facts::new(
        [
            ("build.branch", Literal::Text("main".into())),
            ("build.message", Literal::Text("Fix [skip e2e] \"x\"".into())),
            ("build.number", Literal::Int(7)),
            ("build.tag", Literal::Null),
            ("build.pull_request.draft", Literal::Bool(true)),
            ("build.pull_request.labels", Literal::List(vec!["bug".into(), "e2e".into()])),
        ],
        [("DEPLOY", "yes"), ("EMPTY", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    )
}

#[rstest]
#[case("true", true)]
#[case("!true", false)]
#[case("build.branch == 'main'", true)]
#[case("build.branch == \"main\"", true)]
#[case("build.branch != 'main'", false)]
#[case("build.number == 7", true)]
#[case("build.number == '7'", false)]
#[case("build.tag == null", true)]
#[case("build.tag != null", false)]
#[case("build.nothing == null", true)]
#[case("build.merge_queue.base_branch == null", true)]
#[case("build.branch =~ /^ma/", true)]
#[case("build.branch =~ /^MA/", false)]
#[case("build.branch =~ /^MA/i", true)]
#[case("build.branch !~ /^ma/", false)]
#[case("build.tag =~ /^v/", false)]
#[case("build.tag !~ /^v/", true)]
#[case("build.branch =~ /a\\/b/", false)]
#[case("'a/b' =~ /a\\/b/", true)]
#[case("build.message !~ /\\[skip e2e\\]/", false)]
#[case("build.message == 'Fix [skip e2e] \"x\"'", true)]
#[case("build.message == \"Fix [skip e2e] \\\"x\\\"\"", true)]
#[case("build.pull_request.labels includes 'e2e'", true)]
#[case("build.pull_request.labels includes 'no'", false)]
#[case("build.nothing includes 'no'", false)]
#[case("build.pull_request.draft", true)]
#[case("build.nothing", false)]
#[case("!build.nothing", true)]
#[case("build.env('DEPLOY') == 'yes'", true)]
#[case("env(\"DEPLOY\") == 'yes'", true)]
#[case("build.env('NO') == null", true)]
#[case("build.env('EMPTY') == ''", true)]
#[case::and_binds_tighter("true || false && false", true)]
#[case::parentheses("(true || false) && false", false)]
#[case::not_binds_tightest("!false && true", true)]
#[case::not_of_comparison("!(build.branch == 'main')", false)]
#[case::comments("build.branch == 'main' // the trunk\n && true // and so on", true)]
#[case::short_circuit("true || 'text'", true)]
#[case::negative("build.number != -7", true)]
fn conditions(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(Condition::parse(text).unwrap().holds(&facts()), Ok(expected));
}

#[rstest]
#[case("", "line 1, column 1 of the condition: expected a value, found the end")]
#[case("build.branch ==", "column 16 of the condition: expected a value, found the end")]
#[case("build.branch == 'main", "column 17 of the condition: this string has no closing '")]
#[case("build.branch = 'main'", "column 14 of the condition: '=' means nothing here")]
#[case("true and false", "column 6 of the condition: expected &&, || or the end, found and")]
#[case("true &&\n  || false", "line 2, column 3 of the condition: expected a value, found ||")]
#[case(
    "build.branch =~ 'main'",
    "expected a regular expression such as /^v[0-9]/, found the string \"main\""
)]
#[case("build.branch == /main/", "expected a value (regular expressions follow =~ or !~), found /main/")]
#[case("build.branch =~ /(/", "/(/ is no regular expression: error: unclosed group")]
#[case("build.branch =~ /a/x", "unknown flag \"x\"")]
#[case("build.branch =~ /a", "has no closing /")]
#[case("(true", "expected &&, || or ), found the end")]
#[case("true)", "expected &&, || or the end, found )")]
#[case("a == b == c", "column 8 of the condition: expected &&, || or the end, found ==")]
#[case("secret('X')", "unknown function secret; there is build.env")]
#[case("build.env(X)", "expected the name of a variable in quotes, found X")]
#[case("12ab == 1", "\"12ab\" is no whole number")]
#[case("99999999999999999999 == 1", "is no whole number")]
#[case("é", "column 1 of the condition: 'é' means nothing here")]
fn refusals_say_where_and_what_was_expected(#[case] text: &str, #[case] expected: &str) {
    let problem = Condition::parse(text).unwrap_err().to_string();
    assert!(problem.contains(expected), "{problem}");
}

#[test]
fn what_is_neither_true_nor_false_is_refused() {
    let reason = Condition::parse("build.branch").unwrap().holds(&facts()).unwrap_err();
    assert_eq!(reason, "build.branch is \"main\", neither true nor false; compare it with something");
}

#[test]
fn nesting_is_bounded_and_length_is_not() {
    for deep in ["(".repeat(100_000), "!".repeat(100_000)] {
        assert!(Condition::parse(&deep).unwrap_err().to_string().contains("levels of nesting"));
    }
    let long = vec!["true"; 100_000].join(" && ");
    assert_eq!(Condition::parse(&long).unwrap().holds(&facts()), Ok(true));
}

#[test]
fn the_text_is_kept() {
    let text = "build.branch=='main' // why";
    let kept: String = Condition::parse(text).unwrap().into();
    assert_eq!(kept, text);
    let read: Condition = serde_json::from_value(serde_json::json!(text)).unwrap();
    assert_eq!(read.to_string(), text);
    assert!(serde_json::from_value::<Condition>(serde_json::json!("&&")).is_err());
}

fn any_expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        Just(Expression::Literal(Literal::Null)),
        any::<bool>().prop_map(|value| Expression::Literal(Literal::Bool(value))),
        any::<i64>().prop_map(|value| Expression::Literal(Literal::Int(value))),
        "\\PC{0,6}".prop_map(|text| Expression::Literal(Literal::Text(text))),
        "['\"\\\\]{0,6}".prop_map(|text| Expression::Literal(Literal::Text(text))),
        "[a-z_]{1,4}(\\.[a-z_]{1,4})?"
            .prop_filter("a word of the grammar", |word| {
                !matches!(word.as_str(), "true" | "null" | "env")
            })
            .prop_map(Expression::Variable),
        "[A-Z\"]{1,5}".prop_map(Expression::Env),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::Or),
            prop::collection::vec(inner, 2..4).prop_map(Expression::And),
            boxed.clone().prop_map(Expression::Not),
            (
                boxed.clone(),
                prop_oneof![Just(Operator::Equal), Just(Operator::Unequal), Just(Operator::Includes)],
                boxed.clone()
            )
                .prop_map(|(left, operator, right)| Expression::Compare(left, operator, right)),
            (boxed, "[a-z^$.]{1,5}", any::<bool>(), any::<bool>()).prop_map(
                |(value, source, ignore_case, negated)| {
                    let regex = Regex::new(&source).unwrap();
                    Expression::Match { value, pattern: Pattern { source, ignore_case, regex }, negated }
                }
            ),
        ]
    })
}

proptest! {
    /// What is printed is read back as the same.
    #[test]
    fn print_and_parse(expression in any_expression()) {
        let text = expression.to_string();
        prop_assert_eq!(parser::parse(&text), Ok(expression), "{}", text);
    }

    /// No text and no facts make it panic.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z. ()!&|=~/'\"0-9\\\\é\n-]{0,60}") {
        if let Ok(condition) = Condition::parse(&text) {
            drop(condition.holds(&facts()));
        }
    }
}
