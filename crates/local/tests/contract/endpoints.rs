//! The table of all endpoints.

mod rest;

use crate::scene::Token;

/// Who may call an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Whoever registers agents and stacks.
    Registration,
    /// An agent, not its job.
    Agent,
    /// The agent that a job was offered to.
    Pinged,
    /// The job in the path, or the agent that has it.
    Job,
    /// A job of the build in the path or body, or its agent.
    Build,
    /// An agent or its job, about that agent.
    Acting,
    /// A user of the REST API.
    Api,
}

/// What the answer's body is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// A JSON object with at least these fields.
    Object(&'static [&'static str]),
    /// A JSON array.
    Array,
    /// Nothing: clients do not look at it.
    Nothing,
}

/// An endpoint and a call of it that succeeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) method: &'static str,
    /// As the router has it.
    pub(crate) route: &'static str,
    /// A path of this route, in terms of the scene.
    pub(crate) path: &'static str,
    pub(crate) caller: Caller,
    pub(crate) body: &'static str,
    pub(crate) status: u16,
    pub(crate) shape: Shape,
}

use Caller::{Acting, Agent, Api, Build, Job, Pinged, Registration};
use Shape::{Array, Nothing, Object};

const fn row(
    (method, route, path): (&'static str, &'static str, &'static str),
    caller: Caller,
    body: &'static str,
    status: u16,
    shape: Shape,
) -> Endpoint {
    Endpoint { method, route, path, caller, body, status, shape }
}

/// Agents come and go.
const SESSIONS: &[Endpoint] = &[
    row(
        ("POST", "/v3/register", "/v3/register"),
        Registration,
        r#"{"name":"a"}"#,
        200,
        Object(&["id", "name", "access_token", "ping_interval", "job_status_interval", "heartbeat_interval"]),
    ),
    row(("POST", "/v3/connect", "/v3/connect"), Agent, "", 200, Object(&[])),
    row(("POST", "/v3/disconnect", "/v3/disconnect"), Agent, "", 200, Object(&[])),
    row(("GET", "/v3/ping", "/v3/ping"), Agent, "", 200, Object(&[])),
    row(
        ("POST", "/v3/heartbeat", "/v3/heartbeat"),
        Agent,
        r#"{"sent_at":"2026-01-01T00:00:00Z"}"#,
        200,
        Object(&[]),
    ),
    row(("POST", "/v3/stop", "/v3/stop"), Acting, r#"{"force":false}"#, 200, Object(&[])),
    row(("POST", "/v3/pause", "/v3/pause"), Acting, r#"{"note":"x"}"#, 200, Object(&[])),
    row(("POST", "/v3/resume", "/v3/resume"), Acting, "", 200, Object(&[])),
];

/// The life of a job.
const JOBS: &[Endpoint] = &[
    row(
        ("PUT", "/v3/jobs/{job}/acquire", "/v3/jobs/{three}/acquire"),
        Agent,
        "",
        200,
        Object(&["id", "env", "token", "chunks_max_size_bytes"]),
    ),
    row(
        ("PUT", "/v3/jobs/{job}/accept", "/v3/jobs/{five}/accept"),
        Pinged,
        "",
        200,
        Object(&["id", "env", "token", "chunks_max_size_bytes"]),
    ),
    row(
        ("PUT", "/v3/jobs/{job}/start", "/v3/jobs/{one}/start"),
        Job,
        r#"{"started_at":"2026-01-01T00:00:00Z"}"#,
        200,
        Object(&[]),
    ),
    row(("GET", "/v3/jobs/{job}", "/v3/jobs/{one}"), Job, "", 200, Object(&["state"])),
    row(("PUT", "/v3/jobs/{job}", "/v3/jobs/{one}"), Job, r#"{"timeout":"20"}"#, 200, Object(&["id"])),
    row(
        ("PUT", "/v3/jobs/{job}/finish", "/v3/jobs/{one}/finish"),
        Job,
        r#"{"exit_status":"0","chunks_failed_count":0}"#,
        200,
        Object(&[]),
    ),
    row(
        ("PUT", "/v3/jobs/{job}/promise_failure", "/v3/jobs/{one}/promise_failure"),
        Job,
        r#"{"exit_status":1}"#,
        204,
        Nothing,
    ),
    row(
        ("POST", "/v3/jobs/{job}/header_times", "/v3/jobs/{one}/header_times"),
        Job,
        r#"{"header_times":{"0":"2026-01-01T00:00:00Z"}}"#,
        200,
        Object(&[]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/oidc/tokens", "/v3/jobs/{one}/oidc/tokens"),
        Job,
        r#"{"audience":"x"}"#,
        200,
        Object(&["token"]),
    ),
];

/// What jobs are given to keep to themselves.
const SECRETS: &[Endpoint] = &[
    row(
        ("GET", "/v3/jobs/{job}/secrets", "/v3/jobs/{one}/secrets?key=NONE"),
        Job,
        "",
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/repository_access_token", "/v3/jobs/{one}/repository_access_token"),
        Job,
        r#"{"repo_url":"https://git.local/demo.git"}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/github_code_access_token", "/v3/jobs/{one}/github_code_access_token"),
        Job,
        r#"{"repo_url":"https://git.local/demo.git"}"#,
        404,
        Object(&["message"]),
    ),
];

/// What jobs leave and find.
const DATA: &[Endpoint] = &[
    row(
        ("POST", "/v3/jobs/{job}/data/set", "/v3/jobs/{one}/data/set"),
        Job,
        r#"{"key":"k","value":"v"}"#,
        200,
        Object(&[]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/data/set-batch", "/v3/jobs/{one}/data/set-batch"),
        Job,
        r#"{"items":[{"key":"k","value":"v"}]}"#,
        200,
        Object(&[]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/data/get", "/v3/jobs/{one}/data/get"),
        Job,
        r#"{"key":"k"}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/data/exists", "/v3/jobs/{one}/data/exists"),
        Job,
        r#"{"key":"k"}"#,
        200,
        Object(&["exists"]),
    ),
    row(("POST", "/v3/jobs/{job}/data/keys", "/v3/jobs/{one}/data/keys"), Job, "", 200, Array),
    row(
        ("POST", "/v3/builds/{build}/data/get", "/v3/builds/{build}/data/get"),
        Build,
        r#"{"key":"k"}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/builds/{build}/data/exists", "/v3/builds/{build}/data/exists"),
        Build,
        r#"{"key":"k"}"#,
        200,
        Object(&["exists"]),
    ),
    row(("POST", "/v3/builds/{build}/data/keys", "/v3/builds/{build}/data/keys"), Build, "", 200, Array),
    row(
        ("POST", "/v3/jobs/{job}/annotations", "/v3/jobs/{one}/annotations"),
        Job,
        r#"{"body":"x","context":"c"}"#,
        200,
        Object(&[]),
    ),
    row(
        ("DELETE", "/v3/jobs/{job}/annotations/{context}", "/v3/jobs/{one}/annotations/none"),
        Job,
        "",
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/pipelines", "/v3/jobs/{one}/pipelines?async=true"),
        Job,
        r#"{"uuid":"{upload}","pipeline":{"steps":[{"command":"y"}]}}"#,
        200,
        Object(&[]),
    ),
    row(
        ("GET", "/v3/jobs/{job}/pipelines/{uuid}", "/v3/jobs/{one}/pipelines/{unknown}"),
        Job,
        "",
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/jobs/{job}/artifacts", "/v3/jobs/{one}/artifacts"),
        Job,
        r#"{"id":"{upload}","upload_destination":"","artifacts":[{"path":"a","absolute_path":"/a","glob_path":"a","file_size":1,"sha1sum":"86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"}]}"#,
        200,
        Object(&["id", "artifact_ids", "upload_instructions"]),
    ),
    row(
        ("PUT", "/v3/jobs/{job}/artifacts", "/v3/jobs/{one}/artifacts"),
        Job,
        r#"{"artifacts":[]}"#,
        200,
        Object(&[]),
    ),
    row(
        (
            "GET",
            "/v3/builds/{build}/artifacts/search",
            "/v3/builds/{build}/artifacts/search?query=*&state=finished",
        ),
        Build,
        "",
        200,
        Array,
    ),
    row(
        ("POST", "/v3/steps/{step}/cancel", "/v3/steps/one%2Ekey/cancel"),
        Build,
        r#"{"build_id":"{build}"}"#,
        200,
        Object(&["uuid"]),
    ),
    row(
        ("POST", "/v3/builds/{build}/cancel", "/v3/builds/{build}/cancel"),
        Build,
        "",
        200,
        Object(&["uuid"]),
    ),
];

/// Steps, and what is kept between builds.
const STEPS: &[Endpoint] = &[
    row(
        ("POST", "/v3/steps/{step}/export", "/v3/steps/one%2Ekey/export"),
        Build,
        r#"{"build_id":"{build}","attribute":"label"}"#,
        200,
        Object(&["output"]),
    ),
    row(
        ("PUT", "/v3/steps/{step}", "/v3/steps/one%2Ekey"),
        Build,
        r#"{"idempotency_uuid":"{upload}","build_id":"{build}","attribute":"label","value":"new"}"#,
        200,
        Object(&[]),
    ),
    row(
        ("GET", "/v3/cache_registries/{registry}", "/v3/cache_registries/~"),
        Acting,
        "",
        200,
        Object(&["uuid", "name", "store"]),
    ),
    row(
        ("POST", "/v3/cache_registries/{registry}/peek", "/v3/cache_registries/~/peek"),
        Acting,
        r#"{"target_paths":["a"],"cache_key":[{"value":"k","mandatory":true}]}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("PUT", "/v3/cache_registries/{registry}/store", "/v3/cache_registries/~/store"),
        Acting,
        r#"{"target_paths":["a"],"cache_key":[{"value":"k","mandatory":true}],"blobs":[{"digest":{"algorithm":"sha256","value":"ab"},"file_size":1,"compression":"zstd"}],"platform":"linux"}"#,
        200,
        Object(&["upload_id"]),
    ),
    row(
        ("PUT", "/v3/cache_registries/{registry}/commit", "/v3/cache_registries/~/commit"),
        Acting,
        r#"{"upload_id":"{unknown}"}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/cache_registries/{registry}/retrieve", "/v3/cache_registries/~/retrieve"),
        Acting,
        r#"{"target_paths":["a"],"cache_key":[{"value":"k","mandatory":true}]}"#,
        404,
        Object(&["message"]),
    ),
    row(
        ("POST", "/v3/cache_registries/{registry}/expire", "/v3/cache_registries/~/expire"),
        Acting,
        r#"{"target_paths":["a"],"cache_key":[{"value":"k","mandatory":true}]}"#,
        200,
        Object(&[]),
    ),
];

/// The Stacks API.
const STACKS: &[Endpoint] = &[
    row(
        ("GET", "/v3/metrics", "/v3/metrics"),
        Registration,
        "",
        200,
        Object(&["agents", "jobs", "organization"]),
    ),
    row(
        ("GET", "/v3/token", "/v3/token"),
        Registration,
        "",
        200,
        Object(&["uuid", "organization_slug", "cluster_uuid", "cluster_name", "token_type"]),
    ),
    row(
        ("POST", "/v3/stacks/register", "/v3/stacks/register"),
        Registration,
        r#"{"key":"new","type":"custom","queue_key":"_default","metadata":{}}"#,
        201,
        Object(&["id", "key", "type", "state", "cluster_queue_key", "organization_uuid", "metadata"]),
    ),
    row(
        ("POST", "/v3/stacks/{key}/deregister", "/v3/stacks/mine/deregister"),
        Registration,
        "",
        204,
        Nothing,
    ),
    row(
        (
            "GET",
            "/v3/stacks/{key}/scheduled-jobs",
            "/v3/stacks/mine/scheduled-jobs?queue_key=default&limit=1",
        ),
        Registration,
        "",
        200,
        Object(&["jobs", "page_info", "cluster_queue"]),
    ),
    row(
        (
            "PUT",
            "/v3/stacks/{key}/scheduled-jobs/batch-reserve",
            "/v3/stacks/mine/scheduled-jobs/batch-reserve",
        ),
        Registration,
        r#"{"job_uuids":["{three}"]}"#,
        200,
        Object(&["reserved", "not_reserved"]),
    ),
    row(
        ("GET", "/v3/stacks/{key}/jobs/{job}", "/v3/stacks/mine/jobs/{three}"),
        Registration,
        "",
        200,
        Object(&["id", "env", "command"]),
    ),
    row(
        ("POST", "/v3/stacks/{key}/jobs/get-states", "/v3/stacks/mine/jobs/get-states"),
        Registration,
        r#"{"job_uuids":["{three}"]}"#,
        200,
        Object(&["states"]),
    ),
    row(
        ("POST", "/v3/stacks/{key}/jobs/{job}/finish", "/v3/stacks/mine/jobs/{three}/finish"),
        Registration,
        r#"{"detail":"no","exit_status":-1}"#,
        200,
        Object(&[]),
    ),
    row(
        ("POST", "/v3/stacks/{key}/notifications", "/v3/stacks/mine/notifications"),
        Registration,
        r#"{"notifications":[{"job_uuid":"{three}","detail":"d"}]}"#,
        200,
        Object(&["errors"]),
    ),
];

/// Faults on demand.
const FAULTS: &[Endpoint] = &[
    row(("GET", "/_faults", "/_faults"), Api, "", 200, Array),
    row(
        ("POST", "/_faults", "/_faults"),
        Api,
        r#"{"path":"/nowhere","action":"close"}"#,
        201,
        Object(&["id"]),
    ),
    row(("DELETE", "/_faults", "/_faults"), Api, "", 200, Object(&[])),
    row(("DELETE", "/_faults/{id}", "/_faults/1"), Api, "", 404, Object(&["message"])),
    row(
        ("POST", "/_faults/queues/{key}/pause", "/_faults/queues/default/pause"),
        Api,
        "",
        200,
        Object(&["key", "paused"]),
    ),
    row(
        ("POST", "/_faults/queues/{key}/resume", "/_faults/queues/default/resume"),
        Api,
        "",
        200,
        Object(&["key", "paused"]),
    ),
    row(("POST", "/_faults/token/rotate", "/_faults/token/rotate"), Api, "", 200, Object(&["token"])),
    row(
        ("POST", "/_faults/agents/{agent}/lose", "/_faults/agents/{agent}/lose"),
        Api,
        "",
        200,
        Object(&["id"]),
    ),
    row(
        ("POST", "/_faults/reservations/expire", "/_faults/reservations/expire"),
        Api,
        "",
        200,
        Object(&["expired"]),
    ),
];

/// Every endpoint that answers JSON to a caller with a token.
pub(crate) fn all() -> impl Iterator<Item = Endpoint> {
    [SESSIONS, JOBS, SECRETS, DATA, STEPS, STACKS, FAULTS].into_iter().flatten().copied().chain(rest::rows())
}

impl Caller {
    /// A token that is accepted.
    pub(crate) fn token(self) -> Token {
        match self {
            Self::Registration => Token::Registration,
            Self::Agent => Token::Access,
            Self::Pinged => Token::Pinged,
            Self::Job | Self::Build | Self::Acting => Token::Job,
            Self::Api => Token::Api,
        }
    }

    /// The status that a token is refused with; none when it is accepted.
    pub(crate) fn refusal(self, token: Token) -> Option<u16> {
        use Token::{Access, Foreign, OtherAccess, OtherJob};
        let agent = matches!(token, Access | OtherAccess | Token::Pinged);
        let job = matches!(token, Token::Job | OtherJob | Foreign);
        match self {
            Self::Registration => (token != Token::Registration).then_some(401),
            Self::Api => (token != Token::Api).then_some(401),
            Self::Acting => (!agent && !job).then_some(401),
            Self::Agent if agent => None,
            Self::Pinged if token == Token::Pinged => None,
            // Another agent's offer: known, but not its own.
            Self::Pinged if agent => Some(422),
            Self::Agent | Self::Pinged => Some(if job { 403 } else { 401 }),
            Self::Job if matches!(token, Token::Job | Access) => None,
            // The agents of the other jobs of the build belong to it as well.
            Self::Build if matches!(token, Token::Job | Access | OtherAccess | OtherJob | Token::Pinged) => {
                None
            }
            Self::Job | Self::Build => Some(if agent || job { 403 } else { 401 }),
        }
    }
}
