//! What Buildkite is told before the end, while an agent still has the job.

use bk_plan::{
    facts::{ContainerFacts, ContainerState, Ended, PodFacts},
    remote::RemoteState::{Acquired, Finished, Waiting},
};
use rstest::rstest;

use super::scene::{Scene, because, beside, buildkite, container, ended, pod, running, standalone, time};

fn killed() -> ContainerState {
    because("OOMKilled", 137, 20)
}

/// With a container before it, which runs on.
fn second(state: ContainerState) -> PodFacts {
    let mut pod = pod(running(), running());
    pod.managed.push(container("container-1", state));
    pod
}

/// With a sidecar that was killed, and was started again.
fn with_sidecar(pod: PodFacts) -> PodFacts {
    let mut pod = beside(running(), pod);
    let end =
        Ended { exit_status: 137, reason: "OOMKilled".to_owned(), at: Some(time(20)), ..Ended::default() };
    pod.init[0] = ContainerFacts { restarts: 1, last_end: Some(Box::new(end)), ..pod.init[0].clone() };
    pod
}

fn runs(pod: PodFacts) -> Scene {
    buildkite().running_since(10).pod(pod)
}

/// After what was decided is done.
fn then(mut scene: Scene) -> Scene {
    scene.job.status = Some(scene.written());
    scene
}

#[rstest]
#[case::nobody_has_asked_since(runs(pod(killed(), running())).word(Acquired, 12).at(21), "ask; again in 1s 750ms")]
#[case::an_agent_still_has_the_job(
    runs(pod(killed(), running())).word(Acquired, 22).at(22),
    "write Running; notify OutOfMemory; ask; again in 750ms"
)]
#[case::it_was_told(then(runs(pod(killed(), running())).word(Acquired, 22).at(22)).at(24), "ask; again in 2s")]
#[case::it_was_told_before_the_end(
    then(runs(pod(killed(), running())).word(Acquired, 22).at(22)).word(Finished, 50).at(50),
    "write Failed OutOfMemory 137"
)]
#[case::the_agent_was_quicker(
    runs(pod(killed(), running())).word(Finished, 21).at(21), "write Failed OutOfMemory 137; notify OutOfMemory"
)]
#[case::while_the_others_run_and_nobody_has_asked(
    runs(second(killed())).word(Acquired, 12).at(21), "ask; again in 1s 750ms"
)]
#[case::while_the_others_run(
    runs(second(killed())).word(Acquired, 22).at(22), "write Running; notify OutOfMemory; again in 1h"
)]
#[case::while_the_others_run_it_was_told(
    then(runs(second(killed())).word(Acquired, 22).at(22)).at(24), "again in 1h"
)]
#[case::a_sidecar(
    runs(with_sidecar(pod(running(), running()))).word(Acquired, 22).at(22),
    "write Running; notify OutOfMemory; again in 1h"
)]
#[case::a_sidecar_and_then_the_command(
    then(runs(with_sidecar(pod(running(), running()))).word(Acquired, 22).at(22))
        .pod(with_sidecar(pod(killed(), running()))).at(23),
    "write Running; notify OutOfMemory; ask; again in 1s"
)]
#[case::the_agent_itself(
    runs(pod(running(), killed())).word(Acquired, 22).at(22),
    "write Failed AgentOutOfMemory 137; notify AgentOutOfMemory"
)]
#[case::nobody_has_the_job(runs(second(killed())).word(Waiting, 22).at(22), "ask; again in 3s")]
#[case::a_plain_failure_is_the_agents_to_report(
    runs(second(ended(3, 20))).word(Acquired, 22).at(22), "again in 1h"
)]
#[case::nobody_is_to_be_told(
    standalone().running_since(10).pod(pod(killed(), running())).at(22), "write Failed OutOfMemory 137"
)]
fn a_container_runs_out_of_memory(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}
