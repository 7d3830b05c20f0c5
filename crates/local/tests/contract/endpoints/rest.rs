//! The REST API.

use super::Caller::Api;
use super::Shape::{Array, Object};
use super::{Endpoint, Shape};

/// Method, route, path; both below the organisation unless they begin with `/v2`.
type Row = (&'static str, &'static str, &'static str, &'static str, u16, Shape);

const ROWS: &[Row] = &[
    ("GET", "/v2/access-token", "/v2/access-token", "", 200, Object(&["uuid", "scopes"])),
    ("GET", "/v2/user", "/v2/user", "", 200, Object(&["id", "name", "email"])),
    ("GET", "/v2/meta", "/v2/meta", "", 200, Object(&[])),
    ("GET", "/v2/organizations", "/v2/organizations", "", 200, Array),
    ("GET", "/v2/builds", "/v2/builds", "", 200, Array),
    ("GET", "/", "", "", 200, Object(&["id", "slug"])),
    ("GET", "/builds", "/builds", "", 200, Array),
    ("GET", "/builds/{id}", "/builds/{build}", "", 200, Object(&["id", "number"])),
    ("GET", "/pipelines", "/pipelines", "", 200, Array),
    (
        "POST",
        "/pipelines",
        "/pipelines",
        r#"{"name":"n","repository":"https://git.local/n.git","configuration":"steps: [wait]"}"#,
        201,
        Object(&["id", "slug"]),
    ),
    ("GET", "/pipelines/{pipeline}", "/pipelines/demo", "", 200, Object(&["id", "slug"])),
    ("PATCH", "/pipelines/{pipeline}", "/pipelines/demo", r#"{"name":"Demo"}"#, 200, Object(&["id", "slug"])),
    ("PUT", "/pipelines/{pipeline}", "/pipelines/demo", r#"{"name":"Demo"}"#, 200, Object(&["id", "slug"])),
    ("GET", "/pipelines/{pipeline}/builds", "/pipelines/demo/builds", "", 200, Array),
    (
        "POST",
        "/pipelines/{pipeline}/builds",
        "/pipelines/demo/builds",
        r#"{"message":"m"}"#,
        201,
        Object(&["id", "number", "state", "jobs"]),
    ),
    (
        "GET",
        "/pipelines/{pipeline}/builds/{number}",
        "/pipelines/demo/builds/1",
        "",
        200,
        Object(&["id", "number", "state", "jobs", "meta_data"]),
    ),
    (
        "PUT",
        "/pipelines/{pipeline}/builds/{number}/cancel",
        "/pipelines/demo/builds/1/cancel",
        "",
        200,
        Object(&["id", "state"]),
    ),
    (
        "PUT",
        "/pipelines/{pipeline}/builds/{number}/rebuild",
        "/pipelines/demo/builds/1/rebuild",
        "",
        201,
        Object(&["id", "number"]),
    ),
    ("GET", "/pipelines/{pipeline}/builds/{number}/jobs", "/pipelines/demo/builds/1/jobs", "", 200, Array),
    (
        "GET",
        "/pipelines/{pipeline}/builds/{number}/jobs/{job}",
        "/pipelines/demo/builds/1/jobs/{one}",
        "",
        200,
        Object(&["id", "state"]),
    ),
    (
        "GET",
        "/pipelines/{pipeline}/builds/{number}/annotations",
        "/pipelines/demo/builds/1/annotations",
        "",
        200,
        Array,
    ),
    (
        "POST",
        "/repositories",
        "/repositories",
        r#"{"path":"/nowhere/at/all","commit":"x"}"#,
        422,
        Object(&["message"]),
    ),
    ("GET", "/jobs/{job}", "/jobs/{one}", "", 200, Object(&["id", "state"])),
    ("GET", "/jobs/{job}/log", "/jobs/{one}/log", "", 200, Object(&["content"])),
    ("GET", "/jobs/{job}/env", "/jobs/{one}/env", "", 200, Object(&["env"])),
    ("PUT", "/jobs/{job}/cancel", "/jobs/{one}/cancel", "", 200, Object(&["id"])),
    ("PUT", "/jobs/{job}/retry", "/jobs/{four}/retry", "", 200, Object(&["id"])),
    ("PUT", "/jobs/{job}/unblock", "/jobs/{gate}/unblock", "", 422, Object(&["message"])),
    ("GET", "/jobs/{job}/artifacts", "/jobs/{one}/artifacts", "", 200, Array),
    ("GET", "/agents", "/agents", "", 200, Array),
    ("GET", "/agents/{agent}", "/agents/{agent}", "", 200, Object(&["id", "name"])),
    ("PUT", "/agents/{agent}/stop", "/agents/{agent}/stop", "", 204, Shape::Nothing),
    ("PUT", "/agents/{agent}/pause", "/agents/{agent}/pause", "", 204, Shape::Nothing),
    ("PUT", "/agents/{agent}/resume", "/agents/{agent}/resume", "", 204, Shape::Nothing),
    ("GET", "/clusters", "/clusters", "", 200, Array),
    ("GET", "/clusters/{cluster}", "/clusters/{cluster}", "", 200, Object(&["id", "name"])),
    ("GET", "/clusters/{cluster}/queues", "/clusters/{cluster}/queues", "", 200, Array),
    (
        "POST",
        "/clusters/{cluster}/queues",
        "/clusters/{cluster}/queues",
        r#"{"key":"fresh"}"#,
        201,
        Object(&["id", "key"]),
    ),
    (
        "GET",
        "/clusters/{cluster}/queues/{queue}",
        "/clusters/{cluster}/queues/{queue}",
        "",
        200,
        Object(&["id", "key"]),
    ),
    (
        "POST",
        "/clusters/{cluster}/queues/{queue}/pause_dispatch",
        "/clusters/{cluster}/queues/{queue}/pause_dispatch",
        "",
        200,
        Object(&["dispatch_paused"]),
    ),
    (
        "POST",
        "/clusters/{cluster}/queues/{queue}/resume_dispatch",
        "/clusters/{cluster}/queues/{queue}/resume_dispatch",
        "",
        200,
        Object(&["dispatch_paused"]),
    ),
];

/// The rows with their whole paths.
pub(super) fn rows() -> impl Iterator<Item = Endpoint> {
    ROWS.iter().map(|(method, route, path, body, status, shape)| Endpoint {
        method,
        route: whole(route, "{org}"),
        path: whole(path, "local"),
        caller: Api,
        body,
        status: *status,
        shape: *shape,
    })
}

/// A path below the organisation. The table lives as long as the test.
fn whole(path: &'static str, organization: &str) -> &'static str {
    if path.starts_with("/v2") {
        return path;
    }
    Box::leak(format!("/v2/organizations/{organization}{path}").into_boxed_str())
}
