//! Calls in order, with the status of each: what clients build their retries and exits on.

use rstest::rstest;

use crate::scene::Token::{self, Absent, Access, Api, Job, Nonsense, OtherAccess, Registration};
use crate::scene::{Scene, is_refusal};

/// Method, path below `/v3/` (or the whole path), token, body, status.
type Call = (&'static str, &'static str, Token, &'static str, u16);

/// Makes the calls one after another.
async fn walk(calls: &[Call]) {
    let scene = Scene::new().await;
    for (number, (method, path, token, body, status)) in calls.iter().enumerate() {
        let path = if path.starts_with('/') { (*path).to_owned() } else { format!("/v3/{path}") };
        let answer = scene.call(method, &path, *token, body).await;
        let line = format!("call {number}: {method} {path} {body} → {} {}", answer.status, answer.body);
        assert_eq!(answer.status.as_u16(), *status, "{line}");
        assert!(answer.status.is_success() || is_refusal(&answer), "{line}");
    }
}

#[rstest]
#[case::register(&[
    ("POST", "register", Nonsense, "{}", 401),
    ("POST", "register", Absent, "{}", 401),
    ("POST", "register", Registration, r#"{"name":"","meta_data":["queue=new"]}"#, 200),
    ("POST", "connect", Access, "", 200),
    ("POST", "disconnect", Access, "", 200),
])]
#[case::acquire(&[
    ("PUT", "jobs/{three}/acquire", OtherAccess, "", 200),
    ("PUT", "jobs/{three}/acquire", OtherAccess, "", 200),
    ("PUT", "jobs/{three}/acquire", Access, "", 422),
    ("PUT", "jobs/{one}/acquire", OtherAccess, "", 422),
    ("PUT", "jobs/{four}/acquire", OtherAccess, "", 422),
    ("PUT", "jobs/{later}/acquire", OtherAccess, "", 423),
    ("PUT", "jobs/{gate}/acquire", OtherAccess, "", 422),
    ("PUT", "jobs/{unknown}/acquire", OtherAccess, "", 404),
    ("PUT", "jobs/{three}/acquire", Job, "", 403),
    ("PUT", "jobs/{three}/acquire", Nonsense, "", 401),
])]
#[case::cancelled_before_start(&[
    ("PUT", "/v2/organizations/local/jobs/{one}/cancel", Api, "", 200),
    ("GET", "jobs/{one}", Job, "", 200),
    ("PUT", "jobs/{one}/start", Job, r#"{"started_at":"2026-01-01T00:00:00Z"}"#, 422),
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"-1","signal_reason":"cancel"}"#, 200),
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"-1"}"#, 422),
    ("PUT", "/v2/organizations/local/jobs/{one}/cancel", Api, "", 422),
])]
#[case::finish(&[
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"many"}"#, 422),
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"3","chunks_failed_count":1}"#, 200),
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"3"}"#, 422),
    ("PUT", "jobs/{one}", Job, r#"{"timeout":"9"}"#, 422),
    ("GET", "ping", Access, "", 200),
])]
#[case::update(&[
    ("PUT", "jobs/{one}", Job, r#"{"timeout":"20"}"#, 200),
    ("PUT", "jobs/{one}", Job, r#"{"timeout":"0"}"#, 422),
    ("PUT", "jobs/{one}", Job, r#"{"timeout":"66"}"#, 422),
    ("PUT", "jobs/{one}", Job, r#"{"colour":"green"}"#, 422),
])]
#[case::promise(&[
    ("PUT", "jobs/{one}/promise_failure", Job, r#"{"exit_status":0}"#, 422),
    ("PUT", "jobs/{one}/promise_failure", Job, r#"{"exit_status":2}"#, 204),
    ("PUT", "jobs/{one}/promise_failure", Job, r#"{"exit_status":2}"#, 204),
    ("PUT", "jobs/{one}/promise_failure", Job, r#"{"exit_status":3}"#, 409),
    ("PUT", "jobs/{two}/promise_failure", Job, r#"{"exit_status":2}"#, 403),
    ("PUT", "jobs/{one}/finish", Job, r#"{"exit_status":"0"}"#, 200),
    ("PUT", "jobs/{one}/promise_failure", Job, r#"{"exit_status":2}"#, 422),
])]
#[case::meta_data(&[
    ("POST", "jobs/{one}/data/get", Job, r#"{"key":"k"}"#, 404),
    ("POST", "jobs/{one}/data/exists", Job, r#"{"key":"k"}"#, 200),
    ("POST", "jobs/{one}/data/set", Job, r#"{"key":"k","value":"v"}"#, 200),
    ("POST", "jobs/{one}/data/get", Job, r#"{"key":"k"}"#, 200),
    ("POST", "jobs/{one}/data/set", Job, r#"{"key":"","value":"v"}"#, 422),
    ("POST", "jobs/{two}/data/set", Job, r#"{"key":"k","value":"v"}"#, 403),
])]
#[case::annotations(&[
    ("POST", "jobs/{one}/annotations", Job, r#"{"body":"x","context":"a.b","style":"loud"}"#, 422),
    ("POST", "jobs/{one}/annotations", Job, r#"{"body":"x","context":"a.b","scope":"world"}"#, 422),
    ("POST", "jobs/{one}/annotations", Job, r#"{"body":"x","context":"a.b"}"#, 200),
    ("DELETE", "jobs/{one}/annotations/a%2Eb?scope=job", Job, "", 404),
    ("DELETE", "jobs/{one}/annotations/a%2Eb?scope=build", Job, "", 200),
    ("DELETE", "jobs/{one}/annotations/a%2Eb", Job, "", 404),
])]
#[case::uploads(&[
    ("POST", "jobs/{one}/pipelines", Job, r#"{"uuid":"{upload}","pipeline":{"steps":[{"command":"y","key":"k"}]}}"#, 200),
    ("POST", "jobs/{one}/pipelines", Job, r#"{"uuid":"{upload}","pipeline":{"steps":[{"command":"y","key":"k"}]}}"#, 200),
    ("GET", "jobs/{one}/pipelines/{upload}", Job, "", 200),
    ("GET", "jobs/{one}/pipelines/{unknown}", Job, "", 404),
    ("POST", "jobs/{one}/pipelines", Job, r#"{"uuid":"{unknown}","pipeline":{"steps":[{"command":"y","key":"k"}]}}"#, 422),
    ("POST", "jobs/{one}/pipelines", Job, r#"{"uuid":"{unknown}","pipeline":{"steps":[{"colour":"y"}]}}"#, 422),
    ("POST", "jobs/{one}/pipelines", Job, r#"{"uuid":"{unknown}","pipeline":7}"#, 422),
    ("POST", "jobs/{two}/pipelines", Job, r#"{"uuid":"{unknown}","pipeline":{"steps":[]}}"#, 403),
])]
#[case::steps(&[
    ("POST", "steps/one%2Ekey/cancel", Job, r#"{"build_id":"{build}"}"#, 200),
    ("POST", "steps/nothing/cancel", Job, r#"{"build_id":"{build}"}"#, 404),
    ("POST", "steps/one%2Ekey/cancel", Job, r#"{"build_id":"{unknown}"}"#, 403),
    ("POST", "steps/one%2Ekey/cancel", Job, r#"{"force":true,"force_grace_period":-1}"#, 422),
])]
#[case::control(&[
    ("POST", "pause", Job, r#"{"note":"n","timeout_in_minutes":5}"#, 200),
    ("POST", "resume", Access, "", 200),
    ("POST", "stop", Job, "", 200),
    ("POST", "pause", Registration, "{}", 401),
])]
#[case::stacks(&[
    ("POST", "stacks/register", Registration, r#"{"key":"mine","type":"custom","queue_key":"default","metadata":{}}"#, 200),
    ("POST", "stacks/register", Registration, r#"{"key":"b","type":"custom","queue_key":"__default__","metadata":{}}"#, 201),
    ("POST", "stacks/register", Registration, r#"{"key":"c","type":"custom","queue_key":"~","metadata":{}}"#, 201),
    ("POST", "stacks/register", Registration, r#"{"key":"d","type":"custom","queue_key":"-","metadata":{}}"#, 201),
    ("POST", "stacks/register", Registration, r#"{"key":"e f","type":"custom","queue_key":"default","metadata":{}}"#, 422),
    ("POST", "stacks/register", Registration, r#"{"key":"g","type":"odd","queue_key":"default","metadata":{}}"#, 422),
    ("GET", "stacks/mine/scheduled-jobs?queue_key=default&limit=0", Registration, "", 400),
    ("GET", "stacks/mine/scheduled-jobs?queue_key=default&limit=1001", Registration, "", 400),
    ("GET", "stacks/mine/scheduled-jobs?queue_key=default&after=nonsense", Registration, "", 400),
    ("GET", "stacks/m%69ne/scheduled-jobs?queue_key=default", Registration, "", 200),
    ("POST", "stacks/mine/deregister", Registration, "", 204),
    ("GET", "stacks/mine/scheduled-jobs?queue_key=default", Registration, "", 404),
])]
#[case::stack_jobs(&[
    ("PUT", "stacks/mine/scheduled-jobs/batch-reserve", Registration, r#"{"job_uuids":["{three}","{one}","{unknown}"]}"#, 200),
    ("PUT", "stacks/mine/scheduled-jobs/batch-reserve", Registration, r#"{"job_uuids":["{three}"],"reservation_expiry_seconds":3601}"#, 422),
    ("GET", "stacks/mine/jobs/{unknown}", Registration, "", 404),
    ("POST", "stacks/mine/jobs/get-states", Registration, r#"{"job_uuids":["{three}","{unknown}"]}"#, 200),
    ("POST", "stacks/mine/jobs/{three}/finish", Registration, r#"{"exit_status":-1}"#, 422),
    ("POST", "stacks/mine/jobs/{one}/finish", Registration, r#"{"detail":"d"}"#, 422),
    ("POST", "stacks/mine/jobs/{unknown}/finish", Registration, r#"{"detail":"d"}"#, 404),
    ("POST", "stacks/mine/jobs/{three}/finish", Registration, r#"{"detail":"d"}"#, 200),
    ("POST", "stacks/mine/jobs/{three}/finish", Registration, r#"{"detail":"d"}"#, 422),
    ("POST", "stacks/mine/notifications", Registration, r#"{"notifications":[{"job_uuid":"{unknown}","detail":"d"},{}]}"#, 200),
])]
#[tokio::test]
async fn each_call_is_answered_with_its_status(#[case] calls: &[Call]) {
    walk(calls).await;
}

#[rstest]
#[case::success("", 3, "0", 3)]
#[case::another_failure("", 3, "4", 4)]
#[case::soft_instead_of_hard("soft_fail: [{exit_status: 9}]", 3, "9", 3)]
#[case::soft_was_promised("soft_fail: [{exit_status: 9}]", 9, "9", 9)]
#[tokio::test]
async fn a_promised_failure_is_the_least_that_a_job_ends_with(
    #[case] soft_fail: &str,
    #[case] promised: i64,
    #[case] reported: &str,
    #[case] recorded: i64,
) {
    use crate::harness::Rig;
    use serde_json::json;
    let rig = Rig::start().await;
    rig.build(&format!("steps:\n  - label: one\n    command: x\n    {soft_fail}\n")).await;
    let id = rig.job_id("one").await;
    let (_, token) = rig.start_job(&id).await;
    let path = format!("jobs/{id}/promise_failure");
    rig.v3(reqwest::Method::PUT, &path, &token, Some(json!({"exit_status": promised}))).await.ok();
    rig.finish_job(&id, &token, reported).await.ok();
    assert_eq!(rig.job("one").await["exit_status"], recorded);
}
