use std::collections::BTreeSet;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::from_yaml;

fn step(yaml: &str) -> Step {
    from_yaml(&format!("steps: [{yaml}]")).unwrap().steps.remove(0).step
}

fn command(step: &Step) -> &Command {
    match &step.kind {
        Kind::Command(command) => command,
        other => panic!("not a command step: {other:?}"),
    }
}

fn combinations(yaml: &str) -> Vec<String> {
    let step = step(&format!("{{command: x, matrix: {yaml}}}"));
    let matrix = command(&step).matrix.clone().unwrap();
    matrix
        .permutations()
        .iter()
        .map(|(permutation, skip)| {
            let values: Vec<_> = permutation.iter().map(|(name, value)| format!("{name}={value}")).collect();
            values.join(" ") + if skip.is_some() { " skipped" } else { "" }
        })
        .collect()
}

#[rstest]
#[case::list("[a, 1, true]", &["=a", "=1", "=true"])]
#[case::setup_list("{setup: [a]}", &["=a"])]
#[case::product("{setup: {x: [a, b], y: [1, 2]}}", &["x=a y=1", "x=a y=2", "x=b y=1", "x=b y=2"])]
#[case::skip("{setup: [a, b], adjustments: [{with: b, skip: true}]}", &["=a", "=b skipped"])]
#[case::add(
    "{setup: {x: [a], y: [1]}, adjustments: [{with: {x: c, y: 1}}]}",
    &["x=a y=1", "x=c y=1"]
)]
#[case::soft("{setup: {x: [a]}, adjustments: [{with: {x: a}, soft_fail: true}]}", &["x=a"])]
fn permutations(#[case] yaml: &str, #[case] expected: &[&str]) {
    assert_eq!(combinations(yaml), expected);
}

#[test]
fn placeholders_are_filled_where_they_may_stand() {
    let step = step(
        "{label: 'on {{matrix.os}}', key: k, command: 'run {{ matrix.os }} {{matrix.arch}} {{other}}',
          env: {A: '{{matrix.arch}}'}, agents: {queue: 'q-{{matrix.os}}'},
          plugins: [{a#v1: {b: ['{{matrix.os}}']}}],
          matrix: {setup: {os: [linux], arch: [arm64]}}}",
    );
    let permutation = command(&step).matrix.as_ref().unwrap().permutations().remove(0).0;
    let filled = step.permuted(Some(&permutation));
    let job = command(&filled);
    assert_eq!(filled.label.as_deref(), Some("on linux"));
    assert_eq!(job.script, "run linux arm64 {{other}}");
    assert_eq!((job.env["A"].as_str(), &job.agents[..]), ("arm64", &["queue=q-linux".to_owned()][..]));
    assert_eq!(
        job.plugins,
        [json!({"github.com/buildkite-plugins/a-buildkite-plugin#v1": {"b": ["linux"]}})]
    );
    assert_eq!(filled.key.as_deref(), Some("k"));
    assert_eq!(*step.permuted(None), step);
}

#[test]
fn an_adjustment_may_soften_one_combination() {
    let step = step(
        "{command: x, matrix: {setup: [a, b], adjustments: [{with: b, soft_fail: [{exit_status: 3}]}]}}",
    );
    let of = |value: &str| {
        let permutation = BTreeMap::from([(String::new(), value.to_owned())]);
        command(&step).soft_fail_of(Some(&permutation)).matches(Some(3))
    };
    assert_eq!((of("a"), of("b")), (false, true));
}

#[rstest]
#[case::dimensions(json!({"setup": {"a": [1], "b": [1], "c": [1], "d": [1], "e": [1], "f": [1], "g": [1]}}), "7 dimensions; at most 6")]
#[case::values(json!((0..26).collect::<Vec<_>>()), "between 1 and 25 values, not 26")]
#[case::none(json!([]), "between 1 and 25 values, not 0")]
#[case::jobs(json!({"setup": {"a": [1, 2, 3, 4, 5, 6, 7, 8], "b": [1, 2, 3, 4, 5, 6, 7]}}), "56 combinations; at most 50")]
#[case::adjustments(json!({"setup": [1], "adjustments": (0..13).map(|with| json!({"with": with})).collect::<Vec<_>>()}), "13 adjustments; at most 12")]
#[case::shape(json!("a"), "matrix must be a list of values, or a map with setup")]
#[case::no_setup(json!({"adjustments": []}), "a matrix needs a setup")]
#[case::name(json!({"setup": {"a b": [1]}}), "may only have letters")]
fn limits(#[case] matrix: Json, #[case] expected: &str) {
    let upload = json!({"steps": [{"command": "x", "matrix": matrix}]});
    let text = crate::from_json(upload).unwrap_err().to_string();
    assert!(text.contains(expected), "{text}");
}

proptest! {
    /// As many as the product, all different, and no placeholder is left in any of them.
    #[test]
    fn every_combination_once(sizes in prop::collection::vec(1usize..4, 1..4)) {
        let setup: serde_json::Map<String, Json> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| (format!("d{at}"), json!((0..*size).collect::<Vec<_>>())))
            .collect();
        let text: String = (0..sizes.len()).map(|at| ["{{ matrix.d", &at.to_string(), " }}/"].concat()).collect();
        let upload = json!({"steps": [{"command": text, "label": text, "matrix": {"setup": setup}}]});
        let step = crate::from_json(upload).unwrap().steps.remove(0).step;
        let all = command(&step).matrix.as_ref().unwrap().permutations();
        prop_assert_eq!(all.len(), sizes.iter().product::<usize>());
        let scripts: BTreeSet<String> = all
            .iter()
            .map(|(permutation, _)| command(&step.permuted(Some(permutation))).script.clone())
            .collect();
        prop_assert_eq!(scripts.len(), all.len());
        prop_assert!(scripts.iter().all(|script| !script.contains("{{")));
    }
}
