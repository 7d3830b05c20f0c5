use rstest::rstest;

use super::*;

fn gate_of(yaml: &str) -> Result<Gate, PipelineProblem> {
    let root = Node::from_yaml(yaml).unwrap();
    let mut attributes = Attributes::of(&root);
    let gate = gate(&mut attributes)?;
    attributes.finish()?;
    Ok(gate)
}

const ASKED: &str = "
prompt: Really?
blocked_state: running
fields:
  - {text: Who, key: who, required: false, default: me}
  - {text: Version, key: version, format: '[0-9]+'}
  - {select: Where, key: where, options: [{label: Here, value: here}, {label: There, value: there}]}
  - {select: Which, key: which, multiple: true, required: false, options: [a, b, c]}
";

#[rstest]
#[case::all(&[("who", "you"), ("version", "7"), ("where", "here"), ("which", "a\nc")], Ok("version=7 where=here which=a\nc who=you"))]
#[case::defaults(&[("version", "7"), ("where", "there")], Ok("version=7 where=there who=me"))]
#[case::missing(&[("where", "here")], Err("the field \"version\" (Version) needs an answer"))]
#[case::empty(&[("version", ""), ("where", "here")], Err("needs an answer"))]
#[case::format(&[("version", "x"), ("where", "here")], Err("does not fit the format [0-9]+"))]
#[case::option(&[("version", "7"), ("where", "Here")], Err("\"Here\" is no option of \"where\"; there are here, there"))]
#[case::several(&[("version", "7"), ("where", "here"), ("which", "a\nd")], Err("\"d\" is no option"))]
#[case::unknown(&[("whom", "x")], Err("asks for no field \"whom\""))]
fn answers(#[case] given: &[(&str, &str)], #[case] expected: Result<&str, &str>) {
    let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let checked = gate_of(ASKED).unwrap().check(&given);
    match (checked, expected) {
        (Ok(answers), Ok(expected)) => {
            let shown: Vec<_> = answers.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(shown.join(" "), expected);
        }
        (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{reason}"),
        (checked, _) => panic!("{checked:?}"),
    }
}

#[rstest]
#[case("fields: [{text: A}]", "needs a key")]
#[case("fields: [{text: A, key: 'a b'}]", "may only have letters")]
#[case("fields: [{key: a}]", "either text or select")]
#[case("fields: [{select: A, key: a}]", "needs options")]
#[case("fields: [{select: A, key: a, options: []}]", "at least one option")]
#[case("fields: [{select: A, key: a, options: [x], default: y}]", "default: \"y\" is no option")]
#[case("fields: [{text: A, key: a, format: '('}]", "is no regular expression")]
#[case("fields: [{text: A, key: a, hints: x}]", "unknown attribute hints; did you mean hint?")]
#[case("fields: {text: A}", "fields must be a list, not a map")]
#[case("blocked_state: open", "blocked_state must be passed, failed or running")]
fn refusals(#[case] yaml: &str, #[case] expected: &str) {
    let text = gate_of(yaml).unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
}
