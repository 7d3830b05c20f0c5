use std::fmt::Write;

use rstest::rstest;

use super::*;

fn list(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        other => panic!("not a list: {other:?}"),
    }
}

#[test]
fn yaml_keeps_places_order_and_go_booleans() {
    let node = Node::from_yaml("b: yes\na:\n  - 1\n  - x: ~\n").unwrap();
    let Value::Map(entries) = &node.value else { panic!("not a map") };
    assert_eq!(entries[0].0, "b");
    assert_eq!((entries[0].1.place.line, entries[0].1.place.column), (1, 4));
    assert_eq!(entries[0].1.value, Value::Text("yes".into()));
    let items = list(&entries[1].1);
    assert_eq!((items[0].place.line, &items[0].value), (3, &Value::Int(1)));
    assert_eq!(items[1].place.line, 4);
    assert_eq!(node.path_to(items[1].place).unwrap(), "a[1]");
}

#[test]
fn paths_lead_to_values() {
    let node = Node::from_json(serde_json::json!({"steps": [1, {"matrix": {"setup": {"os": [[7]]}}}]}));
    let mut open = vec![(String::new(), &node)];
    let mut seen = 0;
    while let Some((path, node_here)) = open.pop() {
        assert_eq!(node.path_to(node_here.place).unwrap(), path);
        seen += 1;
        match &node_here.value {
            Value::List(items) => {
                open.extend(items.iter().enumerate().map(|(at, item)| (format!("{path}[{at}]"), item)));
            }
            Value::Map(entries) => open.extend(entries.iter().map(|(key, value)| {
                (if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value)
            })),
            _ => {}
        }
    }
    assert_eq!(seen, 9);
}

#[test]
fn anchors_and_merges_are_resolved() {
    let node = Node::from_yaml(
        "base: &b {a: 1, c: 9}\nmore: &m {d: 4, a: 8}\nuse:\n  <<: *b\n  c: 2\nboth:\n  <<: [*b, *m]\nlist: &l [1]\nagain: *l\n",
    )
    .unwrap()
    .to_json();
    assert_eq!(node["use"], serde_json::json!({"a": 1, "c": 2}));
    assert_eq!(node["both"], serde_json::json!({"a": 1, "c": 9, "d": 4}));
    assert_eq!(node["again"], serde_json::json!([1]));
}

#[test]
fn broken_yaml_names_the_line() {
    let problem = Node::from_yaml("steps:\n  - command: [\n").unwrap_err().to_string();
    assert!(problem.contains("line") && problem.contains("invalid YAML"), "{problem}");
}

#[test]
fn what_people_write_is_not_too_deep() {
    let deep = (0..15).fold("a0: &a0 x\n".to_owned(), |text, at| {
        text + &format!("a{}: &a{} [{{k: *a{at}}}]\n", at + 1, at + 1)
    });
    for _ in 0..3 {
        assert!(Node::from_yaml(&deep).is_ok());
        assert!(Node::from_yaml(&format!("{}{}", "[".repeat(49), "]".repeat(49))).is_ok());
        assert!(Node::from_yaml(&"[".repeat(60)).is_err());
    }
}

/// Each list or map names the one before it nine times.
fn nested(first: &str, link: impl Fn(char) -> String) -> String {
    let mut text = format!("a: &a {first}\n");
    for (name, before) in ('b'..='k').zip('a'..='j') {
        writeln!(text, "{name}: &{name} [{}]", vec![link(before); 9].join(", ")).unwrap();
    }
    text
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

/// Each would take gigabytes or the whole stack if it were followed.
#[rstest]
#[case::laughs(nested("[x, x]", |before| format!("*{before}")))]
#[case::merges(nested("{x: 1}", |before| format!("{{m: *{before}, <<: *a}}")))]
#[case::flow("[".repeat(50_000))]
#[case::block(lines(5_000, |depth| " ".repeat(depth) + "a:\n"))]
#[case::dashes(format!("{}x", "- ".repeat(50_000)))]
#[case::questions(format!("{}x", "? ".repeat(50_000)))]
#[case::mixed(format!("{}x", "- ? ".repeat(30_000)))]
#[case::staircase(lines(3_000, |depth| " ".repeat(depth) + "-\n"))]
#[case::pairs(format!("{}x", "[a: ".repeat(50_000)))]
#[case::tags(format!("{}x", "!!seq - ".repeat(50_000)))]
#[case::anchored(format!("{}x", lines(50_000, |at| format!("&a{at} - "))))]
#[case::huge(format!("a: {}", "x".repeat(5 * 1024 * 1024)))]
#[case::many(format!("[{}]", "1,".repeat(300_000)))]
#[case::own("a: &a [*a]".to_owned())]
#[case::deep_alias((0..60).fold("a0: &a0 x\n".to_owned(), |text, at| text + &format!("a{}: &a{} [[*a{at}]]\n", at + 1, at + 1)))]
fn bombs_are_refused(#[case] bomb: String) {
    let refused = Node::from_yaml(&bomb);
    assert!(refused.is_err(), "{}…", &bomb[..40.min(bomb.len())]);
}
