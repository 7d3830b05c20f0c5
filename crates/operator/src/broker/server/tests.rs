use std::sync::atomic::{AtomicBool, Ordering};

use bk_buildkite::{Credentials, TokenKind};
use bk_plan::broker::{Key, ticket::KEY_BYTES};

use super::*;
use crate::api_server::ApiServer;

const JOB: &str = "0198f0a0-0000-7000-8000-000000000001";
const SEAL: [u8; KEY_BYTES] = [7; KEY_BYTES];

fn ticket() -> Ticket {
    Ticket { job_uuid: JOB.to_owned(), uid: "b".to_owned(), attempt: 0, build_job: names::build_job(JOB) }
}

/// The pod of the ticket, before the kubelet has told where it is.
fn pod() -> Value {
    let agent = json!({ "name": "agent", "env": [{ "name": "BUILDKITE_AGENT_NAME", "value": "nightly" }] });
    json!({
        "metadata": {
            "name": names::build_job(JOB), "uid": "p", "annotations": { names::ANNOTATION_ATTEMPT: "0" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "BuildJob", "name": "nightly", "uid": "b" }],
        },
        "spec": { "containers": [agent] },
    })
}

/// An API server with the pod, and with Secrets that are written.
async fn api_server() -> ApiServer {
    let secret =
        |version: usize| json!({ "metadata": { "name": "s", "resourceVersion": version.to_string() } });
    ApiServer::start(move |call, before| match call.method.as_str() {
        "PATCH" => (200, secret(before + 2)),
        _ if call.path.contains("/pods/") => (200, pod()),
        _ => (200, json!({ "metadata": { "resourceVersion": "1" }, "items": [secret(1)] })),
    })
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
    })
}

/// An agent that shows its ticket.
async fn registers(desk: &Arc<Desk>) -> Result<Value, Failure> {
    let token = format!("Token {}", ticket().sealed(&Key::new(&SEAL).unwrap()));
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&token).unwrap())]);
    let permit = desk.room.clone().try_acquire_owned().unwrap();
    register(desk, IpAddr::from([127, 0, 0, 1]), &headers, Bytes::from_static(b"{}"), permit).await
}

async fn eventually(condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), met).await.expect("it comes to that");
}

/// Something that happens when the test says so, in a server that answers in a thread.
#[derive(Clone, Default)]
struct Gate {
    is_reached: Arc<AtomicBool>,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    fn pass(&self) {
        self.is_reached.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        while !self.is_open.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(1));
        }
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
            () = eventually(|| gate.is_reached.load(Ordering::Relaxed)) => {}
        }
    }
    assert_eq!(desk.room.available_permits(), AT_ONCE - 1, "it is not over yet");
    gate.is_open.store(true, Ordering::Relaxed);
    eventually(|| desk.room.available_permits() == AT_ONCE).await;
    assert!(desk.sessions.get(JOB).is_none());
    let last = buildkite.calls().pop().expect("it was called");
    assert!(last.path.ends_with("/disconnect"), "the agent leaves: {last:?}");

    let answer = registers(&desk).await.expect("its token is as good as before");
    assert_eq!(answer["id"], "agent-2");
    assert!(matches!(registers(&desk).await, Err(Failure::Refused(Refusal::Used))), "and good once");
}
