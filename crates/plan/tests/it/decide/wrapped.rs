//! Jobs whose pod stands in a `batch/v1` Job.

use bk_api::Phase;
use bk_plan::{
    batch::{BatchFacts, Net, wrap},
    decide::Action,
    facts::PodEvent,
    recall::Creation,
    remote::RemoteState::{Acquired, Canceled, Finished, Waiting},
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    batch::v1::{Job, JobCondition, JobStatus},
    core::v1::{Pod, PodTemplateSpec},
};
use rstest::rstest;

use super::scene::{Scene, batch_job, buildkite, ended, pending, pod, running, scene, standalone, time};

fn suspended() -> BatchFacts {
    BatchFacts { is_suspended: true, ..batch_job() }
}

/// Its controller could not create the pod.
fn refused(message: &str, seconds: i64) -> BatchFacts {
    let event = PodEvent {
        reason: "FailedCreate".to_owned(),
        message: message.to_owned(),
        warning: true,
        at: Some(time(seconds)),
    };
    BatchFacts { events: vec![event], ..batch_job() }
}

fn deleting() -> BatchFacts {
    BatchFacts { is_deleting: true, ..batch_job() }
}

fn failed() -> BatchFacts {
    BatchFacts { failed: Some("BackoffLimitExceeded".to_owned()), ..batch_job() }
}

#[rstest]
#[case::a_new_job(buildkite().in_job(), "create Job nightly; ask; again in 3s")]
#[case::a_new_standalone_job(standalone().in_job(), "write Pending; create Job nightly; again in 3s")]
#[case::its_pod_is_about_to_come(buildkite().batch(batch_job()).at(2), "ask; again in 2s")]
#[case::its_pod_does_not_come(
    buildkite().batch(batch_job()).at(11),
    "write Pending (waits for its Job to get a pod); explain its; ask; again in 1m 50s"
)]
#[case::its_pod_does_not_come_for_too_long(
    buildkite().batch(batch_job()).at(121),
    "write Pending StartTimeout; finish StartTimeout -1; write Failed StartTimeout -1; ask"
)]
#[case::suspended(
    buildkite().batch(suspended()).at(11),
    "write Pending (waits for its Job to be resumed: it is suspended); explain its; ask; again in 5m"
)]
#[case::suspended_for_days(
    buildkite().batch(suspended()).waiting_for("its Job to be resumed: it is suspended").at(500_000),
    "explain its; ask; again in 5m"
)]
#[case::cancelled_while_it_is_suspended(
    buildkite().spawned().batch(suspended()).word(Canceled, 10).at(11),
    "delete the job, Canceled; delete Job nightly j1"
)]
#[case::it_runs(
    buildkite().batch(batch_job()).pod(pod(running(), running())).word(Acquired, 3).at(3),
    "write Running; again in 1h"
)]
#[case::its_pod_starts(
    buildkite().batch(batch_job()).pod(pod(pending(), pending())).word(Waiting, 2).at(2),
    "ask; again in 59s"
)]
#[case::its_agent_died(
    buildkite().starting(0).batch(batch_job()).pod(pod(running(), ended(1, 20))).word(Waiting, 22).at(22),
    "delete Job nightly j1; ask; again in 1s"
)]
#[case::suspended_after_it_ran(
    standalone().running_since(10).batch(suspended()).at(22), "write Failed PodDeleted -1"
)]
#[case::complete_and_its_pod_is_gone(
    buildkite().starting(0).batch(BatchFacts { has_run: true, ..batch_job() }).word(Acquired, 22).at(22),
    "write Failed PodDeleted -1; notify PodDeleted"
)]
#[case::a_quota_that_its_controller_meets(
    buildkite().batch(refused("Error creating: pods \"x\" is forbidden: exceeded quota: ci", 5)).at(6),
    "write Pending (waits for there is no room for the job's pod: Error creating: pods \"x\" is forbidden: exceeded \
     quota: ci); ask; again in 5s"
)]
#[case::a_policy_that_its_controller_meets(
    buildkite().batch(refused("Error creating: admission webhook \"w\" denied the request: no", 5)).at(6),
    "write Pending PodRefused; finish PodRefused -1; write Failed PodRefused -1; ask"
)]
#[case::a_failure_that_passes(
    buildkite().batch(refused("Error creating: Internal error occurred: timeout", 5)).at(6),
    "write Pending (waits for the API server cannot take the job's pod now: Error creating: Internal error occurred: \
     timeout); ask; again in 5s"
)]
#[case::a_failure_of_before(
    buildkite().batch(refused("Error creating: admission webhook \"w\" denied the request: no", 0)).at(2),
    "ask; again in 2s"
)]
#[case::its_job_is_on_its_way_out(buildkite().starting(0).batch(deleting()).at(22), "ask; again in 5m")]
#[case::its_job_is_gone(
    buildkite().in_job().starting(0).word(Waiting, 22).at(23),
    "write Pending #1; create Job nightly-try1; ask; again in 3s"
)]
#[case::its_pod_is_gone_and_nobody_took_the_job(
    buildkite().starting(0).batch(failed()).word(Waiting, 22).at(23),
    "write Starting; delete Job nightly j1; ask; again in 1s"
)]
#[case::its_last_pod_is_gone(
    buildkite().starting(2).batch(failed()).word(Waiting, 22).at(23),
    "write Starting #2 PodDeleted; finish PodDeleted -1; write Failed #2 PodDeleted -1; ask"
)]
#[case::its_pod_is_gone_and_an_agent_had_the_job(
    buildkite().running_since(10).batch(failed()).word(Acquired, 22).at(23),
    "write Failed PodDeleted -1; notify PodDeleted"
)]
#[case::a_standalone_jobs_pod_is_gone(
    standalone().running_since(10).batch(failed()).at(23),
    "write Failed PodDeleted -1"
)]
#[case::passed(
    buildkite().spawned().running_since(10).batch(batch_job()).pod(pod(ended(0, 20), running()))
        .word(Finished, 21).at(21),
    "delete the job, Succeeded; delete Job nightly j1"
)]
#[case::the_job_goes_first(
    buildkite().ended(Phase::Failed, 20).batch(batch_job()).pod(pod(ended(1, 19), running())).at(21),
    "delete Job nightly j1; again in 59s"
)]
fn in_a_job(#[case] scene: Scene, #[case] expected: &str) {
    assert_eq!(scene.decides(), expected);
}

#[test]
fn a_standalone_job_whose_batch_job_may_have_run_is_not_started_again() {
    let mut scene = standalone().in_job();
    scene.job.status.get_or_insert_default().job_name = Some("nightly".to_owned());
    assert_eq!(scene.decides(), "write Failed PodDeleted -1");
    assert_eq!(
        scene.creation(Creation::Failed { retry_at: time(0) }).decides(),
        "create Job nightly; again in 3s"
    );
}

fn rendered() -> Job {
    let decision = buildkite().in_job().decision();
    let job = decision.actions.into_iter().find_map(|action| match action {
        Action::CreateBatchJob(job) => Some(*job),
        _ => None,
    });
    job.expect("a Job is created")
}

#[test]
fn a_job_has_the_pods_template_and_never_a_second_pod() {
    let Some(Action::CreatePod(pod)) = buildkite().decision().actions.into_iter().next() else {
        panic!("a pod is created");
    };
    let job = rendered();
    assert_eq!(job.metadata, pod.metadata);
    let mut spec = job.spec.unwrap();
    let template = std::mem::take(&mut spec.template);
    assert_eq!(template.spec, pod.spec);
    let metadata = template.metadata.unwrap();
    assert_eq!((metadata.labels, metadata.annotations), (pod.metadata.labels, pod.metadata.annotations));
    insta::assert_yaml_snapshot!(spec, @r"
    backoffLimit: 0
    completions: 1
    parallelism: 1
    podReplacementPolicy: Failed
    template: {}
    ttlSecondsAfterFinished: 3660
    ");
}

/// Should the operator be gone by then, Kubernetes ends a Job an hour after it should have ended.
#[test]
fn a_job_with_a_time_limit_has_a_net() {
    let active = |scene: Scene| {
        let actions = scene.decision().actions;
        let job = actions.into_iter().find_map(|action| match action {
            Action::CreateBatchJob(job) => job.spec,
            _ => None,
        });
        job.expect("a Job is created").active_deadline_seconds
    };
    let limited = buildkite().in_job().spec(|spec| spec.timeout = Some("5m".parse().expect("a duration")));
    assert_eq!(active(limited), Some(120 + 120 + 300 + 3_600));
    assert_eq!(active(buildkite().in_job()), None);
}

#[test]
fn facts_of_a_job() {
    let mut job = wrap(Pod::default(), Net { active: Some(SignedDuration::from_secs(7)), ..Net::default() });
    assert_eq!(job.spec.as_ref().unwrap().active_deadline_seconds, Some(7));
    let facts = BatchFacts::of(&job);
    assert!(!facts.is_suspended && !facts.is_deleting && facts.failed.is_none());
    job.spec.as_mut().unwrap().suspend = Some(true);
    job.status = Some(JobStatus {
        conditions: Some(vec![JobCondition {
            type_: "Failed".to_owned(),
            status: "True".to_owned(),
            reason: Some("DeadlineExceeded".to_owned()),
            message: Some("Job was active longer than specified deadline".to_owned()),
            ..JobCondition::default()
        }]),
        ..JobStatus::default()
    });
    let facts = BatchFacts::of(&job);
    assert!(facts.is_suspended);
    assert_eq!(
        facts.failed.as_deref(),
        Some("DeadlineExceeded: Job was active longer than specified deadline")
    );
}

/// The Job around a pod, without its template, which is the pod itself.
#[rstest]
#[case("workload", "workload: Job")]
#[case("timeout", "workload: Job, timeout: 1h30m")]
#[case("job-active-deadline-seconds", "workload: Job, kubernetes: { jobActiveDeadlineSeconds: 600 }")]
fn a_job_around_a_pod(#[case] name: &str, #[case] written: &str) {
    let decision = scene(&format!("spec: {{ command: make, {written} }}")).decision();
    let made = decision.actions.into_iter().find_map(|action| match action {
        Action::CreateBatchJob(job) => Some(*job),
        _ => None,
    });
    let mut spec = made.and_then(|job| job.spec).expect("a Job is made");
    spec.template = PodTemplateSpec::default();
    insta::with_settings!({ description => written, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => "snapshots" }, {
        insta::assert_yaml_snapshot!(format!("batch-{name}"), spec);
    });
}
