//! What people read.

use bk_plan::remote::RemoteState::{Acquired, Finished, Waiting};
use rstest::rstest;

use super::scene::{
    Scene, because, beside, buildkite, deleting_since, ended, evicted, failed_in_init, in_init, pending, pod,
    preempted, running, unscheduled, waiting,
};

#[rstest]
#[case(
    buildkite().starting(0).pod(pod(waiting("ErrImagePull", "manifest unknown"), running())).at(3),
    "image busybox of container container-0 cannot be had: ErrImagePull: manifest unknown"
)]
#[case(
    buildkite().starting(0).pod(unscheduled(pod(pending(), pending()))).at(121),
    "the job did not start within 120 s; it was waiting for a node (Unschedulable: 0/3 nodes)"
)]
#[case(
    buildkite().running_since(10).pod(pod(running(), running())).word(Waiting, 132).at(133),
    "the job did not start within 120 s; it was waiting for its agent to take it"
)]
#[case(
    buildkite()
        .running_since(10)
        .pod(beside(waiting("CrashLoopBackOff", ""), pod(running(), running())))
        .word(Waiting, 132)
        .at(133),
    "the job did not start within 120 s; it was waiting for its agent to take it"
)]
#[case(
    buildkite().starting(0).pod(beside(running(), in_init(running()))).at(130),
    "the job did not start within 120 s; it was waiting for container prepare"
)]
#[case(
    buildkite().starting(0).pod(beside(waiting("CrashLoopBackOff", ""), in_init(pending()))).at(130),
    "the job did not start within 90 s; it was waiting for container database (CrashLoopBackOff)"
)]
#[case(
    buildkite().starting(0).pod(beside(running(), in_init(ended(0, 2)))).at(130),
    "the job did not start within 90 s; it was waiting for container container-0 (PodInitializing)"
)]
#[case(
    buildkite().starting(0).pod(failed_in_init(ended(4, 2))).at(3),
    "init container prepare ended with exit status 4"
)]
#[case(
    buildkite().running_since(10).pod(pod(because("OOMKilled", 137, 20), running())).word(Finished, 21).at(21),
    "container container-0 was killed because it used more memory than its limit (exit status 137)"
)]
#[case(
    buildkite().starting(2).pod(pod(ended(1, 20), ended(27, 20))).word(Finished, 21).at(21),
    "an agent that is not in a pod of this BuildJob has the job"
)]
#[case(
    buildkite().running_since(10).pod(evicted(pod(running(), running()))).word(Acquired, 22).at(23),
    "the agent was lost while the job ran: Evicted: the node was low on memory"
)]
#[case(
    buildkite().running_since(10).pod(evicted(pod(ended(137, 20), running()))).word(Finished, 21).at(21),
    "the agent was lost while the job ran: Evicted: the node was low on memory"
)]
#[case(
    buildkite()
        .running_since(10)
        .pod(deleting_since(18, pod(ended(143, 20), ended(0, 20))))
        .word(Finished, 21)
        .at(21),
    "the agent was lost while the job ran: its pod was deleted"
)]
#[case(
    buildkite()
        .running_since(10)
        .pod(preempted(18, pod(ended(143, 20), ended(0, 20))))
        .word(Finished, 21)
        .at(21),
    "the agent was lost while the job ran: PreemptionByScheduler"
)]
#[case(
    buildkite()
        .starting(2)
        .pod(deleting_since(18, pod(ended(143, 20), ended(0, 20))))
        .word(Waiting, 22)
        .at(22),
    "no agent took the job in 3 attempts: its pod was deleted"
)]
#[case(
    buildkite().starting(2).pod(pod(running(), because("Error", 1, 20))).word(Waiting, 22).at(22),
    "no agent took the job in 3 attempts: the agent ended with exit status 1 (Error)"
)]
#[case(
    buildkite().starting(2).pod(pod(running(), ended(1, 20))).word(Waiting, 22).at(22),
    "no agent took the job in 3 attempts: the agent ended with exit status 1"
)]
#[case(
    buildkite().starting(2).pod(pod(because("Error", 1, 20), running())).word(Waiting, 22).at(22),
    "no agent took the job in 3 attempts: container container-0 ended with exit status 1 (Error)"
)]
fn reasons(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.reason(), expected);
}
