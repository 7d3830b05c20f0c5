use bk_api::BuildJobSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::*;
use crate::facts::{ContainerFacts, ContainerState};

/// So many milliseconds after some time.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

fn job() -> BuildJob {
    let mut job = BuildJob::new("a", BuildJobSpec::default());
    job.metadata.creation_timestamp = Some(Time(at(1000)));
    job
}

fn acquired(ms: i64) -> Condition {
    Condition {
        type_: ACQUIRED.to_owned(),
        status: "True".to_owned(),
        reason: String::new(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(at(ms)),
    }
}

fn ended(ms: i64) -> BuildJobStatus {
    BuildJobStatus { finished_at: Some(Time(at(ms))), ..BuildJobStatus::default() }
}

/// A pod whose containers have started, as Kubernetes tells it: in whole seconds.
fn pod() -> PodFacts {
    let running = ContainerFacts { state: ContainerState::Running, ..ContainerFacts::default() };
    PodFacts {
        created_at: Some(at(1000)),
        accepted_at: Some(at(2000)),
        started_at: Some(at(2000)),
        managed: vec![running.clone()],
        agent: running,
        ..PodFacts::default()
    }
}

fn shown(timeline: &Timeline) -> Vec<(&'static str, i128)> {
    timeline.steps().iter().map(|step| (step.name, step.duration().as_millis())).collect()
}

#[test]
fn a_job_from_a_queue_passes_all_milestones() {
    let mut job = job();
    stamp(&mut job, at(400), at(1300));
    let status = BuildJobStatus { conditions: vec![acquired(3000)], ..ended(7250) };
    let witnessed = Witnessed {
        pod_created: Some(at(1350)),
        placed: Some(at(2100)),
        started: Some(at(2750)),
        acquired: Some(at(3500)),
    };
    let timeline = Timeline::of(&job, &status, Some(&pod()), &witnessed);
    assert_eq!(
        shown(&timeline),
        [
            ("queue", 900),
            ("reserve", 0),
            ("create", 50),
            ("schedule", 750),
            ("start", 650),
            ("acquire", 750),
            ("run", 3750)
        ]
    );
    assert_eq!(timeline.wait(), Some(SignedDuration::from_millis(3100)));
    assert_eq!(timeline.begin(), Some(at(400)));
    let reaping = timeline.reaping(at(8000)).unwrap();
    assert_eq!((reaping.name, reaping.duration()), ("reap", SignedDuration::from_millis(750)));
}

#[test]
fn a_process_that_has_seen_nothing_goes_by_the_record() {
    let timeline = Timeline::of(&job(), &ended(7250), Some(&pod()), &Witnessed::default());
    assert_eq!(shown(&timeline), [("create", 0), ("schedule", 1000), ("start", 0), ("run", 5250)]);
    assert_eq!(timeline.wait(), None, "nobody knows when it began to wait");
    let late = Witnessed { started: Some(at(6000)), ..Witnessed::default() };
    let timeline = Timeline::of(&job(), &ended(7250), Some(&pod()), &late);
    assert_eq!(timeline.at(Milestone::Started), Some(at(2000)), "what was seen late is no better");
}

#[test]
fn a_job_that_never_ran_has_failed_on_the_way() {
    let timeline = Timeline::of(&job(), &ended(4000), None, &Witnessed::default());
    assert_eq!(shown(&timeline), [("fail", 3000)]);
    let unstarted =
        PodFacts { started_at: Some(at(2000)), managed: vec![ContainerFacts::default()], ..pod() };
    let timeline = Timeline::of(&job(), &ended(4000), Some(&unstarted), &Witnessed::default());
    assert_eq!(shown(&timeline), [("create", 0), ("schedule", 1000), ("fail", 2000)], "one container waits");
}

#[test]
fn clocks_that_differ_do_not_turn_time_back() {
    let mut job = job();
    stamp(&mut job, at(9000), at(1300));
    let timeline = Timeline::of(&job, &ended(4000), None, &Witnessed::default());
    assert_eq!(shown(&timeline), [("queue", 0), ("reserve", 0), ("fail", 0)]);
    assert_eq!(timeline.reaping(at(4000)).map(|step| step.duration()), Some(SignedDuration::ZERO));
}

#[test]
fn what_is_not_known_is_not_on_record() {
    let mut job = job();
    stamp(&mut job, Timestamp::UNIX_EPOCH, at(1300));
    let annotations = job.metadata.annotations.unwrap();
    assert_eq!(annotations.len(), 1);
    assert_eq!(annotations[names::ANNOTATION_RESERVED_AT], "2027-01-15T08:00:01.300Z");
}
