use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::pipeline::condition::Literal;
use crate::pipeline::step::{Command, ExitMatch, RetryRule, SoftFail, TextMatch};
use crate::pipeline::{from_json, from_yaml};

fn facts() -> Facts {
    Facts::new([("build.branch", Literal::Text("main".into()))], [].into())
}

/// A new build on the branch `main`.
fn setting(facts: &Facts) -> Setting<'_> {
    const NONE: &BTreeSet<String> = &BTreeSet::new();
    Setting { taken: NONE, branch: "main", facts }
}

fn laid(yaml: &str) -> Vec<LaidStep> {
    let mut next = 0;
    let mut new_id = || {
        next += 1;
        Uuid::from_u128(next)
    };
    expand(&from_yaml(yaml).unwrap(), setting(&facts()), &mut new_id).unwrap()
}

fn refusal(yaml: &str) -> String {
    let document = match from_yaml(yaml) {
        Ok(document) => document,
        Err(problem) => return problem.to_string(),
    };
    expand(&document, setting(&facts()), &mut Uuid::now_v7).unwrap_err().to_string()
}

fn command(step: &LaidStep) -> &Command {
    match &step.step.kind {
        Kind::Command(command) => command,
        other => panic!("not a command step: {other:?}"),
    }
}

#[test]
fn a_full_command_step() {
    let steps = laid(
        "
agents: {queue: big}
image: alpine
priority: 3
env: {TOP: 1}
steps:
  - name: Test
    id: test
    commands: [one, two]
    env: {A: 1, B: true, C: ~, D: x}
    agents: [queue=small, os=linux]
    artifact_paths: [a/*, b]
    soft_fail: [{exit_status: 2}, {exit_status: '*'}]
    retry:
      automatic: {exit_status: [1, -1], signal: term, signal_reason: none, limit: 3}
      manual: {allowed: false, reason: no}
    timeout: 5
    plugins: [docker#v5: {image: x}]
  - command: plain
",
    );
    let full = command(&steps[0]);
    assert_eq!((steps[0].step.label.as_deref(), steps[0].step.key.as_deref()), (Some("Test"), Some("test")));
    assert_eq!(full.script, "one\ntwo");
    let env: Vec<_> = full.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["A=1", "B=true", "C=", "D=x"]);
    assert_eq!(full.agents, ["queue=small", "os=linux"]);
    assert_eq!(full.artifact_paths, ["a/*", "b"]);
    assert_eq!(full.soft_fail, SoftFail::ExitStatus(vec![ExitMatch::Is(2), ExitMatch::Any]));
    assert_eq!(
        full.retry.automatic,
        [RetryRule {
            exit_status: Some(vec![ExitMatch::Is(1), ExitMatch::Is(-1)]),
            signal: Some(TextMatch::Is("SIGTERM".into())),
            signal_reason: Some(vec![TextMatch::None]),
            limit: 3,
        }]
    );
    assert!(!full.retry.manual.allowed);
    assert_eq!(full.timeout_in_minutes, Some(5));
    let plain = command(&steps[1]);
    assert_eq!(plain.agents, ["queue=big"]);
    assert_eq!((plain.image.as_deref(), plain.priority), (Some("alpine"), 3));
}

#[test]
fn parallelism_makes_numbered_jobs() {
    let steps = laid("steps: [{command: x, parallelism: 3}, {command: y, parallelism: 0}]");
    let numbers: Vec<_> = steps[0].jobs.iter().map(|job| job.parallel).collect();
    assert_eq!(numbers, [Some((0, 3)), Some((1, 3)), Some((2, 3))]);
    assert_eq!(steps[1].jobs.iter().map(|job| job.parallel).collect::<Vec<_>>(), [None]);
}

#[test]
fn groups_are_flattened_and_say_what_their_members_inherit() {
    let steps = laid(
        "steps: [{command: a, key: a}, {group: G, depends_on: a, skip: no, steps: [{command: b, depends_on: []}, wait]}]",
    );
    assert_eq!(steps.len(), 4);
    assert!(steps[1].jobs.is_empty());
    assert!(steps[2..].iter().all(|step| step.group == Some(steps[1].id)));
    assert_eq!(steps[2].step.skip.as_deref(), Some("no"));
    assert_eq!(steps[2].step.depends_on.as_ref().unwrap()[0].step, "a");
}

#[test]
fn a_bare_list_and_an_upload_are_pipelines() {
    assert_eq!(laid("- command: x\n- wait\n").len(), 2);
    let upload = json!({"steps": [{"command": "x", "plugins": [{"github.com/a/b-buildkite-plugin#v1": null}]}, "wait"], "env": {"A": "1"}});
    let document = from_json(upload).unwrap();
    assert_eq!((document.steps.len(), document.env["A"].as_str()), (2, "1"));
}

#[rstest]
#[case(
    "steps:\n  - comand: x\n",
    "line 2, column 5: steps[0].comand: unknown attribute comand; did you mean command?"
)]
#[case(
    "steps:\n  - command: x\n    lable: y\n",
    "line 3, column 5: steps[0].lable: unknown attribute lable; did you mean label?"
)]
#[case(
    "steps:\n  - command: x\n    label: L\n    if: build.branch = 'main'\n",
    "line 4, column 9: steps[0].if: line 1, column 14 of the condition: '=' means nothing here"
)]
#[case(
    "steps: [{command: x, if: build.branch}]",
    "steps[0].if: build.branch is \"main\", neither true nor false"
)]
#[case(
    "steps: [{command: x, if: 'true', branches: main}]",
    "steps[0].branches: a step has either if or branches"
)]
#[case("steps: [{command: x, matrix: [a], parallelism: 2}]", "either parallelism or a matrix")]
#[case(
    "steps: [{command: x, matrix: {setup: {os: [a, [b]]}}}]",
    "steps[0].matrix.setup.os[1]: a matrix value must be"
)]
#[case("steps: [{command: x, matrix: [a, a]}]", "steps[0].matrix[1]: the value \"a\" is there twice")]
#[case(
    "steps: [{command: x, matrix: {setup: {a: [1]}, adjustments: [{with: {b: 1}}]}}]",
    "adjustments[0].with: with must have exactly the dimensions a"
)]
#[case(
    "steps: [{command: x, matrix: {setup: [1], adjustments: [{with: {b: 1}}]}}]",
    "with must be one value"
)]
#[case(
    "steps: [{command: x, matrix: {setup: {a: [1]}, adjustments: [{skip: true}]}}]",
    "an adjustment needs with"
)]
#[case("steps: [{command: '{{matrix.os}}', matrix: [a]}]", "{{matrix.os}} names no dimension of the matrix")]
#[case(
    "steps: [{command: x, plugins: [{a#v1: {b: '{{ matrix }}'}}], matrix: {setup: {os: [a]}}}]",
    "{{ matrix }} names no dimension"
)]
#[case("steps: [{trigger: ''}]", "steps[0].trigger: trigger must be the slug of a pipeline")]
#[case(
    "steps: [{trigger: other, build: {branchs: x}}]",
    "steps[0].build.branchs: unknown attribute branchs; did you mean branch?"
)]
#[case("steps: [{trigger: other, command: x}]", "unknown attribute trigger")]
#[case("steps: [{command: x, concurrency: 1}]", "concurrency needs a concurrency_group")]
#[case("steps: [{command: x, concurrency_group: g}]", "concurrency_group needs concurrency")]
#[case("steps: [{command: x, concurrency_method: eager}]", "concurrency_method needs concurrency")]
#[case(
    "steps: [{command: x, concurrency: 0, concurrency_group: g}]",
    "concurrency must be at least 1, not 0"
)]
#[case(
    "steps: [{command: x, concurrency: 1, concurrency_group: g, concurrency_method: fair}]",
    "must be ordered or eager"
)]
#[case("steps: [{command: x, notify: slack}]", "steps[0].notify: notify must be a list")]
#[case("steps: [{block: b, fields: [{text: A}]}]", "steps[0].fields[0]: a field needs a key")]
#[case(
    "steps: [{group: g, steps: [wait, {command: x, keyy: a}]}]",
    "steps[0].steps[1].keyy: unknown attribute keyy"
)]
#[case(
    "steps: [{command: x, key: k}, {command: y, key: k}]",
    "line 1, column 31: steps[1]: the key \"k\" has already been used"
)]
#[case("steps: [{command: x, key: 0198f0a0-0000-4000-8000-000000000001}]", "looks like a UUID")]
#[case(
    "steps: [{group: g, steps: [{group: h, steps: [{command: x}]}]}]",
    "a group cannot hold another group"
)]
#[case("steps: [{command: x, parallelism: 4000000000}]", "at most 500 are allowed")]
#[case("steps: [{command: x, command: y}]", "invalid YAML")]
#[case("steps: [{command: x, commands: [y]}]", "mean the same; give one")]
#[case("steps: [{command: x, retry: {automatic: {limit: 11}}}]", "retry limit must be at most 10")]
#[case("steps: [{command: {a: b}}]", "command must be a string or a list of strings, not a map")]
#[case("env: {A: [1]}\nsteps: []", "env A must be a string, not a list")]
#[case("hello", "a pipeline must be a map with steps")]
#[case("env: {}\n", "the pipeline has no steps")]
#[case("steps: [stop]", "unknown step \"stop\"")]
fn refusals_name_the_place_and_the_reason(#[case] yaml: &str, #[case] expected: &str) {
    let text = refusal(yaml);
    assert!(text.contains(expected), "{text}");
}

proptest! {
    /// No text makes the reader panic.
    #[test]
    fn any_text_is_read_or_refused(text in "[-a-z:\\[\\]{}~ \n&*<,'\"0-9]{0,120}") {
        if let Ok(document) = from_yaml(&text) {
            drop(expand(&document, setting(&facts()), &mut Uuid::now_v7));
        }
    }

    /// Each step yields the jobs it asks for, all ids differ, and members follow their group.
    #[test]
    fn expansion_counts(counts in prop::collection::vec(0u32..5, 1..8), grouped in any::<bool>()) {
        let steps: Vec<_> = counts.iter().map(|count| json!({"command": "x", "parallelism": count})).collect();
        let document = if grouped {
            json!([{"group": "g", "steps": steps}])
        } else {
            json!(steps)
        };
        let laid = expand(&from_json(document).unwrap(), setting(&facts()), &mut Uuid::now_v7).unwrap();
        let jobs: usize = laid.iter().map(|step| step.jobs.len()).sum();
        prop_assert_eq!(jobs, counts.iter().map(|count| (*count).max(1) as usize).sum::<usize>());
        let ids: BTreeSet<_> =
            laid.iter().flat_map(|step| step.jobs.iter().map(|job| job.id).chain([step.id])).collect();
        prop_assert_eq!(ids.len(), jobs + laid.len());
    }
}
