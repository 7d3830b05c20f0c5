//! Observed → decided, case by case. The rules: 120 s to start, 30 s for an image, failures stay for 60 s,
//! 3 pods at most.

mod conditions;
mod exporting;
mod ladder;
mod notices;
mod obstacles;
mod properties;
mod reasons;
pub(crate) mod scene;
mod session;
mod taken;
mod warnings;
mod wrapped;

use bk_api::{Phase, VerdictCode};
use bk_plan::{
    decide::{Action, departed},
    facts::PodFacts,
    recall::Creation,
    remote::RemoteState::{self, Acquired, Canceled, Finished, NeverRan, TimedOut, Unknown, Waiting},
};
use rstest::rstest;
use scene::{
    Scene, accepted, because, beside, buildkite, created, deleting, deleting_since, ended, evicted, failed,
    failed_in_init, in_init, pending, pod, preempted, running, scene, standalone, time, told, unscheduled,
    waiting,
};

use crate::fixtures::job;

#[rstest]
#[case::a_new_job(buildkite(), "create nightly; ask; again in 3s")]
#[case::a_new_standalone_job(standalone(), "write Pending; create nightly; again in 3s")]
#[case::a_standalone_job_whose_pod_could_not_be_made(
    standalone().announced().creation(Creation::Failed { retry_at: time(0) }),
    "create nightly; again in 3s"
)]
#[case::a_standalone_job_whose_pod_may_have_run(standalone().announced(), "write Failed PodDeleted -1")]
#[case::a_pod_that_was_made_and_is_gone(
    buildkite().creation(Creation::Done).word(Waiting, 1).at(2),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::a_job_that_has_had_no_pod_for_long(
    buildkite().word(Waiting, 9_999).at(10_000),
    "create nightly; ask; again in 3s"
)]
#[case::a_pod_whose_status_was_never_written_is_adopted(
    buildkite().pod(pod(pending(), pending())).at(2),
    "ask; again in 59s"
)]
#[case::a_start_that_takes_its_time(
    buildkite().pod(pod(pending(), pending())).at(14),
    "ask; again in 47s"
)]
#[case::a_start_that_takes_very_long(
    buildkite().pod(pod(pending(), pending())).at(61),
    "write Starting (waits for container container-0); ask; again in 30s"
)]
#[case::an_attempt_whose_pod_was_never_made(
    buildkite().attempt(1).word(Waiting, 1).at(2),
    "create nightly-try1; ask; again in 3s"
)]
#[case::cancelled_before_it_began(buildkite().word(Canceled, 0), "write Canceled Canceled")]
#[case::expired_before_it_began(buildkite().word(NeverRan, 0), "write Canceled EndedByBuildkite")]
#[case::a_job_that_buildkite_does_not_know(buildkite().word(Unknown, 0), "write Failed InvalidSpec -1")]
#[case::a_job_that_another_agent_has(buildkite().word(Acquired, 0), "write Failed NotAcquired -1; notify NotAcquired")]
#[case::plugins_that_make_no_sense(
    buildkite().unreadable(),
    "write Pending InvalidSpec; finish InvalidSpec -1; write Failed InvalidSpec -1; ask"
)]
#[case::a_spec_that_makes_no_pod(
    scene("spec: { buildkite: { jobUUID: x }, kubernetes: { podSpec: { hostNet: true } } }"),
    "write Pending InvalidSpec; finish InvalidSpec -1; write Failed InvalidSpec -1; ask"
)]
#[case::a_standalone_spec_that_makes_no_pod(
    scene("spec: { command: x, kubernetes: { podSpec: { hostNet: true } } }"),
    "write Failed InvalidSpec -1"
)]
#[case::a_job_that_somebody_deletes(buildkite().pod(pod(running(), running())).deleted(), "")]
fn until_the_pod_exists(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::in_time(buildkite().pod(pod(pending(), pending())).word(Waiting, 9).at(10), "ask; again in 1m 21s")]
#[case::a_pod_that_could_not_be_made_for_long(
    buildkite().pod(created(1_000, unscheduled(pod(pending(), pending())))).word(Waiting, 1_000).at(1_001),
    "ask; again in 9s"
)]
#[case::a_registry_that_is_away_when_a_node_was_found_at_last(
    buildkite().pod(accepted(100, pod(waiting("ErrImagePull", "timeout"), running()))).at(101),
    "write Starting (waits for image busybox of container container-0 cannot be had: ErrImagePull: timeout); explain image; ask; again in 29s"
)]
#[case::a_registry_that_is_away_when_the_init_container_is_done_at_last(
    buildkite().pod(PodFacts {
        init: in_init(ended(0, 70)).init,
        ..pod(waiting("ErrImagePull", "timeout"), running())
    }).at(71),
    "write Starting (waits for image busybox of container container-0 cannot be had: ErrImagePull: timeout); explain image; ask; again in 29s"
)]
#[case::an_image_that_does_not_exist(
    buildkite().pod(pod(waiting("ErrImagePull", "manifest unknown"), running())).at(3),
    "write Starting ImageNotFound; finish ImageNotFound -1; write Failed ImageNotFound -1; ask"
)]
#[case::an_image_for_the_agent_that_does_not_exist(
    buildkite().pod(pod(running(), waiting("InvalidImageName", ""))).at(3),
    "write Starting ImageNameInvalid; finish ImageNameInvalid -1; write Failed ImageNameInvalid -1; ask"
)]
#[case::a_registry_that_is_away(
    buildkite().pod(pod(waiting("ErrImagePull", "timeout"), running())).at(11),
    "write Starting (waits for image busybox of container container-0 cannot be had: ErrImagePull: timeout); explain image; ask; again in 20s"
)]
#[case::the_same_failure_in_other_words(
    buildkite()
        .pod(pod(waiting("ImagePullBackOff", "back-off"), running()))
        .waiting_for("image busybox of container container-0 cannot be had: ErrImagePull: timeout")
        .at(12),
    "explain image; ask; again in 19s"
)]
#[case::a_registry_that_is_away_for_too_long(
    buildkite().pod(pod(waiting("ErrImagePull", "timeout"), running())).at(31),
    "write Starting RegistryUnreachable; finish RegistryUnreachable -1; write Failed RegistryUnreachable -1; ask"
)]
#[case::a_secret_that_does_not_exist(
    buildkite().pod(pod(waiting("CreateContainerConfigError", "secret \"x\" not found"), running())).at(3),
    "write Starting MissingReference; finish MissingReference -1; write Failed MissingReference -1; ask"
)]
#[case::an_init_container_that_fails(
    buildkite().pod(failed_in_init(ended(4, 2))).at(3),
    "write Starting InitFailed; finish InitFailed 4; write Failed InitFailed 4; ask"
)]
#[case::an_init_container_that_fails_before_the_kubelet_has_said_all(
    buildkite().pod(in_init(ended(4, 2))).word(Waiting, 2).at(3),
    "write Starting InitFailed; finish InitFailed 4; write Failed InitFailed 4; ask"
)]
#[case::a_standalone_jobs_init_container_that_fails(
    standalone().pod(failed_in_init(ended(4, 2))).at(3),
    "write Failed InitFailed 4"
)]
#[case::an_init_container_that_fails_while_another_agent_has_the_job(
    buildkite().pod(failed_in_init(ended(4, 2))).word(Acquired, 3).at(3),
    "write Failed AgentLost -1; notify AgentLost"
)]
#[case::an_init_container_that_is_evicted(
    buildkite().pod(evicted(in_init(ended(137, 2)))).word(Waiting, 5).at(5),
    "delete nightly u1; ask; again in 1s"
)]
#[case::an_init_container_that_is_killed_and_the_kubelet_has_not_said_why(
    buildkite().pod(in_init(ended(137, 2))).word(Waiting, 4).at(5), "ask; again in 7s"
)]
#[case::an_init_container_that_is_killed_and_the_kubelet_does_not_say_why(
    buildkite().pod(in_init(ended(137, 2))).word(Waiting, 11).at(12),
    "write Starting InitFailed; finish InitFailed 137; write Failed InitFailed 137; ask"
)]
#[case::an_init_container_that_is_killed_and_the_kubelet_has_said_all(
    buildkite().pod(failed_in_init(ended(137, 2))).word(Waiting, 4).at(5),
    "write Starting InitFailed; finish InitFailed 137; write Failed InitFailed 137; ask"
)]
#[case::an_init_container_that_runs_out_of_memory(
    buildkite().pod(in_init(because("OOMKilled", 137, 2))).word(Waiting, 4).at(5),
    "write Starting OutOfMemory; finish OutOfMemory 137; write Failed OutOfMemory 137; ask"
)]
#[case::an_init_container_that_is_about_to_be_evicted(
    buildkite()
        .pod(PodFacts { disrupted: Some(told("TerminationByKubelet", "").into()), ..in_init(ended(137, 2)) })
        .word(Waiting, 29).at(30),
    "ask; again in 1m 31s"
)]
#[case::an_init_container_that_is_deleted_with_its_pod(
    buildkite().pod(deleting(in_init(ended(143, 2)))).word(Waiting, 5).at(5),
    "ask; again in 1m 27s"
)]
#[case::an_init_container_that_takes_its_time(
    buildkite().pod(in_init(running())).word(Waiting, 9).at(10),
    "ask; again in 1m 51s"
)]
#[case::a_sidecar_that_was_started_again(
    buildkite().pod(beside(ended(1, 2), in_init(pending()))).word(Waiting, 9).at(10),
    "ask; again in 1m 51s"
)]
#[case::a_sidecar_whose_image_does_not_exist(
    buildkite().pod(beside(waiting("ErrImagePull", "not found"), in_init(pending()))).at(3),
    "write Starting ImageNotFound; finish ImageNotFound -1; write Failed ImageNotFound -1; ask"
)]
#[case::no_node(buildkite().pod(unscheduled(pod(pending(), pending()))).at(10), "ask; again in 1s")]
#[case::no_node_for_some_time(
    buildkite().pod(unscheduled(pod(pending(), pending()))).at(11),
    "write Starting (waits for a node (Unschedulable: 0/3 nodes)); explain a; ask; again in 1m 50s"
)]
#[case::no_node_for_reasons_that_are_counted_anew(
    buildkite()
        .waiting_for("a node (Unschedulable: 0/4 nodes)")
        .pod(unscheduled(pod(pending(), pending())))
        .explained("a node (Unschedulable: 0/4 nodes)", 11)
        .at(13),
    "ask; again in 1m 48s"
)]
#[case::no_node_for_too_long(
    buildkite().pod(unscheduled(pod(pending(), pending()))).at(121),
    "write Starting Unschedulable; finish Unschedulable -1; write Failed Unschedulable -1; ask"
)]
#[case::a_standalone_job_that_takes_too_long(
    standalone().pod(unscheduled(pod(pending(), pending()))).at(121),
    "write Failed Unschedulable -1"
)]
#[case::cancelled_while_it_starts(
    buildkite().pod(pod(pending(), pending())).word(Canceled, 9).at(10),
    "write Canceled Canceled"
)]
#[case::deleted_while_it_starts(
    buildkite().pod(deleting(pod(pending(), pending()))).word(Waiting, 9).at(10),
    "ask; again in 1m 21s"
)]
// The cache is behind: the fence says that the agent can have the job only after all containers started.
#[case::an_agent_that_is_quicker_than_the_cache(
    buildkite().pod(pod(waiting("ErrImagePull", "not found"), running())).word(Acquired, 9).at(10),
    "again in 1s"
)]
fn until_all_containers_run(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.starting(0).decides(), expected);
}

#[rstest]
#[case::all_started(
    buildkite().starting(0).pod(pod(running(), running())).word(Waiting, 61).at(62),
    "write Running; ask; again in 59s"
)]
#[case::all_started_just_now(
    buildkite().pod(pod(running(), running())).word(Waiting, 3).at(3), "ask; again in 59s"
)]
#[case::an_agent_has_taken_it(
    buildkite().pod(pod(running(), running())).word(Acquired, 3).at(3), "write Running; again in 1h"
)]
#[case::a_standalone_job_has_started(
    standalone().announced().pod(pod(running(), running())).at(3), "write Running; again in 1h"
)]
#[case::nobody_has_taken_it_yet(
    buildkite().running_since(10).pod(pod(running(), running())).word(Waiting, 19).at(20),
    "ask; again in 1m 41s"
)]
#[case::nobody_takes_it(
    buildkite().running_since(10).pod(pod(running(), running())).word(Waiting, 132).at(133),
    "write Running StartTimeout; finish StartTimeout -1; write Failed StartTimeout -1; ask"
)]
#[case::nobody_took_it_when_we_last_asked(
    buildkite().running_since(10).pod(pod(running(), running())).word(Waiting, 119).at(133),
    "ask; again in 5s"
)]
#[case::an_agent_has_it(
    buildkite().running_since(10).pod(pod(running(), running())).word(Acquired, 11).at(13),
    "again in 1h"
)]
#[case::an_agent_has_it_since_long(
    buildkite().running_since(10).pod(pod(running(), running())).word(Acquired, 11).at(311),
    "again in 1h"
)]
#[case::a_standalone_job_runs(
    standalone().running_since(10).pod(pod(running(), running())).at(5_000),
    "again in 1h"
)]
#[case::after_a_restart_of_the_operator(
    buildkite().running_since(10).pod(pod(running(), running())).at(5_000),
    "ask; again in 5s"
)]
#[case::cancelled_while_it_runs(
    buildkite().running_since(10).pod(pod(running(), running())).word(Canceled, 11).at(12),
    "write Canceled Canceled"
)]
#[case::timed_out(
    buildkite().running_since(10).pod(pod(running(), running())).word(TimedOut, 11).at(12),
    "write TimedOut TimedOut"
)]
fn while_it_runs(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::well(pod(ended(0, 20), running()), Some((Finished, 21)), 21, "write Succeeded Passed 0")]
#[case::badly(pod(ended(3, 20), running()), Some((Finished, 21)), 21, "write Failed CommandFailed 3")]
#[case::out_of_memory(
    pod(because("OOMKilled", 137, 20), running()), Some((Finished, 21)), 21, "write Failed OutOfMemory 137; notify OutOfMemory"
)]
#[case::killed_and_the_kubelet_has_not_said_why(
    pod(ended(137, 20), running()), Some((Finished, 21)), 21, "again in 9s"
)]
#[case::killed_and_the_kubelet_does_not_say_why(
    pod(ended(137, 20), running()), Some((Finished, 21)), 30, "write Failed CommandFailed 137"
)]
#[case::killed_and_the_kubelet_has_said_all(
    failed(pod(ended(137, 20), ended(0, 21))), Some((Finished, 21)), 22, "write Failed CommandFailed 137"
)]
#[case::evicted_while_it_stopped(
    evicted(pod(ended(0, 20), running())), Some((Finished, 21)), 21, "write Failed Evicted -1; notify Evicted"
)]
#[case::evicted_and_killed(
    evicted(pod(ended(137, 20), running())), Some((Finished, 21)), 21, "write Failed Evicted 137; notify Evicted"
)]
#[case::evicted_and_cancelled_by_its_agent(
    evicted(pod(ended(255, 20), running())), Some((Finished, 21)), 21, "write Failed Evicted -1; notify Evicted"
)]
#[case::evicted_after_it_had_failed(
    evicted(pod(ended(3, 20), running())), Some((Finished, 21)), 21, "write Failed CommandFailed 3"
)]
#[case::deleted_and_killed(
    deleting_since(18, pod(ended(143, 20), ended(0, 20))), Some((Finished, 21)), 21, "write Failed PodDeleted 143; notify PodDeleted"
)]
#[case::deleted_and_killed_at_once(
    deleting_since(20, pod(ended(137, 20), ended(0, 20))), Some((Finished, 21)), 21, "write Failed PodDeleted 137; notify PodDeleted"
)]
#[case::deleted_and_stopped_with_a_status_of_its_own(
    deleting_since(18, pod(ended(3, 20), ended(0, 20))), Some((Finished, 21)), 21, "write Failed PodDeleted 3; notify PodDeleted"
)]
#[case::deleted_and_stopped_in_good_order(
    deleting_since(18, pod(ended(0, 20), ended(0, 20))), Some((Finished, 21)), 21, "write Failed PodDeleted -1; notify PodDeleted"
)]
#[case::deleted_after_it_had_failed(
    deleting_since(20, pod(ended(3, 20), running())), Some((Finished, 21)), 21, "write Failed CommandFailed 3"
)]
#[case::deleted_after_it_had_been_killed(
    deleting_since(24, pod(because("OOMKilled", 137, 20), running())), Some((Finished, 25)), 25,
    "write Failed OutOfMemory 137; notify OutOfMemory"
)]
#[case::deleted_after_it_had_passed(
    deleting_since(21, pod(ended(0, 20), running())), Some((Finished, 21)), 21, "write Succeeded Passed 0"
)]
#[case::preempted_and_killed(
    preempted(18, pod(ended(143, 20), ended(0, 20))), Some((Finished, 21)), 21, "write Failed Preempted 143; notify Preempted"
)]
#[case::preempted_after_it_had_passed(
    preempted(21, pod(ended(0, 20), running())), Some((Finished, 21)), 21, "write Succeeded Passed 0"
)]
#[case::evicted_and_then_deleted(
    deleting_since(30, evicted(pod(ended(137, 20), ended(137, 20)))), Some((Finished, 31)), 31,
    "write Failed Evicted 137; notify Evicted"
)]
#[case::the_kubelet_is_late(pod(running(), running()), Some((Finished, 21)), 22, "again in 30s")]
#[case::the_kubelet_is_too_late(pod(running(), running()), Some((Finished, 21)), 51, "write Failed ResultUnknown")]
#[case::the_agent_has_not_reported(pod(ended(0, 20), running()), Some((Acquired, 23)), 23, "ask; again in 1s")]
#[case::the_agent_has_not_reported_for_long(
    pod(ended(0, 20), running()), Some((Acquired, 40)), 40, "ask; again in 5s"
)]
#[case::buildkite_was_asked_too_early(
    pod(ended(0, 20), ended(0, 20)), Some((Acquired, 21)), 22, "ask; again in 750ms"
)]
#[case::nobody_has_asked(pod(ended(0, 20), ended(0, 20)), None, 22, "ask; again in 750ms")]
#[case::buildkite_does_not_answer(pod(ended(0, 20), ended(0, 20)), None, 90, "ask; again in 5s")]
#[case::the_agent_died(
    pod(running(), because("OOMKilled", 137, 20)), Some((Acquired, 22)), 23,
    "write Failed AgentOutOfMemory 137; notify AgentOutOfMemory"
)]
#[case::the_pod_was_evicted(
    evicted(pod(running(), running())), Some((Acquired, 22)), 23, "write Failed Evicted -1; notify Evicted"
)]
#[case::evicted_and_the_word_is_old(
    evicted(pod(running(), running())), Some((Acquired, 12)), 23, "ask; again in 5s"
)]
#[case::the_job_is_gone_from_buildkite(
    pod(ended(0, 20), ended(0, 20)), Some((Unknown, 22)), 22, "write Failed InvalidSpec -1"
)]
#[case::cancelled(pod(ended(143, 20), ended(0, 20)), Some((Canceled, 21)), 21, "write Canceled Canceled")]
fn when_the_pod_has_ended(
    #[case] pod: PodFacts,
    #[case] word: Option<(RemoteState, i64)>,
    #[case] now: i64,
    #[case] expected: &str,
) {
    let mut scene = buildkite().running_since(10).pod(pod).at(now);
    if let Some((state, asked)) = word {
        scene = scene.word(state, asked);
    }
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::its_agent_died(
    buildkite().starting(0).pod(pod(running(), ended(1, 20))).word(Waiting, 22).at(22),
    "delete nightly u1; ask; again in 1s"
)]
#[case::its_containers_died(
    buildkite().starting(0).pod(pod(ended(1, 20), running())).word(Waiting, 22).at(22),
    "delete nightly u1; ask; again in 1s"
)]
#[case::buildkite_was_asked_too_early(
    buildkite().starting(0).pod(pod(running(), ended(1, 20))).word(Waiting, 21).at(22),
    "ask; again in 750ms"
)]
#[case::its_pod_is_on_its_way_out(
    buildkite().starting(0).pod(deleting(pod(running(), ended(1, 20)))).word(Waiting, 22).at(23),
    "ask; again in 1s"
)]
#[case::its_pod_is_gone(
    buildkite().starting(0).word(Waiting, 22).at(23),
    "write Pending #1; create nightly-try1; ask; again in 3s"
)]
#[case::its_pod_is_gone_and_the_word_is_old(
    buildkite().starting(0).word(Waiting, 18).at(23),
    "ask; again in 1s"
)]
#[case::its_pod_is_gone_and_nobody_has_asked(buildkite().starting(0).at(23), "ask; again in 1s")]
#[case::its_last_agent_died(
    buildkite().starting(2).pod(pod(running(), ended(1, 20))).word(Waiting, 22).at(22),
    "write Running #2 AgentNotRegistered; finish AgentNotRegistered -1; write Failed #2 AgentNotRegistered -1; ask"
)]
#[case::its_last_pod_is_gone(
    buildkite().starting(2).word(Waiting, 22).at(22),
    "write Starting #2 PodDeleted; finish PodDeleted -1; write Failed #2 PodDeleted -1; ask"
)]
fn nobody_took_the_job_and(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::an_agent_had_it(Acquired, "write Failed PodDeleted -1; notify PodDeleted")]
#[case::it_had_finished(Finished, "write Failed ResultUnknown")]
#[case::it_was_cancelled(Canceled, "write Canceled Canceled")]
#[case::its_time_was_up(TimedOut, "write TimedOut TimedOut")]
#[case::buildkite_does_not_know_it(Unknown, "write Failed InvalidSpec -1")]
fn the_pod_of_a_running_job_is_gone(#[case] word: RemoteState, #[case] expected: &str) {
    assert_eq!(buildkite().running_since(10).word(word, 22).at(23).decides(), expected);
}

#[rstest]
#[case::buildkite_has_not_heard(
    buildkite().word(Waiting, 22),
    "finish ImageNotFound -1; write Failed ImageNotFound -1; ask; again in 1s"
)]
#[case::nobody_has_asked(
    buildkite(),
    "finish ImageNotFound -1; write Failed ImageNotFound -1; ask; again in 1s"
)]
#[case::buildkite_has_heard(buildkite().word(Finished, 22), "write Failed ImageNotFound -1")]
#[case::the_job_was_cancelled_meanwhile(buildkite().word(Canceled, 22), "write Canceled Canceled")]
#[case::the_jobs_time_was_up_meanwhile(buildkite().word(TimedOut, 22), "write TimedOut TimedOut")]
#[case::the_job_expired_meanwhile(buildkite().word(NeverRan, 22), "write Failed ImageNotFound -1")]
#[case::the_job_is_gone(buildkite().word(Unknown, 22), "write Failed ImageNotFound -1")]
#[case::an_agent_was_quicker(
    buildkite().pod(pod(running(), running())).word(Acquired, 22),
    "write Running; ask; again in 1s"
)]
#[case::an_agent_was_quicker_and_died(
    buildkite().pod(pod(running(), ended(1, 10))).word(Acquired, 22),
    "write Running; ask; again in 1s"
)]
#[case::an_agent_was_quicker_and_failed(
    buildkite().pod(pod(ended(3, 20), ended(0, 21))).word(Finished, 22),
    "write Failed CommandFailed 3"
)]
#[case::the_agent_was_refused(
    buildkite().pod(pod(ended(1, 20), ended(27, 21))).word(Finished, 22),
    "write Failed ImageNotFound -1"
)]
#[case::it_is_not_clear_whether_an_agent_was_quicker(
    buildkite().pod(pod(ended(1, 20), running())).word(Finished, 22), "again in 30s"
)]
#[case::an_agent_was_quicker_and_is_done(
    buildkite().pod(pod(ended(0, 20), ended(0, 21))).word(Finished, 22),
    "write Succeeded Passed 0"
)]
fn a_verdict_is_on_record_and(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.starting(0).judged(VerdictCode::ImageNotFound).at(23).decides(), expected);
}

#[rstest]
#[case::passes(pod(ended(0, 20), running()), "write Succeeded Passed 0")]
#[case::fails(pod(ended(3, 20), running()), "write Failed CommandFailed 3")]
#[case::is_evicted(evicted(pod(running(), running())), "write Failed Evicted -1")]
#[case::is_evicted_and_stops_in_good_order(
    evicted(pod(ended(0, 20), ended(0, 20))),
    "write Failed Evicted -1"
)]
#[case::is_evicted_and_killed(evicted(pod(ended(137, 20), running())), "write Failed Evicted 137")]
#[case::is_killed_and_the_kubelet_has_not_said_why(pod(ended(137, 20), running()), "again in 7s")]
#[case::is_deleted(deleting_since(18, pod(ended(143, 20), ended(143, 20))), "write Failed PodDeleted 143")]
#[case::is_deleted_when_it_is_done(
    deleting_since(21, pod(ended(3, 20), running())),
    "write Failed CommandFailed 3"
)]
#[case::loses_its_agent(pod(running(), ended(1, 18)), "write Failed AgentLost -1")]
#[case::has_an_agent_whose_end_is_told_first(pod(running(), ended(0, 22)), "again in 4s")]
fn a_standalone_job(#[case] pod: PodFacts, #[case] expected: &str) {
    assert_eq!(standalone().running_since(10).pod(pod).at(23).decides(), expected);
}

#[rstest]
#[case(RemoteState::Waiting, Some("finish"))]
#[case(RemoteState::Acquired, Some("notify"))]
#[case(RemoteState::Finished, None)]
#[case(RemoteState::Canceled, None)]
#[case(RemoteState::Unknown, None)]
fn buildkite_hears_of_a_build_job_that_somebody_deleted(
    #[case] state: RemoteState,
    #[case] expected: Option<&str>,
) {
    let told = departed(&job("spec: { command: make }"), state).map(|action| match action {
        Action::FinishRemote(verdict) if verdict.code == VerdictCode::BuildJobDeleted => "finish",
        Action::Notify(verdict) if verdict.code == VerdictCode::BuildJobDeleted => "notify",
        other => panic!("{other:?}"),
    });
    assert_eq!(told, expected);
}

#[test]
fn a_standalone_job_whose_pod_is_gone_has_failed() {
    assert_eq!(standalone().running_since(10).at(23).decides(), "write Failed PodDeleted -1");
}

#[rstest]
#[case::the_pod_goes_first(
    buildkite().ended(Phase::Succeeded, 20).pod(pod(ended(0, 19), running())).at(21),
    "delete nightly u1 at once; again in 59s"
)]
#[case::the_pod_is_going(
    buildkite().ended(Phase::Succeeded, 20).pod(deleting(pod(ended(0, 19), running()))).at(30), "again in 50s"
)]
#[case::the_pod_does_not_go(
    buildkite().ended(Phase::Succeeded, 20).pod(deleting(pod(ended(0, 19), running()))).at(900), "delete the job"
)]
#[case::both_go_together(
    buildkite().spawned().ended(Phase::Succeeded, 20).pod(pod(ended(0, 19), running())).at(21),
    "delete the job; delete nightly u1 at once"
)]
#[case::what_buildkite_sent_leaves_no_trace(
    buildkite().spawned().ended(Phase::Succeeded, 20).at(21), "delete the job"
)]
#[case::nor_if_it_was_cancelled(buildkite().spawned().ended(Phase::Canceled, 20).at(21), "delete the job")]
#[case::what_failed_stays(buildkite().spawned().ended(Phase::Failed, 20).at(21), "again in 59s")]
#[case::what_took_too_long_stays(buildkite().spawned().ended(Phase::TimedOut, 20).at(21), "again in 59s")]
#[case::what_was_applied_by_hand_stays(buildkite().ended(Phase::Succeeded, 20).at(21), "again in 59s")]
#[case::but_not_for_ever(standalone().ended(Phase::Failed, 20).at(80), "delete the job")]
#[case::buildkites_word_comes_too_late(
    buildkite().ended(Phase::Failed, 20).word(Canceled, 30).at(31), "again in 49s"
)]
fn after_the_end(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[rstest]
#[case::passed(
    pod(ended(0, 20), running()),
    Finished,
    "delete the job, Succeeded; delete nightly u1 at once"
)]
#[case::passed_and_is_on_its_way_out(
    deleting_since(21, pod(ended(0, 20), running())),
    Finished,
    "delete the job, Succeeded"
)]
#[case::was_cancelled(pod(running(), running()), Canceled, "delete the job, Canceled; delete nightly u1")]
#[case::failed(pod(ended(3, 20), running()), Finished, "write Failed CommandFailed 3")]
fn what_came_from_a_queue_and(#[case] pod: PodFacts, #[case] word: RemoteState, #[case] expected: &str) {
    assert_eq!(buildkite().spawned().running_since(10).pod(pod).word(word, 21).at(21).decides(), expected);
}

#[test]
fn the_pod_of_a_failure_can_be_kept() {
    let ended_at_20 = |managed, agent| buildkite().ended(Phase::Failed, 20).pod(pod(managed, agent)).at(21);
    let scene = ended_at_20(ended(1, 19), ended(0, 20));
    let mut rules = crate::fixtures::rules();
    rules.keep_pod_on_failure = true;
    assert_eq!(bk_plan::decide::decide(&scene.observed(), &rules).actions, []);
    // An agent has a while to leave by itself; a container that runs on is stopped.
    let leaving = ended_at_20(ended(1, 19), running());
    let waits = bk_plan::decide::decide(&leaving.observed(), &rules);
    assert_eq!((waits.actions, waits.look_again), (vec![], Some(jiff::SignedDuration::from_secs(29))));
    for running_on in [leaving.at(50), ended_at_20(running(), running())] {
        let stopped = bk_plan::decide::decide(&running_on.observed(), &rules);
        assert!(matches!(stopped.actions[..], [Action::DeletePod { .. }]), "{stopped:?}");
    }
    let late = bk_plan::decide::decide(&scene.at(80).observed(), &rules);
    assert!(matches!(late.actions[..], [Action::DeleteJob { .. }, Action::DeletePod { .. }]), "{late:?}");
}

#[rstest]
#[case::it_is_read(Phase::Succeeded, 21, "again in 29s")]
#[case::that_takes_too_long(Phase::Succeeded, 51, "delete nightly u1 at once; again in 29s")]
#[case::it_failed(Phase::Failed, 21, "again in 29s")]
#[case::it_was_stopped(Phase::TimedOut, 21, "delete nightly u1 at once; again in 59s")]
fn the_pod_of_a_job_whose_log_somebody_reads(#[case] phase: Phase, #[case] now: i64, #[case] expected: &str) {
    let mut scene = standalone().ended(phase, 20).pod(pod(ended(0, 19), ended(0, 20))).at(now);
    let followed = (bk_api::names::ANNOTATION_FOLLOWED.to_owned(), "true".to_owned());
    scene.job.metadata.annotations = Some([followed].into());
    assert_eq!(scene.decides(), expected);
}
