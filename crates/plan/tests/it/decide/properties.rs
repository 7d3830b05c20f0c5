//! What holds for every decision, whatever is observed.

use bk_api::{Phase, VerdictCode};
use bk_plan::{
    decide::Action,
    facts::{ContainerState, PodFacts},
    remote::{Remote, RemoteState},
    verdicts::memory_exhausted,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;

use super::scene::{
    Scene, because, beside, buildkite, container, deleting, ended, evicted, failed_in_init, pending, pod,
    running, seconds, standalone, unscheduled, verdict, waiting,
};
use crate::{decisions, fixtures::rules};

fn container_state() -> impl Strategy<Value = ContainerState> {
    prop_oneof![
        Just(pending()),
        Just(waiting("ErrImagePull", "manifest unknown")),
        Just(waiting("ImagePullBackOff", "timeout")),
        Just(waiting("CreateContainerConfigError", "secret not found")),
        Just(running()),
        Just(running()),
        Just(running()),
        (prop::sample::select(vec![0, 3, 143]), 0..400_i64).prop_map(|(exit, at)| ended(exit, at)),
        (0..400_i64).prop_map(|at| because("OOMKilled", 137, at)),
    ]
}

fn any_pod() -> impl Strategy<Value = PodFacts> {
    let change = prop_oneof![
        4 => Just((|pod| pod) as fn(PodFacts) -> PodFacts),
        1 => Just(deleting as fn(PodFacts) -> PodFacts),
        1 => Just(evicted as fn(PodFacts) -> PodFacts),
        1 => Just(unscheduled as fn(PodFacts) -> PodFacts),
        1 => Just((|_| failed_in_init(ended(1, 2))) as fn(PodFacts) -> PodFacts),
        1 => Just((|pod| beside(ended(1, 2), pod)) as fn(PodFacts) -> PodFacts),
    ];
    (container_state(), prop::option::of(container_state()), container_state(), change).prop_map(
        |(first, second, agent, change)| {
            let mut pod = pod(first, agent);
            pod.managed.extend(second.map(|state| container("container-1", state)));
            change(pod)
        },
    )
}

fn any_word() -> impl Strategy<Value = RemoteState> {
    prop::sample::select(vec![
        RemoteState::Waiting,
        RemoteState::Acquired,
        RemoteState::Finished,
        RemoteState::Canceled,
        RemoteState::TimedOut,
        RemoteState::NeverRan,
        RemoteState::Unknown,
    ])
}

fn any_phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(Phase::ALL.to_vec())
}

prop_compose! {
    fn any_scene()(
        is_buildkite in prop::bool::weighted(0.8),
        phase in any_phase(),
        attempt in 0..3_u32,
        named in any::<bool>(),
        judged in prop::bool::weighted(0.2),
        pod in prop::option::of(any_pod()),
        word in prop::option::of((any_word(), 0..400_i64)),
        started in 0..200_i64,
        spawned in any::<bool>(),
        has_session in any::<bool>(),
        silent in prop::option::weighted(0.2, 0..400_i64),
        leaving in prop::bool::weighted(0.2),
        now in 0..800_i64,
    ) -> Scene {
        let mut scene = if is_buildkite { buildkite() } else { standalone() }.at(now);
        scene = match phase {
            Phase::Pending => scene.attempt(attempt),
            Phase::Starting => scene.starting(attempt),
            Phase::Running => scene.running_since(started.min(now)),
            _ => scene.ended(phase, started.min(now)),
        };
        if !named && !phase.is_terminal() && let Some(status) = &mut scene.job.status {
            status.pod_name = None;
        }
        if judged && !phase.is_terminal() && is_buildkite && let Some(status) = &mut scene.job.status {
            status.verdict = Some(verdict(VerdictCode::ImageNotFound));
        }
        if let Some(pod) = pod {
            scene = scene.pod(pod);
        }
        if let Some((state, asked)) = word.filter(|_| is_buildkite) {
            scene = scene.word(state, asked.min(now));
        }
        if has_session && is_buildkite {
            scene = scene.with_session();
        }
        if let Some(since) = silent {
            scene = scene.silent_since(since.min(now));
        }
        if leaving {
            scene = scene.leaving();
        }
        if spawned { scene.spawned() } else { scene }
    }
}

/// The last status that is written.
fn last_written(scene: &Scene) -> Option<bk_api::BuildJobStatus> {
    scene.decision().actions.into_iter().rev().find_map(|action| match action {
        Action::WriteStatus(status) => Some(*status),
        Action::DeleteJob { unrecorded } => unrecorded.map(|status| *status),
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// No write after the end, no lower attempt, no lost verdict, no finish of a job that somebody has, no
    /// wait without an end: see the simulator's list, which is checked there in every round as well.
    #[test]
    fn no_decision_breaks_a_rule(scene in any_scene()) {
        prop_assert_eq!(decisions::of_decision(&scene.observed(), &scene.decision()), None);
    }

    #[test]
    fn decisions_depend_on_nothing_else(scene in any_scene()) {
        prop_assert_eq!(scene.decision(), scene.clone().decision());
    }

    #[test]
    fn the_end_is_for_good(scene in any_scene()) {
        if !scene.job.is_terminal() {
            return Ok(());
        }
        let writes = scene.decision().actions.into_iter().any(|action| {
            let clears_away = matches!(action, Action::DeletePod { .. } | Action::DeleteJob { unrecorded: None });
            !clears_away && !matches!(action, Action::EndForAgent(_))
        });
        prop_assert!(!writes);
    }

    #[test]
    fn every_end_has_a_verdict_and_a_time(scene in any_scene()) {
        if let Some(status) = last_written(&scene).filter(|status| status.phase.is_terminal()) {
            prop_assert!(status.verdict.is_some() && status.finished_at.is_some());
            prop_assert_eq!(status.verdict.and_then(|verdict| verdict.exit_status), status.exit_status);
            prop_assert_eq!(status.waiting_for, None);
        }
    }

    #[test]
    fn success_needs_status_0_from_every_container(scene in any_scene()) {
        if last_written(&scene).is_some_and(|status| status.phase == Phase::Succeeded) {
            let pod = scene.pod.as_ref().expect("a pod has passed");
            prop_assert!(pod.managed.iter().all(|container| container.exit_status() == Some(0)));
            prop_assert_eq!(&pod.given_up, &None);
        }
    }

    #[test]
    fn what_buildkite_cancelled_is_not_failed_by_us(scene in any_scene()) {
        if scene.job.is_terminal() || scene.job.spec.buildkite.is_none() {
            return Ok(());
        }
        let scene = scene.word(RemoteState::Canceled, 0);
        prop_assert_eq!(last_written(&scene).map(|status| status.phase), Some(Phase::Canceled));
    }

    /// Buildkite hears nothing that is not on record here, so that a crash in between loses nothing.
    #[test]
    fn buildkite_hears_only_what_is_on_record(scene in any_scene()) {
        let mut recorded = scene.job.status_or_default();
        for action in scene.decision().actions {
            match action {
                Action::WriteStatus(status) => recorded = *status,
                Action::Notify(told) if recorded.verdict.is_none() => {
                    let warned = |condition: &Condition| {
                        condition.type_ == "Warned" && condition.message == told.message
                    };
                    prop_assert!(recorded.conditions.iter().any(warned));
                }
                Action::FinishRemote(told) | Action::EndForAgent(told) | Action::Notify(told) => {
                    prop_assert_eq!(Some(told), recorded.verdict.clone());
                }
                _ => {}
            }
        }
    }

    /// What an agent that took the job after all makes of it is what counts, unless it will not make anything of it any more, and somebody
    /// can say so.
    #[test]
    fn an_overtaken_verdict_is_struck_out(scene in any_scene()) {
        if scene.job.is_terminal() || scene.job.spec.buildkite.is_none() {
            return Ok(());
        }
        let mut scene = scene.word(RemoteState::Acquired, 0);
        scene.job.status.get_or_insert_default().verdict = Some(verdict(VerdictCode::StartTimeout));
        let ends = scene.decision().actions.first() == Some(&Action::EndForAgent(verdict(VerdictCode::StartTimeout)));
        if ends {
            prop_assert!(scene.observed().has_session);
            return Ok(());
        }
        let written = last_written(&scene).expect("the verdict is struck out");
        prop_assert_eq!((written.verdict, written.exit_status, written.finished_at), (None, None, None));
    }

    /// Who cannot speak for an agent does not end its job, and who can does so only on a word that is younger than the end of the pod, or
    /// than that of a container which was killed for its memory, or on a fresh one.
    #[test]
    fn no_job_is_ended_for_an_agent_on_an_old_word(scene in any_scene()) {
        let ends = scene.decision().actions.iter().any(|action| matches!(action, Action::EndForAgent(_)));
        if !ends || scene.job.status_or_default().verdict.is_some() {
            return Ok(());
        }
        let remote = scene.remote.expect("Buildkite has said something");
        prop_assert!(scene.observed().has_session && remote.state == RemoteState::Acquired);
        let is_young = |ended: Option<Timestamp>| ended.is_some_and(|ended| remote.asked_at > ended);
        let of_pod = scene.pod.as_ref().and_then(PodFacts::ended_at);
        let of_container = scene.pod.as_ref().and_then(memory_exhausted).and_then(|(_, ended)| ended);
        let is_fresh = scene.now.duration_since(remote.asked_at) < seconds(5);
        prop_assert!(is_fresh || is_young(of_pod) || is_young(of_container), "{}", scene.decides());
    }

    /// When every deadline has passed and Buildkite says that nobody has the job, something is done about it.
    #[test]
    fn nothing_waits_for_ever(scene in any_scene()) {
        let rules = rules();
        if scene.job.is_terminal() || scene.pod.as_ref().is_some_and(PodFacts::is_deleting) {
            return Ok(());
        }
        let late = scene.now.max(super::scene::time(800)) + rules.timeouts.start * 2 + seconds(10);
        let mut scene = scene;
        scene.now = late;
        if scene.job.spec.buildkite.is_some() {
            scene.remote = Some(Remote { state: RemoteState::Waiting, asked_at: late });
        } else if scene.pod.as_ref().is_some_and(PodFacts::all_started) {
            // It may run for as long as it likes.
            return Ok(());
        }
        prop_assert!(!scene.decision().actions.is_empty(), "{}", scene.decides());
    }
}
