//! What Buildkite is told about a wait: once it has lasted for 10 s, once per change, and every 30 s at most.

use bk_api::exporters::{ArtifactExporter, LogExporter};
use bk_plan::remote::RemoteState::{Finished, Waiting};
use rstest::rstest;

use super::scene::{
    Scene, because, buildkite, ended, pending, pod, running, standalone, unscheduled, waiting,
};

const NO_NODE: &str = "a node (Unschedulable: 0/3 nodes)";

fn without_node() -> Scene {
    buildkite().starting(0).waiting_for(NO_NODE).pod(unscheduled(pod(pending(), pending())))
}

#[rstest]
#[case::not_yet(without_node().word(Waiting, 4).at(5), "ask; again in 6s")]
#[case::it_lasts(without_node().word(Waiting, 10).at(11), "explain a; ask; again in 1m 50s")]
#[case::it_was_told(without_node().explained(NO_NODE, 11).word(Waiting, 10).at(12), "ask; again in 1m 49s")]
#[case::something_else_was_told_just_now(
    without_node().explained("its Job to get a pod", 10).word(Waiting, 19).at(20), "ask; again in 20s"
)]
#[case::something_else_was_told_before(
    without_node().explained("its Job to get a pod", 10).word(Waiting, 39).at(40), "explain a; ask; again in 1m 21s"
)]
#[case::nobody_is_to_be_told(
    standalone().starting(0).waiting_for(NO_NODE).pod(unscheduled(pod(pending(), pending()))).at(20),
    "again in 1m 41s"
)]
#[case::the_ordinary_steps_of_a_start(
    buildkite().starting(0).pod(pod(waiting("ContainerCreating", ""), running())).word(Waiting, 19).at(20),
    "ask; again in 1m 11s"
)]
fn of_a_wait(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

/// What a job asks for and does not get does not keep it from running.
#[rstest]
#[case::a_new_job(exporting(buildkite()), "write Pending; create nightly; remark; ask; again in 3s")]
#[case::nobody_is_to_be_told(exporting(standalone()), "write Pending; create nightly; again in 3s")]
#[case::it_was_told(
    exporting(buildkite()).attempt(1).word(Waiting, 1).at(2),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::it_is_on_record(
    {
        let mut scene = exporting(buildkite());
        scene.job.status = Some(scene.written());
        scene
    },
    "create nightly; remark; ask; again in 3s"
)]
fn of_something_that_is_not_there(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

fn exporting(scene: Scene) -> Scene {
    scene.spec(|spec| {
        spec.log_exporter = Some(Box::new(LogExporter { enabled: true, ..LogExporter::default() }));
        spec.artifact_exporter =
            Some(Box::new(ArtifactExporter { enabled: true, ..ArtifactExporter::default() }));
    })
}

#[rstest]
#[case::the_exit_status_says_it_all(ended(3, 20), "write Failed CommandFailed 3")]
#[case::buildkite_cannot_know(
    because("OOMKilled", 137, 20),
    "write Failed OutOfMemory 137; notify OutOfMemory"
)]
fn of_an_end(#[case] end: bk_plan::facts::ContainerState, #[case] expected: &str) {
    let scene = buildkite().running_since(10).pod(pod(end, running())).word(Finished, 21).at(21);
    assert_eq!(scene.decides(), expected);
}
