//! What holds for every endpoint.

use serde_json::Value;

use crate::endpoints::{Caller, Endpoint, Shape, all};
use crate::harness::Answer;
use crate::scene::{Scene, Token, is_refusal};

/// One byte more than the server reads.
const OVERSIZE: usize = 16 * 1024 * 1024 + 1;

fn fits(shape: Shape, answer: &Answer) -> bool {
    match shape {
        Shape::Object(fields) => {
            answer.body.is_object() && fields.iter().all(|field| answer.body.get(field).is_some())
        }
        Shape::Array => answer.body.is_array(),
        Shape::Nothing => answer.body == Value::Null,
    }
}

/// Runs `check` for every endpoint and shows all that do not hold.
async fn for_each(
    endpoints: impl Iterator<Item = Endpoint>,
    check: impl AsyncFn(&Scene, Endpoint) -> Vec<String>,
) {
    let mut wrong = Vec::new();
    for endpoint in endpoints {
        wrong.extend(named(endpoint, check(&Scene::new().await, endpoint).await));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same for calls that are refused: one server is enough, and afterwards it is as before.
async fn for_each_refused(
    endpoints: impl Iterator<Item = Endpoint>,
    check: impl AsyncFn(&Scene, Endpoint) -> Vec<String>,
) {
    let scene = Scene::new().await;
    let mut wrong = Vec::new();
    let before = scene.rig.current().await;
    for endpoint in endpoints {
        wrong.extend(named(endpoint, check(&scene, endpoint).await));
        let after = scene.rig.current().await;
        wrong.extend(named(endpoint, unless(before == after, || format!("it changed something: {after}"))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn named(endpoint: Endpoint, wrong: Vec<String>) -> impl Iterator<Item = String> {
    wrong.into_iter().map(move |what| format!("{} {}: {what}", endpoint.method, endpoint.path))
}

fn unless(holds: bool, what: impl FnOnce() -> String) -> Vec<String> {
    if holds { Vec::new() } else { vec![what()] }
}

#[tokio::test]
async fn a_good_call_is_answered_as_clients_expect() {
    for_each(all(), async |scene, row| {
        let answer = scene.call(row.method, row.path, row.caller.token(), row.body).await;
        unless(answer.status == row.status && fits(row.shape, &answer), || {
            format!("{} instead of {}: {}", answer.status, row.status, answer.body)
        })
    })
    .await;
}

#[tokio::test]
async fn each_token_is_accepted_only_where_it_belongs() {
    for_each_refused(all(), async |scene, row| {
        let mut wrong = Vec::new();
        for token in Token::ALL {
            let Some(expected) = row.caller.refusal(token) else { continue };
            let answer = scene.call(row.method, row.path, token, row.body).await;
            wrong.extend(unless(answer.status == expected && is_refusal(&answer), || {
                format!("{} instead of {expected} for {token:?}: {}", answer.status, answer.body)
            }));
        }
        wrong
    })
    .await;
}

#[tokio::test]
async fn the_agent_of_a_job_may_do_what_the_job_may() {
    let rows = all().filter(|row| matches!(row.caller, Caller::Job | Caller::Build | Caller::Acting));
    for_each(rows, async |scene, row| {
        let answer = scene.call(row.method, row.path, Token::Access, row.body).await;
        unless(answer.status == row.status, || format!("{}: {}", answer.status, answer.body))
    })
    .await;
}

/// The path with each part that names something replaced by a name of nothing.
fn astray(row: &Endpoint) -> Vec<String> {
    let known = ["one", "two", "three", "four", "five", "gate", "build", "agent", "cluster", "queue"]
        .map(|name| format!("{{{name}}}"));
    let mut paths = Vec::new();
    for name in known.iter().filter(|name| row.path.contains(*name)) {
        for nothing in ["{unknown}", "nonsense", "%2E%2E%2F", "..%2f..%2fetc"] {
            paths.push(row.path.replace(name, nothing));
        }
    }
    for (name, nothing) in [
        ("/demo", "/unheard-of"),
        ("/mine/", "/unheard-of/"),
        ("/builds/1", "/builds/99"),
        ("/one%2Ekey/", "/one%2Fkey/"),
        ("/organizations/local/", "/organizations/unheard-of/"),
    ] {
        // The job decides alone, whatever build the path puts it in.
        let by_job = name != "/organizations/local/" && row.route.ends_with("/jobs/{job}");
        if row.path.contains(name) && !by_job {
            paths.push(row.path.replace(name, nothing));
        }
    }
    paths
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    for_each_refused(all(), async |scene, row| {
        let mut wrong = Vec::new();
        for path in astray(&row) {
            // A job may not even ask about others; its agent may, and hears that there is no such thing.
            let token = if row.caller == Caller::Job { Token::Access } else { row.caller.token() };
            let answer = scene.call(row.method, &path, token, row.body).await;
            // To a job every other build is closed, whether it exists or not.
            let closed = row.caller == Caller::Build && path.contains("{unknown}");
            let expected = if closed { 403 } else { 404 };
            wrong.extend(unless(answer.status == expected && is_refusal(&answer), || {
                format!("{path}: {} {}", answer.status, answer.body)
            }));
        }
        wrong
    })
    .await;
}

#[tokio::test]
async fn other_methods_are_refused() {
    for_each_refused(all(), async |scene, row| {
        let answer = scene.call("TRACE", row.path, row.caller.token(), "").await;
        unless(answer.status == 405 && is_refusal(&answer), || format!("{} {}", answer.status, answer.body))
    })
    .await;
}

#[tokio::test]
async fn bodies_must_be_json_and_say_so() {
    for_each_refused(all().filter(|row| !row.body.is_empty()), async |scene, row| {
        let token = row.caller.token();
        let mut wrong = Vec::new();
        for (kind, body, expected) in [
            ("text/plain", row.body, 415),
            ("application/x-www-form-urlencoded", row.body, 415),
            ("application/json", "{", 400),
            ("application/json", "\u{feff}nonsense", 400),
            ("application/json", "\"text\"", 422),
        ] {
            let headers = [("Content-Type", kind)];
            let answer = scene.send(row.method, row.path, token, &headers, body.into()).await;
            wrong.extend(unless(answer.status == expected && is_refusal(&answer), || {
                format!("{} instead of {expected} for {body} as {kind}: {}", answer.status, answer.body)
            }));
        }
        wrong
    })
    .await;
}

#[tokio::test]
async fn bodies_have_a_limit() {
    for_each_refused(all().filter(|row| !row.body.is_empty()), async |scene, row| {
        let headers = [("Content-Type", "application/json")];
        let body = vec![b' '; OVERSIZE];
        let answer = scene.send(row.method, row.path, row.caller.token(), &headers, body).await;
        unless(answer.status == 413 && is_refusal(&answer), || format!("{} {}", answer.status, answer.body))
    })
    .await;
}
