//! What holds for every verdict, whatever a pod shows.

use bk_api::verdict::Exit;
use bk_plan::{
    facts::{ContainerFacts, ContainerState, Ended, PodEvent, PodFacts, Told},
    verdicts,
};
use jiff::Timestamp;
use proptest::prelude::*;

const TOKEN: &str = "bkct_0123456789abcdefghijABCDEFGHIJ";

/// Words that Kubernetes uses, and others.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
        "ContainerCreating",
        "OOMKilled",
        "Error",
        "Completed",
        "StartError",
        "Evicted",
        "Preempting",
        "DeadlineExceeded",
        "OutOfcpu",
        "Terminated",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "FailedMount",
        "Pulling",
        "Pulled",
    ];
    prop_oneof![4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

/// Sentences, some of which a secret has got into.
fn sentence() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,60}",
        "\\PC{0,300}".prop_map(|text| format!("{text} {TOKEN}")),
        Just("secret \"x\" not found".to_owned()),
        Just(format!("dial https://me:{TOKEN}@example.com: timeout\n{TOKEN}")),
        Just(format!("The node was low on resource: memory. Container {TOKEN} was using")),
    ]
}

fn time() -> impl Strategy<Value = Option<Timestamp>> {
    prop::option::of(
        (0..1_000_i64).prop_map(|s| Timestamp::from_second(1_800_000_000 + s).expect("in range")),
    )
}

prop_compose! {
    fn told()(reason in word(), message in sentence()) -> Told {
        Told { reason, message }
    }
}

prop_compose! {
    fn ended()(
        exit_status in prop::sample::select(vec![0, 1, 27, 125, 128, 137, 143, 255]),
        reason in word(),
        message in sentence(),
        at in time(),
    ) -> Ended {
        Ended { exit_status, reason, message, at }
    }
}

fn state() -> impl Strategy<Value = ContainerState> {
    prop_oneof![
        told().prop_map(|told| ContainerState::Waiting { reason: told.reason, message: told.message }),
        Just(ContainerState::Running),
        ended().prop_map(|end| ContainerState::Ended(Box::new(end))),
    ]
}

prop_compose! {
    fn container(name: &'static str)(
        sidecar in any::<bool>(),
        state in state(),
        ready in any::<bool>(),
        restarts in 0..6_i32,
        last_end in prop::option::of(ended()),
    ) -> ContainerFacts {
        ContainerFacts { name: name.to_owned(), image: "busybox".to_owned(), sidecar, state, ready, restarts, last_end: last_end.map(Box::new) }
    }
}

prop_compose! {
    fn event()(told in told(), warning in any::<bool>(), at in time()) -> PodEvent {
        PodEvent { reason: told.reason, message: told.message, warning, at }
    }
}

prop_compose! {
    fn any_pod()(
        times in (time(), time(), time()),
        failed in any::<bool>(),
        told in (prop::option::of(told()), prop::option::of(told()), prop::option::of(told())),
        init in prop::collection::vec(container("prepare"), 0..3),
        managed in prop::collection::vec(container("container-0"), 0..3),
        agent in container("agent"),
        beside in prop::collection::vec(container("reporter"), 0..2),
        events in prop::collection::vec(event(), 0..12),
    ) -> PodFacts {
        PodFacts {
            name: "nightly".to_owned(),
            uid: "u1".to_owned(),
            created_at: times.0,
            accepted_at: times.1,
            deleting_since: times.2,
            node: Some("node-1".to_owned()),
            failed,
            given_up: told.0.map(Box::new),
            disrupted: told.1.map(Box::new),
            unscheduled: told.2.map(Box::new),
            init,
            managed,
            agent,
            beside,
            events,
            ..PodFacts::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every combination of facts has a verdict at every turn, or a reason to wait.
    #[test]
    fn every_pod_has_a_verdict(pod in any_pod(), attempts in 1..4_u32) {
        let mut given = vec![
            verdicts::start_timeout(Some(&pod), 900),
            verdicts::not_taken(Some(&pod), attempts),
            verdicts::lost(Some(&pod)),
            verdicts::by_exit_status(&pod).1,
        ];
        given.extend(verdicts::init_failed(&pod));
        given.extend(verdicts::blocker(&pod).map(|blocker| blocker.verdict));
        prop_assert!(pod.all_started() || verdicts::waiting_for(&pod).is_some(), "it waits, and nobody says for what");
        for verdict in given {
            let about = verdict.code.about();
            prop_assert_eq!(verdict.fault, about.fault);
            prop_assert!(!verdict.message.is_empty());
            prop_assert_eq!(verdict.exit_status.is_none(), about.exit == Exit::Buildkites);
            prop_assert!(verdict.evidence.len() <= 8);
            prop_assert!(verdict.evidence.iter().all(|line| line.chars().count() <= 240 && !line.contains('\n')));
            let text = format!("{verdict:?}");
            prop_assert!(!text.contains(TOKEN), "{}", text);
        }
        prop_assert!(!verdicts::waiting_for(&pod).unwrap_or_default().contains(TOKEN));
    }

    /// What the API server says is passed on, without secrets.
    #[test]
    fn every_answer_has_a_verdict(status in 400..600_u16, message in sentence()) {
        let blocker = verdicts::not_created(status, &message);
        prop_assert!(!blocker.verdict.message.contains(TOKEN), "{}", blocker.verdict.message);
    }
}
