//! While the pod cannot be created. The rules: 120 s until there is a node, 30 s of grace.

use bk_plan::recall::Creation;
use rstest::rstest;

use super::scene::{Scene, buildkite, standalone, time};

const QUOTA: &str = "pods \"x\" is forbidden: exceeded quota: ci";
const IN_WORDS: &str = "there is no room for the job's pod: pods \"x\" is forbidden: exceeded quota: ci";
const ACCOUNT: &str = "pods \"x\" is forbidden: error looking up service account ci/x: not found";

fn tried(scene: Scene) -> Scene {
    scene.creation(Creation::Failed { retry_at: time(0) })
}

#[rstest]
#[case::a_field_that_is_wrong(
    buildkite(),
    422,
    "spec.x: Forbidden",
    "write Pending InvalidSpec; finish InvalidSpec -1; write Failed InvalidSpec -1; ask"
)]
#[case::a_webhook_that_refuses(
    buildkite(),
    403,
    "admission webhook \"w\" denied the request: no",
    "write Pending PodRefused; finish PodRefused -1; write Failed PodRefused -1; ask"
)]
#[case::a_namespace_that_goes(
    standalone(),
    403,
    "pods \"x\" is forbidden: unable to create new content in namespace ci because it is being \
     terminated",
    "write Failed PodRefused -1"
)]
#[case::a_quota_that_is_full(
    buildkite(),
    403,
    QUOTA,
    "write Pending (waits for there is no room for the job's pod: pods \"x\" is forbidden: exceeded quota: ci); ask; \
     again in 30s"
)]
#[case::a_quota_that_is_still_full(
    tried(buildkite().not_created_since(1, IN_WORDS).at(61)), 403, QUOTA, "explain there; ask; again in 30s"
)]
#[case::a_standalone_job_whose_quota_is_still_full(
    tried(standalone().announced().not_created_since(1, IN_WORDS).at(61)), 403, QUOTA,
    "write Pending (waits for there is no room for the job's pod: pods \"x\" is forbidden: exceeded quota: ci); \
     again in 30s"
)]
#[case::a_quota_that_is_full_for_too_long(
    tried(buildkite().not_created_since(1, IN_WORDS).at(121)), 403, QUOTA,
    "write Pending QuotaExceeded; finish QuotaExceeded -1; write Failed QuotaExceeded -1; ask"
)]
#[case::an_account_that_may_come(
    buildkite(),
    403,
    ACCOUNT,
    "write Pending (waits for the API server refused the job's pod: pods \"x\" is forbidden: error looking up service \
     account ci/x: not found); ask; again in 1s"
)]
#[case::an_account_that_does_not_come(
    tried(buildkite().not_created_since(1, "x").at(31)), 403, ACCOUNT,
    "write Pending ServiceAccountMissing; finish ServiceAccountMissing -1; write Failed ServiceAccountMissing -1; ask"
)]
#[case::an_api_server_that_stumbles(buildkite(), 500, "etcdserver: request timed out", "ask; again in 1s")]
#[case::an_api_server_that_is_down(
    tried(buildkite().at(2)), 503, "down",
    "write Pending (waits for the API server cannot take the job's pod now: down); ask; again in 1s"
)]
#[case::an_api_server_that_is_down_for_long(
    tried(buildkite().not_created_since(2, "the API server cannot take the job's pod now: down").at(18)), 503, "down",
    "explain the; ask; again in 16s"
)]
#[case::a_standalone_jobs_pod_may_have_been_made(
    standalone().announced(), 504, "timeout", "again in 30s"
)]
#[case::nobody_answers_about_a_standalone_jobs_pod(standalone().announced(), 0, "reset", "again in 30s")]
#[case::a_standalone_jobs_pod_was_certainly_not_made(
    standalone().announced(), 429, "too many requests", "write Pending (waits for the API server cannot take the job's pod now: too many requests); again in 1s"
)]
#[case::a_quota_that_is_counted_anew(
    tried(buildkite().not_created_since(1, "there is no room for the job's pod: exceeded quota: used: pods=9").at(5)), 403,
    "exceeded quota: used: pods=10", "ask; again in 30s"
)]
fn the_api_server_answers(
    #[case] scene: Scene,
    #[case] status: u16,
    #[case] message: &str,
    #[case] expected: &str,
) {
    assert_eq!(scene.decides_when_answered(status, message), expected);
}

#[test]
fn nothing_is_tried_again_before_its_time() {
    let scene = buildkite().creation(Creation::Failed { retry_at: time(40) });
    assert_eq!(scene.clone().at(11).decides(), "ask; again in 29s");
    assert_eq!(scene.at(40).decides(), "create nightly; ask; again in 3s");
}

/// What a standalone job has on record tells later whether its pod may have run.
#[rstest]
#[case::a_refusal_is_certain(403, QUOTA, None)]
#[case::a_timeout_may_have_been_a_yes(504, "timeout", Some("nightly"))]
#[case::no_answer_may_have_been_a_yes(0, "connection reset", Some("nightly"))]
#[case::who_is_sent_away_was_not_served(429, "too many requests", None)]
fn a_pod_that_may_exist_stays_named(#[case] status: u16, #[case] message: &str, #[case] named: Option<&str>) {
    let scene = tried(standalone().announced());
    let blocker = bk_plan::verdicts::not_created(status, message);
    let decision = bk_plan::decide::not_created(&scene.observed(), &crate::fixtures::rules(), &blocker);
    let [bk_plan::decide::Action::WriteStatus(written)] = decision.actions.as_slice() else {
        panic!("{decision:?}");
    };
    assert_eq!(written.pod_name.as_deref(), named);
}
