//! Pods that are taken away from a job that runs. Some are gone before anybody has seen their end.

use bk_plan::{
    facts::PodFacts,
    remote::RemoteState::{Acquired, Finished},
};
use rstest::rstest;

use super::scene::{Scene, buildkite, container, deleting_since, ended, pod, preempted, running, standalone};

fn runs(pod: PodFacts) -> Scene {
    buildkite().running_since(10).pod(pod).word(Acquired, 21).at(22)
}

/// After what was decided is done, and the pod is gone.
fn then_gone(mut scene: Scene) -> Scene {
    scene.job.status = Some(scene.written());
    scene.pod = None;
    scene
}

fn whole() -> PodFacts {
    pod(running(), running())
}

/// The checkout is done, and the command runs.
fn after_checkout() -> PodFacts {
    let mut pod = whole();
    pod.managed.insert(0, container("checkout", ended(0, 12)));
    pod
}

#[rstest]
#[case::that_it_is_taken_is_put_on_record(
    runs(deleting_since(20, whole())),
    "write Running; ask; again in 5s"
)]
#[case::once(
    { let mut scene = runs(preempted(20, whole())); scene.job.status = Some(scene.written()); scene.at(24) },
    "ask; again in 5s"
)]
#[case::the_agent_had_reported(
    then_gone(runs(preempted(20, whole()))).word(Finished, 23).at(24), "write Failed Preempted -1; notify Preempted"
)]
#[case::the_agent_had_not_reported(
    then_gone(runs(preempted(20, whole()))).word(Acquired, 23).at(24), "write Failed Preempted -1; notify Preempted"
)]
#[case::its_checkout_had_ended_before(
    then_gone(runs(preempted(20, after_checkout()))).word(Acquired, 23).at(24), "write Failed Preempted -1; notify Preempted"
)]
#[case::somebody_deleted_it(
    then_gone(runs(deleting_since(20, whole()))).word(Finished, 23).at(24), "write Failed PodDeleted -1; notify PodDeleted"
)]
#[case::without_buildkite(
    then_gone(standalone().running_since(10).pod(preempted(20, whole())).at(22)).at(24), "write Failed Preempted -1"
)]
fn a_pod_is_taken_away(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}
