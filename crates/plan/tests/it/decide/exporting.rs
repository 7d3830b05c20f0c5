//! After the job's end, while exporters carry away what it left.

use bk_api::Phase;
use bk_plan::{
    facts::{ContainerState, Ended, PodFacts},
    remote::RemoteState::{Acquired, Finished},
};
use rstest::rstest;

use super::scene::{
    Scene, because, buildkite, container, deleting_since, ended, pod, running, standalone, time, waiting,
};

const DELIVERED: &str = r#"{"sinks":[{"name":"search","sent":7}]}"#;
const LOST: &str = r#"{"sinks":[{"name":"search","sent":7,"lost":2,"reason":"answered 400"}]}"#;

fn exporting(exporter: ContainerState, pod: PodFacts) -> PodFacts {
    PodFacts { exporters: vec![container("log-exporter", exporter)], ..pod }
}

fn said(message: &str) -> ContainerState {
    let end = Ended { message: message.to_owned(), at: Some(time(25)), ..Ended::default() };
    ContainerState::Ended(Box::new(end))
}

/// All containers of the job have ended well.
fn done() -> PodFacts {
    pod(ended(0, 20), ended(0, 20))
}

fn spawned(exporter: ContainerState) -> Scene {
    buildkite().spawned().running_since(10).ended(Phase::Succeeded, 20).pod(exporting(exporter, done()))
}

fn failed(exporter: ContainerState) -> Scene {
    let facts = pod(ended(1, 20), ended(0, 20));
    buildkite().running_since(10).ended(Phase::Failed, 20).pod(exporting(exporter, facts))
}

fn then(mut scene: Scene) -> Scene {
    scene.job.status = Some(scene.written());
    scene
}

#[rstest]
#[case::a_job_without_is_not_delayed(
    buildkite().spawned().running_since(10).pod(done()).word(Finished, 21).at(21),
    "delete the job, Succeeded; delete nightly u1 at once"
)]
#[case::the_end_is_written_down_first(
    buildkite().spawned().running_since(10).pod(exporting(running(), done())).word(Finished, 21).at(21),
    "write Succeeded Passed 0"
)]
#[case::the_pod_stays_meanwhile(spawned(running()).at(21), "again in 4m 59s")]
#[case::also_for_one_that_is_about_to_start(spawned(waiting("ContainerCreating", "")).at(21), "again in 4m 59s")]
#[case::not_for_one_that_cannot_start(
    spawned(waiting("ErrImagePull", "not found")).at(21),
    "write Succeeded Passed; remark; delete the job; delete nightly u1"
)]
#[case::once_it_has_ended_all_go(spawned(said(DELIVERED)).at(26), "delete the job; delete nightly u1 at once")]
#[case::a_loss_is_told(
    spawned(said(LOST)).at(26), "write Succeeded Passed; remark; delete the job; delete nightly u1 at once"
)]
#[case::a_loss_is_told_once(then(spawned(said(LOST)).at(26)).at(27), "delete the job; delete nightly u1 at once")]
#[case::it_is_not_waited_for_without_end(
    spawned(running()).at(320), "write Succeeded Passed; remark; delete the job; delete nightly u1"
)]
#[case::what_came_of_it_is_on_record(failed(said(DELIVERED)).at(26), "write Failed Passed; delete nightly u1 at once; again in 54s")]
#[case::it_is_on_record_already(then(failed(said(DELIVERED)).at(26)).at(27), "delete nightly u1 at once; again in 53s")]
#[case::containers_that_run_on_are_stopped(
    buildkite().spawned().running_since(10).ended(Phase::Canceled, 20)
        .pod(exporting(running(), pod(running(), running()))).at(21),
    "delete nightly u1; again in 4m 59s"
)]
#[case::a_pod_on_its_way_out_may_yet_tell(
    buildkite().spawned().running_since(10).ended(Phase::Canceled, 20)
        .pod(deleting_since(21, exporting(running(), pod(ended(143, 22), ended(0, 22))))).at(23),
    "again in 4m 57s"
)]
#[case::who_was_killed_leaves_no_mark(
    standalone().running_since(10).ended(Phase::Failed, 20)
        .pod(exporting(running(), pod(because("OOMKilled", 137, 20), running()))).at(21),
    "delete nightly u1; again in 4m 59s"
)]
#[case::nobody_is_to_be_told(
    standalone().running_since(10).ended(Phase::Failed, 20)
        .pod(exporting(said(LOST), pod(ended(1, 20), ended(1, 20)))).at(26),
    "write Failed Passed; delete nightly u1 at once; again in 54s"
)]
fn exporters_have_time_after_the_end(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::it_cannot_be_pulled(waiting("ErrImagePull", "not found"))]
#[case::it_has_failed(because("OOMKilled", 137, 12))]
#[case::it_runs(running())]
fn an_exporter_is_no_concern_of_a_job_that_runs(#[case] exporter: ContainerState) {
    let without = buildkite().running_since(10).pod(pod(running(), running())).word(Acquired, 12).at(15);
    let with = without.clone().pod(exporting(exporter, pod(running(), running())));
    assert_eq!(with.decides(), without.decides());
}

#[test]
fn the_status_has_the_report() {
    let status = failed(said(LOST)).at(26).written();
    insta::assert_yaml_snapshot!(status.exporters, @r"
    - name: log-exporter
      sinks:
        - name: search
          sent: 7
          waiting: 0
          lost: 2
          reason: answered 400
    ");
}
