//! Time limits. The rules: 120 s to a node, 90 s for images, 120 s from the node to the agent, 60 s to go.

use bk_api::config::PodConfig;
use bk_plan::{
    decide::{Timeouts, decide},
    facts::{ContainerState, PodFacts},
    remote::RemoteState::{Acquired, Waiting},
};
use jiff::SignedDuration;
use rstest::rstest;

use super::scene::{
    Scene, accepted, buildkite, container, created, deleting_since, ended, in_init, pending, pod, running,
    standalone, told, unscheduled,
};

/// With a second managed container.
fn two(first: ContainerState, second: ContainerState) -> PodFacts {
    let mut pod = pod(first, running());
    pod.managed.push(container("container-1", second));
    pod
}

/// Deleted because its node has been given up.
fn tainted(pod: PodFacts) -> PodFacts {
    PodFacts { disrupted: Some(told("DeletionByTaintManager", "").into()), ..pod }
}

fn minutes(scene: Scene) -> Scene {
    scene.spec(|spec| spec.timeout = Some("5m".parse().expect("a duration")))
}

#[rstest]
#[case::no_node_in_time(
    buildkite().pod(created(1, unscheduled(pod(pending(), pending())))).at(120),
    "write Starting (waits for a node (Unschedulable: 0/3 nodes)); explain a; ask; again in 1s"
)]
#[case::no_node(
    buildkite().pod(created(1, unscheduled(pod(pending(), pending())))).at(121),
    "write Starting Unschedulable; finish Unschedulable -1; write Failed Unschedulable -1; ask"
)]
#[case::a_node_at_last_has_its_own_time(
    buildkite().starting(0).pod(accepted(115, pod(pending(), pending()))).at(121), "ask; again in 1m 24s"
)]
#[case::images_that_do_not_come(
    buildkite().pod(accepted(10, pod(pending(), pending()))).at(100),
    "write Starting StartTimeout; finish StartTimeout -1; write Failed StartTimeout -1; ask"
)]
#[case::an_init_container_has_longer(
    buildkite().starting(0).pod(accepted(10, in_init(running()))).at(100), "ask; again in 30s"
)]
#[case::images_have_their_time_after_it(
    buildkite().starting(0).pod(PodFacts { init: in_init(ended(0, 90)).init, ..accepted(10, pod(pending(), pending())) })
        .at(100),
    "ask; again in 30s"
)]
#[case::nobody_takes_it(
    buildkite().running_since(10).pod(pod(running(), running())).word(Waiting, 124).at(125),
    "write Running StartTimeout; finish StartTimeout -1; write Failed StartTimeout -1; ask"
)]
#[case::a_container_that_was_killed_with_its_shim(
    standalone().running_since(10).pod(two(ended(137, 20), running())).at(40), "write Failed CommandFailed 137"
)]
#[case::the_others_are_about_to_follow(
    standalone().running_since(10).pod(two(ended(3, 20), running())).at(22), "again in 3s"
)]
#[case::nobody_took_it_and_a_container_was_killed(
    buildkite().running_since(10).pod(two(ended(3, 20), running())).word(Waiting, 26).at(26),
    "delete nightly u1; ask; again in 1s"
)]
#[case::an_agent_sees_to_it(
    buildkite().running_since(10).pod(two(ended(3, 20), running())).word(Acquired, 26).at(26), "again in 1h"
)]
#[case::it_runs_within_its_time(
    minutes(buildkite().running_since(10)).pod(pod(running(), running())).word(Acquired, 209).at(210),
    "again in 1m 40s"
)]
#[case::it_runs_too_long(
    minutes(buildkite().running_since(10)).pod(pod(running(), running())).word(Acquired, 309).at(310),
    "write TimedOut TimedOut; notify TimedOut"
)]
#[case::standalone_it_runs_too_long(
    minutes(standalone().running_since(10)).pod(pod(running(), running())).at(310), "write TimedOut TimedOut"
)]
#[case::nobody_has_it_so_it_does_not_run(
    minutes(buildkite().running_since(10)).pod(pod(running(), running())).word(Waiting, 99).at(100),
    "ask; again in 21s"
)]
#[case::it_does_not_go_and_nobody_took_it(
    buildkite().starting(0).pod(deleting_since(10, pod(running(), running()))).word(Waiting, 99).at(100),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::its_node_is_lost_and_nobody_took_it(
    buildkite().starting(0).pod(tainted(deleting_since(10, pod(pending(), running())))).word(Waiting, 24).at(25),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::its_node_is_lost_and_an_agent_had_it(
    buildkite().running_since(5).pod(tainted(deleting_since(10, pod(running(), running())))).word(Acquired, 24).at(25),
    "write Running; ask; again in 5s"
)]
#[case::its_node_is_lost_for_long_and_an_agent_had_it(
    buildkite().running_since(5).pod(tainted(deleting_since(10, pod(running(), running())))).word(Acquired, 69).at(70),
    "write Failed NodeLost -1; notify NodeLost"
)]
#[case::it_may_still_go(
    buildkite().starting(0).pod(deleting_since(10, pod(pending(), running()))).word(Waiting, 20).at(21),
    "ask; again in 1m 10s"
)]
#[case::it_does_not_go_and_an_agent_had_it(
    buildkite().running_since(5).pod(deleting_since(10, pod(running(), running()))).word(Acquired, 99).at(100),
    "write Failed PodDeleted -1; notify PodDeleted"
)]
#[case::it_does_not_go_and_nobody_has_asked(
    buildkite().running_since(5).pod(deleting_since(10, pod(running(), running()))).at(100), "ask; again in 1s"
)]
#[case::standalone_it_does_not_go(
    standalone().running_since(5).pod(deleting_since(10, pod(running(), running()))).at(100),
    "write Failed PodDeleted -1"
)]
fn a_limit(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

/// A job's own word counts most, then its plugin's, then the configuration's.
#[rstest]
#[case::its_own(true, true, 300)]
#[case::the_plugins(false, true, 200)]
#[case::the_configurations(false, false, 100)]
fn whose_limit_counts(#[case] own: bool, #[case] plugin: bool, #[case] expected: i64) {
    let mut scene = standalone().running_since(0).pod(pod(running(), running()));
    if own {
        scene = minutes(scene);
    }
    if plugin {
        let content = serde_json::json!({ "jobActiveDeadlineSeconds": 200 });
        scene = scene.spec(|spec| spec.kubernetes = content.as_object().cloned().map(Into::into));
    }
    let mut rules = crate::fixtures::rules();
    rules.timeouts.run = Some(SignedDuration::from_secs(100));
    let decision = decide(&scene.at(10).observed(), &rules);
    assert_eq!(decision.look_again, Some(SignedDuration::from_secs(expected - 10)));
}

#[test]
fn limits_are_the_configurations() {
    let timeouts = Timeouts::of(PodConfig::default().timeouts);
    assert_eq!((timeouts.schedule, timeouts.run), (SignedDuration::from_mins(15), None));
}
