use jiff::Timestamp;

use super::*;
use crate::build::{BuildState, JobKind};
use crate::pipeline::from_yaml;
use crate::pipeline::step::Kind;
use crate::store::builds::TriggeredFrom;

fn facts(yaml: &str) -> Facts {
    let document = from_yaml(yaml).unwrap();
    Facts {
        organization: Organization {
            slug: "acme".into(),
            id: Uuid::from_u128(1),
            cluster_id: Uuid::from_u128(2),
            cluster_name: "local".into(),
            base_url: "http://bk.local".into(),
        },
        pipeline: PipelineRow {
            id: Uuid::from_u128(3),
            slug: "demo".into(),
            name: "Demo".into(),
            repository: "https://git.local/demo.git".into(),
            configuration: String::new(),
            default_branch: "main".into(),
            created_at: Timestamp::UNIX_EPOCH,
        },
        build: BuildRow {
            id: Uuid::from_u128(4),
            pipeline: Uuid::from_u128(3),
            number: 7,
            state: BuildState::Running,
            cancel_requested: false,
            branch: "main".into(),
            commit: "HEAD".into(),
            message: "hello".into(),
            source: "api".into(),
            author: Some(("Ann".into(), "ann@example.org".into())),
            tag: None,
            pull_request: None,
            triggered_from: None,
            rebuilt_from: None,
            notify: Vec::new(),
            pipeline_env: document.env.clone(),
            env: Env::from([
                ("B".into(), "build".into()),
                ("C".into(), "build".into()),
                ("BUILDKITE_BRANCH".into(), "no".into()),
            ]),
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
        },
        written: document.steps[0].step.clone(),
        step: document.steps[0].step.clone(),
        unblocker: None,
        group: Some(Group { id: Uuid::from_u128(6), key: Some("g".into()), label: Some("G".into()) }),
        job: Job {
            parallel: Some((1, 2)),
            ..Job::new(Uuid::from_u128(8), Uuid::from_u128(5), JobKind::Command, Timestamp::UNIX_EPOCH)
        },
        agent: None,
    }
}

fn env_of(facts: &Facts) -> Env {
    let Kind::Command(command) = &facts.step.kind else { panic!("not a command step") };
    environment(facts, command)
}

const YAML: &str = "
env: {A: pipeline, B: pipeline, C: pipeline}
steps:
  - label: Test
    key: test
    command: make test
    env: {C: step}
    image: alpine
    plugins: [kubernetes: {x: 1}]
    artifact_paths: [a, b]
    parallelism: 2
";

#[test]
fn the_whole_environment() {
    insta::assert_yaml_snapshot!(env_of(&facts(YAML)));
}

#[test]
fn the_agent_adds_only_its_own() {
    let mut facts = facts(YAML);
    let without = env_of(&facts);
    facts.agent = Some(Agent {
        id: Uuid::from_u128(9),
        name: "a-1".into(),
        tags: vec!["queue=kubernetes".into(), "k8s:node=n1".into(), "bare".into()],
    });
    let mut with = env_of(&facts);
    let added: Vec<_> = with
        .iter()
        .filter(|(name, _)| !without.contains_key(*name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        added,
        [
            "BUILDKITE_AGENT_ID=00000000-0000-0000-0000-000000000009",
            "BUILDKITE_AGENT_META_DATA_BARE=true",
            "BUILDKITE_AGENT_META_DATA_K8S_NODE=n1",
            "BUILDKITE_AGENT_META_DATA_QUEUE=kubernetes",
            "BUILDKITE_AGENT_NAME=a-1",
        ]
    );
    with.retain(|name, _| without.contains_key(name));
    assert_eq!(with, without);
}

#[test]
fn a_step_without_plugins_does_not_mention_them() {
    assert!(env_of(&facts(YAML)).contains_key("BUILDKITE_PLUGINS"));
    assert!(!env_of(&facts("steps: [{command: x}]")).contains_key("BUILDKITE_PLUGINS"));
}

#[test]
fn what_the_bootstrap_needs_is_never_empty() {
    let mut facts = facts(YAML);
    facts.agent = Some(Agent { id: Uuid::nil(), name: "a".into(), tags: Vec::new() });
    let env = env_of(&facts);
    for name in [
        "BUILDKITE_REPO",
        "BUILDKITE_COMMIT",
        "BUILDKITE_BRANCH",
        "BUILDKITE_JOB_ID",
        "BUILDKITE_AGENT_NAME",
        "BUILDKITE_ORGANIZATION_SLUG",
        "BUILDKITE_PIPELINE_SLUG",
        "BUILDKITE_PIPELINE_PROVIDER",
    ] {
        assert!(!env[name].is_empty(), "{name}");
    }
}

#[test]
fn where_a_build_comes_from_is_told() {
    let mut facts = facts(YAML);
    facts.build.tag = Some("v1".into());
    facts.build.rebuilt_from = Some((Uuid::from_u128(10), 3));
    facts.build.triggered_from = Some(TriggeredFrom {
        job: Uuid::from_u128(11),
        build: Uuid::from_u128(12),
        number: 5,
        pipeline: "parent".into(),
        root: Uuid::from_u128(12),
        depth: 1,
    });
    facts.build.pull_request = Some(PullRequest {
        id: "9".into(),
        base_branch: "main".into(),
        repository: "https://git.local/fork.git".into(),
        labels: vec!["a".into(), "b".into()],
        draft: true,
    });
    let env = env_of(&facts);
    for (name, value) in [
        ("TAG", "v1"),
        ("REBUILT_FROM_BUILD_ID", "00000000-0000-0000-0000-00000000000a"),
        ("REBUILT_FROM_BUILD_NUMBER", "3"),
        ("TRIGGERED_FROM_BUILD_ID", "00000000-0000-0000-0000-00000000000c"),
        ("TRIGGERED_FROM_BUILD_NUMBER", "5"),
        ("TRIGGERED_FROM_BUILD_PIPELINE_SLUG", "parent"),
        ("PULL_REQUEST", "9"),
        ("PULL_REQUEST_BASE_BRANCH", "main"),
        ("PULL_REQUEST_REPO", "https://git.local/fork.git"),
        ("PULL_REQUEST_LABELS", "a,b"),
        ("PULL_REQUEST_DRAFT", "true"),
    ] {
        assert_eq!(env[&format!("BUILDKITE_{name}")], value, "{name}");
    }
}
