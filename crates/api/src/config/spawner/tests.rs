use rstest::rstest;

use super::*;

fn read(document: &str) -> SpawnerConfig {
    serde_saphyr::from_str(document).unwrap()
}

#[test]
fn one_queue_has_the_operators_own_name_at_buildkite() {
    let queues = read("{queue: gpu, tags: [cluster=prod], maxInFlight: 3, forbid: [image]}").queues();
    let expected = Queue {
        key: "gpu".to_owned(),
        stack_key: "buildkite-operator".to_owned(),
        tags: vec!["cluster=prod".to_owned()],
        max_in_flight: None,
        max_in_flight_per_pipeline: None,
        defaults: JobDefaults::default(),
        forbid: vec!["image".to_owned()],
    };
    assert_eq!(queues, [expected]);
}

#[test]
fn each_of_several_queues_has_its_own_terms() {
    let config = read(
        "
stackKey: prod
tags: [cluster=prod]
maxInFlightPerPipeline: 10
defaults: {image: 'debian:13', resourceClass: small}
forbid: [kubernetes]
queues:
- key: linux
- {key: gpu, tags: [gpu=a100], maxInFlight: 2, maxInFlightPerPipeline: 1, defaults: {environment: cuda}, forbid: [image]}
",
    );
    assert_eq!(config.check(), Ok(()));
    let [linux, gpu] = config.queues().try_into().unwrap();
    assert_eq!((linux.stack_key.as_str(), gpu.stack_key.as_str()), ("prod-linux", "prod-gpu"));
    assert_eq!(
        (linux.tags, gpu.tags),
        (vec!["cluster=prod".to_owned()], vec!["cluster=prod".to_owned(), "gpu=a100".to_owned()])
    );
    assert_eq!((linux.max_in_flight, linux.max_in_flight_per_pipeline), (None, Some(10)));
    assert_eq!((gpu.max_in_flight, gpu.max_in_flight_per_pipeline), (Some(2), Some(1)));
    assert_eq!(linux.defaults, config.defaults);
    let expected = JobDefaults {
        environment: Some("cuda".to_owned()),
        image: None,
        resource_class: Some("small".to_owned()),
    };
    assert_eq!(gpu.defaults, expected);
    assert_eq!(gpu.forbid, ["kubernetes", "image"]);
}

#[rstest]
#[case("_default")]
#[case("__default__")]
#[case("~")]
#[case("-")]
fn the_clusters_default_queue_has_many_names(#[case] key: &str) {
    let config = SpawnerConfig { queue: Some(key.to_owned()), ..SpawnerConfig::default() };
    assert_eq!(config.main_queue().key, "_default");
}

#[test]
fn jobs_come_by_stacks_unless_graphql_is_asked_for() {
    assert_eq!(read("{}").intake, IntakeKind::Stacks);
    let config = read("{intake: graphql, organization: acme}");
    assert_eq!((config.check(), config.intake), (Ok(()), IntakeKind::Graphql));
}

#[test]
fn a_queue_on_the_command_line_is_the_only_one() {
    let mut config = read("queues: [{key: linux}, {key: gpu}]");
    config.serve_only("arm".to_owned());
    assert_eq!(config.queues().iter().map(|queue| queue.key.as_str()).collect::<Vec<_>>(), ["arm"]);
}

#[rstest]
#[case("{queue: a, queues: [{key: b}]}", "`queue` and `queues` exclude one another")]
#[case("queue: ''", "`queue` must not be empty")]
#[case("queues: [{key: a}, {maxInFlight: 2}]", "`queues[1].key` must not be empty")]
#[case("queues: [{key: '~'}, {key: _default}]", "`queues[1].key: _default` is there already")]
#[case("queues: [{key: a, maxInFlight: 0}]", "`queues[0].maxInFlight` must be at least 1")]
#[case("maxInFlightPerPipeline: 0", "`maxInFlightPerPipeline` must be at least 1")]
#[case("queues: [{key: a, tags: [gpu]}]", "`queues[0].tags`: tag `gpu` must have the form key=value")]
#[case(
    "queues: [{key: a, defaults: {image: x, environment: y}}]",
    "`queues[0].defaults`: `environment` and `image` exclude one another"
)]
#[case("organization: acme", "`organization` needs `intake: graphql`")]
#[case("graphqlEndpoint: 'https://x/v1'", "`graphqlEndpoint` needs `intake: graphql`")]
fn what_cannot_be_meant_is_named(#[case] document: &str, #[case] expected: &str) {
    assert_eq!(read(document).check(), Err(expected.to_owned()));
}

#[test]
fn what_a_former_stack_has_taken_keeps_its_queues_terms() {
    let config = read("{stackKey: new, forbid: [image], queues: [{key: gpu, forbid: [kubernetes]}]}");
    let known = config.former("gpu", "old-gpu".to_owned());
    assert_eq!((known.key.as_str(), known.stack_key.as_str()), ("gpu", "old-gpu"));
    assert_eq!(known.forbid, ["image", "kubernetes"]);
    let unknown = config.former("arm", "old-arm".to_owned());
    assert_eq!((unknown.key.as_str(), unknown.stack_key.as_str()), ("arm", "old-arm"));
    assert_eq!(unknown.forbid, ["image"]);
}
