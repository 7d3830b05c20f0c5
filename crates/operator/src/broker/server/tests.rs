use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use bk_api::config::TOKEN_KEY;
use bk_buildkite::{Credentials, TokenKind};
use bk_plan::broker::{Key, ticket::KEY_BYTES};
use rstest::rstest;
use tokio::{runtime::Handle, sync::Notify};
use tower::ServiceExt;

use super::*;
use crate::api_server::{ApiServer, Call, takes_secrets};

const JOB: &str = "0198f0a0-0000-7000-8000-000000000001";
const SEAL: [u8; KEY_BYTES] = [7; KEY_BYTES];

fn ticket() -> Ticket {
    Ticket { job_uuid: JOB.to_owned(), uid: "b".to_owned(), attempt: 0, build_job: names::build_job(JOB) }
}

/// The pod of the ticket, before the kubelet has told where it is.
fn pod() -> Value {
    let agent = json!({ "name": "agent", "env": [
        { "name": "BUILDKITE_AGENT_NAME", "value": "nightly" },
        { "name": "BUILDKITE_AGENT_TAGS", "value": "queue=default" },
        { "name": TOKEN_KEY, "value": ticket().sealed(&Key::new(&SEAL).unwrap()) },
    ] });
    json!({
        "metadata": {
            "name": names::build_job(JOB), "uid": "p",
        },
        "spec": { "containers": [agent] },
    })
}

/// An API server with the pod, and with Secrets that are written.
async fn api_server() -> ApiServer {
    ApiServer::start(
        |call, before| {
            if call.path.contains("/pods/") { (200, pod()) } else { takes_secrets(call, before) }
        },
    )
    .await
}

fn desk(api_server: &ApiServer, buildkite: &ApiServer) -> Arc<Desk> {
    let credentials = Credentials::new(TokenKind::Agent, &"secret".into()).unwrap();
    let registrar = Registrar::new(&buildkite.url, credentials, "test").unwrap();
    let terms =
        Terms { namespace: "ci".to_owned(), registrar, proof: RegistrationProof::Address, is_used: true };
    let identity = Identity {
        certificate: String::new(),
        key: String::new(),
        authority: String::new(),
        ticket_key: Key::new(&SEAL).unwrap(),
    };
    Arc::new(Desk {
        cluster: api_server.cluster.clone(),
        terms: watch::channel(Some(Arc::new(terms))).1,
        identity: watch::channel(Some(identity)).1,
        sessions: Sessions::start(&api_server.cluster, "broker"),
        metrics: Metrics::default(),
        room: room(),
        turns: Turns::new(Duration::ZERO),
        visitors: Visitors::default(),
    })
}

/// An agent that shows its ticket.
async fn registers(desk: &Arc<Desk>) -> Result<Value, Failure> {
    let token = format!("Token {}", ticket().sealed(&Key::new(&SEAL).unwrap()));
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&token).unwrap())]);
    let permit = desk.room.clone().try_acquire_owned().unwrap();
    let shown = read(desk, &headers)?;
    register(desk, IpAddr::from([127, 0, 0, 1]), &shown, Bytes::from_static(b"{}"), permit).await
}

/// Waits until no registration is under way, and the one-time token has its turn again.
async fn over(desk: &Desk) {
    let over = async {
        drop(desk.room.acquire_many(u32::try_from(AT_ONCE).unwrap()).await.unwrap());
        while desk.turns.take(&ticket()).is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), over).await.expect("it comes to an end");
}

/// Something that happens when the test says so, in a server whose answers are not asynchronous.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    open: Arc<Notify>,
}

impl Gate {
    /// Waits in front of it. The runtime hears that this thread does nothing else meanwhile: it may be the one that waits for all others' events.
    fn pass(&self) {
        self.reached.notify_one();
        tokio::task::block_in_place(|| Handle::current().block_on(self.open.notified()));
    }
}

/// An agent that has gone away meanwhile, or was told to come again, must find neither its token used nor another agent in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_session_that_nobody_waits_for_is_taken_back() {
    let gate = Gate::default();
    let registers_at = gate.clone();
    let buildkite = ApiServer::start(move |_, before| {
        if before == 0 {
            registers_at.pass();
        }
        (200, json!({ "id": format!("agent-{before}"), "access_token": "access" }))
    })
    .await;
    let api_server = api_server().await;
    let desk = desk(&api_server, &buildkite);
    {
        let agent = registers(&desk);
        tokio::select! {
            answer = agent => panic!("{answer:?} before Buildkite has answered"),
            () = gate.reached.notified() => {}
        }
    }
    assert_eq!(desk.room.available_permits(), AT_ONCE - 1, "it is not over yet");
    gate.open.notify_one();
    over(&desk).await;
    assert!(desk.sessions.get(JOB).is_none());
    let last = buildkite.calls().pop().expect("it was called");
    assert!(last.path.ends_with("/disconnect"), "the agent leaves: {last:?}");

    let answer = registers(&desk).await.expect("its token is as good as before");
    assert_eq!(answer["id"], "agent-2");
    assert!(matches!(registers(&desk).await, Err(Failure::Refused(Refusal::Used))), "and good once");
}

/// What the broker answers to a request.
async fn answered(desk: &Arc<Desk>, method: &str, path: &str, body: &'static str) -> Response {
    let token = format!("Token {}", ticket().sealed(&Key::new(&SEAL).unwrap()));
    let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, token);
    let mut request = request.body(Body::from(body)).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 40_000))));
    routes("/v3", desk.clone()).oneshot(request).await.unwrap()
}

fn registration_of(agent: &'static str) -> impl Fn(&Call, usize) -> (u16, Value) {
    move |_, _| (200, json!({ "id": agent, "access_token": "access" }))
}

/// What the agent says of itself is passed on, but for what the pod says.
#[tokio::test]
async fn an_agent_is_what_its_pod_says_wherever_it_says_otherwise() {
    let (api_server, buildkite) = (api_server().await, ApiServer::start(registration_of("agent")).await);
    let desk = desk(&api_server, &buildkite);
    let said =
        r#"{"name": "thief", "meta_data": ["queue=other"], "ignore_in_dispatches": false, "version": "3"}"#;
    let answer = answered(&desk, "POST", "/v3/register", said).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::CONNECTION], "close");
    let answer: Value =
        serde_json::from_slice(&to_bytes(answer.into_body(), MAX_BODY).await.unwrap()).unwrap();
    assert_eq!(answer["endpoint"], buildkite.url.as_str(), "it goes on there");
    let expected = json!({ "name": "nightly", "meta_data": ["queue=default"], "ignore_in_dispatches": true, "version": "3" });
    assert_eq!(buildkite.calls()[0].body, expected);
}

#[rstest]
#[case::another_path("POST", "/v3/connect", "{}", StatusCode::NOT_FOUND)]
#[case::above_it("POST", "/register", "{}", StatusCode::NOT_FOUND)]
#[case::another_method("GET", "/v3/register", "", StatusCode::NOT_FOUND)]
#[case::too_much("POST", "/v3/register", TOO_MUCH, StatusCode::PAYLOAD_TOO_LARGE)]
#[case::nonsense("POST", "/v3/register", "[]", StatusCode::BAD_REQUEST)]
#[tokio::test]
async fn agents_register_and_do_nothing_else(
    #[case] method: &str,
    #[case] path: &str,
    #[case] body: &'static str,
    #[case] expected: StatusCode,
) {
    let (api_server, buildkite) = (api_server().await, ApiServer::start(registration_of("agent")).await);
    let desk = desk(&api_server, &buildkite);
    assert_eq!(answered(&desk, method, path, body).await.status(), expected);
    assert!(buildkite.calls().is_empty(), "Buildkite hears nothing of it");
}

const TOO_MUCH: &str = match std::str::from_utf8(&[b' '; MAX_BODY + 1]) {
    Ok(spaces) => spaces,
    Err(_) => unreachable!(),
};

#[tokio::test]
async fn agents_that_are_too_many_come_again() {
    let (api_server, buildkite) = (api_server().await, ApiServer::start(registration_of("agent")).await);
    let desk = desk(&api_server, &buildkite);
    let _others = desk.room.clone().acquire_many_owned(u32::try_from(AT_ONCE).unwrap()).await.unwrap();
    let answer = answered(&desk, "POST", "/v3/register", "{}").await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()[header::RETRY_AFTER], "10");
}

/// Whoever stands in for Buildkite may repeat what it was sent.
#[tokio::test]
async fn no_answer_has_the_agent_token_in_it() {
    let repeats = |_: &Call, _: usize| (418, json!({ "message": "Authorization: Token secret is no good" }));
    let (api_server, buildkite) = (api_server().await, ApiServer::start(repeats).await);
    let desk = desk(&api_server, &buildkite);
    let answer = answered(&desk, "POST", "/v3/register", "{}").await;
    assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT);
    let text = String::from_utf8(to_bytes(answer.into_body(), MAX_BODY).await.unwrap().into()).unwrap();
    assert!(text.contains("is no good") && !text.contains("secret"), "{text}");
}
