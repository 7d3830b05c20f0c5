//! What the operator does when it can speak for the agent: agents that are lost, nodes that are silent or leave, and memory that was
//! too little.

use bk_api::{
    Phase,
    VerdictCode::{self, NodeLost, OutOfMemory, PodDeleted, StartTimeout},
};
use bk_plan::{
    facts::{ContainerState, PodFacts},
    remote::RemoteState::{Acquired, Canceled, Canceling, Finished, TimedOut, Unknown, Waiting},
};
use rstest::rstest;

use super::scene::{
    Scene, batch_job, because, beside, buildkite, container, deleting_since, ended, evicted, failed, pending,
    pod, running, standalone, told,
};

fn oom() -> ContainerState {
    because("OOMKilled", 137, 20)
}

/// A job that an agent has, by a word of this second.
fn acquired(seconds: i64) -> Scene {
    buildkite().running_since(3).word(Acquired, seconds).at(seconds + 1)
}

/// Two containers, the second of which is in this state.
fn second(state: ContainerState) -> PodFacts {
    let mut pod = pod(running(), running());
    pod.managed.push(container("container-1", state));
    pod
}

/// Taken away from a node that does not answer.
fn by_taint(seconds: i64, pod: PodFacts) -> PodFacts {
    PodFacts { disrupted: Some(told("DeletionByTaintManager", "").into()), ..deleting_since(seconds, pod) }
}

/// What is decided without a session, and with one.
#[rstest]
#[case::its_pod_is_gone(
    acquired(50),
    "write Failed PodDeleted -1; notify PodDeleted",
    "write Running PodDeleted; end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_pod_is_gone_and_the_word_is_old(acquired(40).at(50), "ask; again in 1s", "ask; again in 1s")]
#[case::its_pod_is_gone_and_the_job_has_ended(
    acquired(50).word(Finished, 50),
    "write Failed ResultUnknown",
    "write Failed ResultUnknown"
)]
#[case::its_pod_is_gone_and_nobody_has_the_job(
    acquired(50).word(Waiting, 50),
    "write Pending #1; create nightly-try1; ask; again in 3s",
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::its_pod_is_gone_and_buildkite_does_not_know_the_job(
    acquired(50).word(Unknown, 50),
    "write Failed InvalidSpec -1",
    "write Failed InvalidSpec -1"
)]
#[case::the_pod_of_its_job_is_gone(
    acquired(50).batch(batch_job()),
    "write Failed PodDeleted -1; notify PodDeleted",
    "write Running PodDeleted; end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_container_was_killed(
    acquired(50).pod(pod(running(), ended(137, 40))),
    "write Failed AgentLost -1; notify AgentLost",
    "write Running AgentLost; end AgentLost -1; write Failed AgentLost -1; notify AgentLost; ask; again in 1s"
)]
#[case::its_container_was_killed_after_the_word(
    acquired(50).pod(pod(running(), ended(137, 50))),
    "ask; again in 1s 750ms",
    "ask; again in 1s 750ms"
)]
#[case::its_container_was_killed_for_its_memory(
    acquired(50).pod(pod(running(), oom())),
    "write Failed AgentOutOfMemory 137; notify AgentOutOfMemory",
    "write Running AgentOutOfMemory; end AgentOutOfMemory 137; write Failed AgentOutOfMemory 137; notify AgentOutOfMemory; ask; again in 1s"
)]
#[case::its_pod_was_evicted(
    acquired(50).pod(evicted(pod(ended(137, 40), ended(137, 40)))),
    "write Failed Evicted 137; notify Evicted",
    "write Running Evicted; end Evicted 137; write Failed Evicted 137; notify Evicted; ask; again in 1s"
)]
#[case::its_pod_does_not_go(
    acquired(150).pod(deleting_since(20, pod(running(), running()))),
    "write Failed PodDeleted -1; notify PodDeleted",
    "write Running PodDeleted; end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_pod_may_still_go(
    acquired(50).pod(deleting_since(40, pod(running(), running()))),
    "write Running; ask; again in 5s",
    "write Running; ask; again in 5s"
)]
#[case::all_is_well(acquired(50).pod(pod(running(), running())), "again in 1h", "again in 1h")]
#[case::its_containers_have_ended_and_it_is_about_to_say_so(
    acquired(50).pod(pod(ended(0, 40), running())),
    "ask; again in 5s",
    "ask; again in 5s"
)]
fn an_agent_that_has_the_job_is_lost(#[case] scene: Scene, #[case] without: &str, #[case] with: &str) {
    assert_eq!(scene.decides(), without);
    assert_eq!(scene.with_session().decides(), with);
}

const SILENT: &str =
    "write Running NodeLost; end NodeLost -1; write Failed NodeLost -1; notify NodeLost; ask; again in 1s";

#[rstest]
#[case::not_for_long(acquired(50).silent_since(45).with_session(), "again in 4s")]
#[case::for_too_long(acquired(50).silent_since(41).with_session(), SILENT)]
#[case::deleted_a_moment_ago(acquired(50).node_deleted(45).with_session(), "again in 4s")]
#[case::deleted(acquired(50).node_deleted(41).with_session(), SILENT)]
#[case::and_the_word_is_old(acquired(40).silent_since(40).at(50).with_session(), "ask; again in 1s")]
#[case::and_nobody_speaks_for_the_agent(acquired(50).silent_since(1), "again in 1h")]
#[case::and_no_agent_has_the_job(
    acquired(50).word(Waiting, 50).silent_since(1).with_session(),
    "ask; again in 1m 10s"
)]
#[case::and_the_job_has_ended(
    acquired(50).word(Finished, 50).silent_since(1).with_session(),
    "again in 30s"
)]
#[case::and_it_was_cancelled(
    acquired(50).word(Canceled, 50).silent_since(1).with_session(),
    "write Canceled Canceled"
)]
fn a_node_is_silent(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.pod(pod(running(), running())).decides(), expected);
}

/// Its containers have ended, and its agent was about to say so.
#[rstest]
#[case::not_for_long(ended(0, 40), 45, "ask; again in 5s")]
#[case::for_too_long(ended(0, 40), 41, SILENT)]
#[case::and_a_container_had_failed(
    ended(3, 40),
    41,
    "write Running NodeLost; end NodeLost 3; write Failed NodeLost 3; notify NodeLost; ask; again in 1s"
)]
fn a_node_is_silent_whose_agent_was_about_to_end_the_job(
    #[case] container: ContainerState,
    #[case] since: i64,
    #[case] expected: &str,
) {
    let scene = acquired(50).pod(pod(container, running())).silent_since(since).with_session();
    assert_eq!(scene.decides(), expected);
}

/// Whoever cancelled it has an agent in mind that cannot hear of it any more.
#[rstest]
#[case::first(
    acquired(50).word(Canceling, 50),
    "write Running PodDeleted; end PodDeleted -1; write Canceled Canceled; ask; again in 1s"
)]
#[case::once_the_verdict_is_on_record(
    judged(PodDeleted).word(Canceling, 50).at(51),
    "end PodDeleted -1; write Canceled Canceled; ask; again in 1s"
)]
fn a_cancelled_job_whose_agent_is_lost_has_not_failed(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.with_session().decides(), expected);
}

/// Two rules see to the same pod; the node's silence is the quicker one.
#[test]
fn a_pod_that_the_cluster_takes_from_a_silent_node_is_not_waited_for() {
    let taken = || acquired(50).pod(by_taint(45, pod(running(), running())));
    assert_eq!(taken().decides(), "write Running; ask; again in 5s");
    assert_eq!(taken().with_session().silent_since(35).decides(), SILENT);
}

#[test]
fn a_standalone_job_on_a_silent_node_goes_on() {
    let scene = standalone().running_since(3).pod(pod(running(), running())).silent_since(1).at(50);
    assert_eq!(scene.decides(), "again in 1h");
}

#[rstest]
#[case::of_a_container_that_does_the_work(
    second(oom()),
    "write Running OutOfMemory; end OutOfMemory 137; write Failed OutOfMemory 137; notify OutOfMemory; ask; again in 1s"
)]
#[case::of_the_only_one(
    pod(oom(), running()),
    "write Running OutOfMemory; end OutOfMemory 137; write Failed OutOfMemory 137; notify OutOfMemory; ask; again in 1s"
)]
#[case::of_a_sidecar(
    beside(oom(), pod(running(), running())),
    "write Running; notify OutOfMemory; again in 1h"
)]
#[case::of_a_container_beside(
    PodFacts { beside: vec![container("mine", oom())], ..pod(running(), running()) },
    "write Running; notify OutOfMemory; again in 1h"
)]
fn the_memory_is_too_little(#[case] pod: PodFacts, #[case] expected: &str) {
    assert_eq!(acquired(50).pod(pod.clone()).with_session().decides(), expected);
    let too_old = acquired(21).pod(pod).with_session().decides();
    assert!(!too_old.contains("end ") && too_old.contains("ask"), "the agent may have ended it: {too_old}");
}

/// Its only container was killed for its memory at 20.
fn beside_an_exporter(name: &str, state: ContainerState) -> PodFacts {
    PodFacts { exporters: vec![container(name, state)], ..pod(oom(), running()) }
}

const ENDED: &str = "write Running OutOfMemory; end OutOfMemory 137; write Failed OutOfMemory 137; notify OutOfMemory; ask; again in 1s";

/// Buildkite takes no artifacts of a job that has ended; it hears of the reason meanwhile.
#[rstest]
#[case::which_are_uploaded(
    "artifact-exporter",
    running(),
    25,
    "write Running; notify OutOfMemory; ask; again in 4s"
)]
#[case::which_take_too_long("artifact-exporter", running(), 39, ENDED)]
#[case::which_are_there("artifact-exporter", ended(0, 23), 25, ENDED)]
#[case::none_but_logs("log-exporter", running(), 25, ENDED)]
fn the_memory_is_too_little_and_there_are_artifacts(
    #[case] exporter: &str,
    #[case] state: ContainerState,
    #[case] word: i64,
    #[case] expected: &str,
) {
    let scene = acquired(word).pod(beside_an_exporter(exporter, state)).with_session();
    assert_eq!(scene.decides(), expected);
}

#[test]
fn without_a_session_memory_is_only_warned_of() {
    let scene = acquired(50).pod(second(oom()));
    assert_eq!(scene.decides(), "write Running; notify OutOfMemory; again in 1h");
}

/// The verdict is on record, and what came of the next step is not known: the process ended there, or an answer was lost.
#[rstest]
#[case::nothing_is_known(judged(NodeLost).at(50), "ask; again in 1s")]
#[case::nobody_has_the_job(
    judged(PodDeleted).word(Waiting, 50).at(51),
    "finish PodDeleted -1; write Failed PodDeleted -1; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_pod_is_gone(
    judged(PodDeleted).word(Acquired, 50).at(51),
    "end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_agent_has_it_and_has_ended(
    judged(PodDeleted).pod(pod(running(), ended(1, 40))).word(Acquired, 50).at(51),
    "end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_pod_has_failed(
    judged(PodDeleted).pod(failed(pod(running(), running()))).word(Acquired, 50).at(51),
    "end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_pod_does_not_go(
    judged(PodDeleted).pod(deleting_since(20, pod(running(), running()))).word(Acquired, 150).at(151),
    "end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_node_is_still_silent(
    judged(NodeLost).pod(pod(running(), running())).silent_since(30).word(Acquired, 50).at(51),
    "end NodeLost -1; write Failed NodeLost -1; notify NodeLost; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_node_is_silent_still_as_it_is_counted_anew(
    judged(NodeLost).pod(pod(running(), running())).silent_since(80).word(Acquired, 50).at(51),
    "end NodeLost -1; write Failed NodeLost -1; notify NodeLost; ask; again in 1s"
)]
#[case::its_agent_has_it_and_its_memory_was_too_little(
    judged(OutOfMemory).pod(second(oom())).word(Acquired, 50).at(51),
    "end OutOfMemory -1; write Failed OutOfMemory -1; notify OutOfMemory; ask; again in 1s"
)]
#[case::its_agent_has_it_and_the_node_is_back(
    judged(NodeLost).pod(pod(running(), running())).word(Acquired, 50).at(51),
    "write Running; ask; again in 1s"
)]
#[case::its_agent_was_quicker_than_a_timeout(
    judged(StartTimeout).pod(pod(running(), running())).word(Acquired, 50).at(51),
    "write Running; ask; again in 1s"
)]
#[case::it_was_done_and_the_pod_is_gone(
    judged(PodDeleted).word(Finished, 50).at(51),
    "write Failed PodDeleted -1"
)]
#[case::it_was_done_or_the_agent_was_quicker(
    judged(NodeLost).pod(pod(running(), running())).word(Finished, 50).at(51),
    "again in 30s"
)]
#[case::it_was_done_and_nothing_else_is_heard(
    judged(NodeLost).pod(pod(running(), running())).word(Finished, 50).at(81),
    "write Failed NodeLost -1"
)]
#[case::the_agent_was_quicker(
    judged(NodeLost).pod(pod(ended(3, 40), ended(0, 41))).word(Finished, 50).at(51),
    "write Failed CommandFailed 3"
)]
#[case::the_pod_never_started_and_so_its_agent_was_not_quicker(
    judged(StartTimeout).pod(pod(pending(), running())).word(Finished, 50).at(51),
    "write Failed StartTimeout -1"
)]
#[case::it_was_cancelled(judged(NodeLost).word(Canceled, 50).at(51), "write Canceled Canceled")]
#[case::it_took_too_long(judged(NodeLost).word(TimedOut, 50).at(51), "write TimedOut TimedOut")]
fn a_verdict_is_on_record(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.with_session().decides(), expected);
}

fn judged(code: VerdictCode) -> Scene {
    buildkite().running_since(3).judged(code)
}

/// A job that ran for longer than it may, by this process's word of this second.
fn timed_out(seconds: i64) -> Scene {
    let scene = buildkite().running_since(3).ended(Phase::TimedOut, 40).judged(VerdictCode::TimedOut);
    scene.word(Acquired, seconds).at(seconds + 1).with_session()
}

/// Its agent is stopped with its pod, and says so; one that cannot any more is spoken for.
#[rstest]
#[case::which_goes(timed_out(50).pod(deleting_since(45, pod(running(), running()))), "ask; again in 5s")]
#[case::which_does_not_go_yet(
    timed_out(50).pod(pod(running(), running())),
    "delete nightly u1; ask; again in 5s"
)]
#[case::which_is_gone(timed_out(50), "end TimedOut -1; ask; again in 5s")]
#[case::which_is_gone_and_the_word_is_old(timed_out(44).at(50), "ask; again in 5s")]
#[case::which_is_gone_and_nothing_is_known_yet(
    timed_out(50).unheard(),
    "ask; again in 5s"
)]
#[case::whose_node_is_silent(
    timed_out(50).pod(deleting_since(45, pod(running(), running()))).silent_since(30),
    "end TimedOut -1; ask; again in 5s"
)]
#[case::whose_agent_was_killed(
    timed_out(50).pod(deleting_since(45, pod(running(), ended(137, 46)))),
    "end TimedOut -1; ask; again in 5s"
)]
#[case::whose_agent_has_just_ended(
    timed_out(50).pod(deleting_since(45, pod(ended(143, 49), ended(0, 49)))),
    "ask; again in 5s"
)]
#[case::and_the_agent_has_said_so(timed_out(50).word(Finished, 50), "again in 49s")]
fn a_job_ran_for_too_long_in_a_pod(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[test]
fn what_is_on_record_of_a_job_that_ran_for_too_long_stays() {
    assert_eq!(timed_out(50).decides_when_outrun(), "ask; again in 1s");
}

/// Nobody lived to put on record that there was a pod.
#[rstest]
#[case::and_has_the_job(
    buildkite().word(Acquired, 50).at(51),
    "write Pending PodDeleted; end PodDeleted -1; write Failed PodDeleted -1; notify PodDeleted; ask; again in 1s"
)]
#[case::and_may_have_the_job(buildkite().at(51), "ask; again in 1s")]
#[case::and_does_not_have_the_job(
    buildkite().word(Waiting, 50).at(51),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
fn an_agent_has_registered_and_its_pod_is_gone(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.with_session().decides(), expected);
}

/// As before: whoever cannot speak for the agent leaves the job to it.
#[rstest]
#[case::nothing_is_known(
    judged(PodDeleted).at(50),
    "finish PodDeleted -1; write Failed PodDeleted -1; ask; again in 1s"
)]
#[case::an_agent_has_it(judged(PodDeleted).word(Acquired, 50).at(51), "write Running; ask; again in 1s")]
fn a_verdict_is_on_record_and_nobody_speaks_for_the_agent(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[test]
fn an_agent_that_was_quicker_has_the_last_word() {
    let scene = judged(NodeLost).pod(pod(running(), running())).silent_since(1).word(Acquired, 50).at(51);
    assert_eq!(scene.with_session().decides_when_outrun(), "write Running; ask; again in 1s");
}

/// A job on a node that is about to go, where such jobs wait, and where they are interrupted.
#[rstest]
#[case::runs(
    acquired(50).pod(pod(running(), running())),
    "again in 1h",
    "evict nightly u1; again in 5s"
)]
#[case::starts(
    buildkite().starting(0).pod(pod(pending(), running())).word(Waiting, 5).at(6),
    "ask; again in 1m 25s",
    "evict nightly u1; ask; again in 5s"
)]
#[case::goes_already(
    acquired(50).pod(deleting_since(48, pod(running(), running()))),
    "write Running; ask; again in 5s",
    "write Running; ask; again in 5s"
)]
#[case::has_ended(
    acquired(50).word(Canceled, 50).pod(pod(running(), running())),
    "write Canceled Canceled",
    "write Canceled Canceled"
)]
#[case::is_about_to_end(
    acquired(50).pod(pod(ended(0, 40), running())),
    "ask; again in 5s",
    "ask; again in 5s"
)]
fn a_node_is_about_to_go(#[case] scene: Scene, #[case] waits: &str, #[case] interrupts: &str) {
    assert_eq!(scene.decides_to_interrupt(), waits, "another node's");
    let scene = scene.leaving();
    assert_eq!((scene.decides().as_str(), scene.decides_to_interrupt().as_str()), (waits, interrupts));
}

/// Nobody's agent has a standalone job; its pod goes as in a drain.
#[test]
fn a_standalone_job_on_a_node_that_is_about_to_go_is_interrupted_too() {
    let scene = standalone().running_since(3).pod(pod(running(), running())).leaving().at(50);
    assert_eq!(scene.decides_to_interrupt(), "evict nightly u1; again in 5s");
}
