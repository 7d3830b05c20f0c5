//! A server that takes logs, and behaves as it is told.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Read,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use axum_server::tls_rustls::RustlsConfig;
use serde_json::{Value, json};

/// How a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// With a status, and nothing is kept.
    Status(u16, &'static str),
    /// With a redirection to a page that answers 200 to whoever comes, and nothing is kept.
    Elsewhere(u16),
    /// After a while, if whoever asks waits for it.
    Slow(Duration),
    /// Everything is kept, but the answer breaks off.
    CutOff,
    /// Each line gets one of these statuses in turn; those above 299 are not kept. For Elasticsearch.
    Items(Vec<u16>),
    /// Everything is kept, and each line gets a reason of so many bytes, from now on. For Elasticsearch.
    Verbose(usize),
    /// So many lines are refused, whichever. For OTLP.
    Rejected(u64),
    /// 413 for requests with more lines than this, from now on.
    AtMost(usize),
}

/// What a server has received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Documents by their names, for Elasticsearch.
    pub(crate) documents: BTreeMap<String, Value>,
    /// Bodies of requests that were kept, for others.
    pub(crate) bodies: Vec<Value>,
    /// Where requests went, and with which headers.
    pub(crate) requests: Vec<(String, HeaderMap)>,
    script: VecDeque<Behaviour>,
    at_most: Option<usize>,
    reason: Option<String>,
}

impl Received {
    /// Messages, in the order in which the exporter numbered them. Those that came twice are there twice.
    pub(crate) fn messages(&self) -> Vec<String> {
        let documents = self.documents.values().map(|document| {
            (document["event"]["sequence"].as_u64().unwrap(), document["message"].as_str().unwrap())
        });
        let mut all: Vec<_> = documents.chain(self.bodies.iter().flat_map(lines)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, message)| message.to_owned()).collect()
    }
}

/// The lines of a body, with their numbers.
fn lines(body: &Value) -> Vec<(u64, &str)> {
    let loki = all(&body["streams"]).flat_map(|stream| all(&stream["values"]));
    let loki = loki.map(|value| (&value[2]["sequence"], &value[1]));
    let scopes = all(&body["resourceLogs"]).flat_map(|resource| all(&resource["scopeLogs"]));
    let records = scopes.flat_map(|scope| all(&scope["logRecords"]));
    let otlp =
        records.map(|record| (&record["attributes"][0]["value"]["intValue"], &record["body"]["stringValue"]));
    loki.chain(otlp)
        .map(|(number, text)| (number.as_str().unwrap().parse().unwrap(), text.as_str().unwrap()))
        .collect()
}

/// What a list holds; nothing if it is none.
fn all(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A server.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    /// Certificate and key, if it speaks TLS.
    identity: Option<(String, String)>,
    received: Arc<Mutex<Received>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Receiver {
    /// An address with nobody there, yet.
    pub(crate) fn absent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, identity: None, received: Arc::default(), runtime: None }
    }

    /// A server that speaks TLS with this certificate and key.
    pub(crate) fn secure(certificate: String, key: String) -> Self {
        let mut receiver = Self::absent();
        receiver.identity = Some((certificate, key));
        receiver.resume();
        receiver
    }

    /// A server that behaves as the script says, and well after it.
    pub(crate) fn start(script: impl IntoIterator<Item = Behaviour>) -> Self {
        let mut receiver = Self::absent();
        receiver.received().script = script.into_iter().collect();
        receiver.resume();
        receiver
    }

    /// Serves again at the same address.
    pub(crate) fn resume(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, received) = (self.address, self.received.clone());
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let routes = Router::new().fallback(answer).with_state(received);
        let identity = self.identity.clone();
        runtime.spawn(async move {
            let Some((certificate, key)) = identity else {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                return axum::serve(listener, routes).await.unwrap();
            };
            let tls = RustlsConfig::from_pem(certificate.into(), key.into()).await.unwrap();
            let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
            server.serve(routes.into_make_service()).await.unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// Goes away with all its connections.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It waits, which a thread that runs tests must not.
            std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5))).join().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub(crate) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn answer(
    State(received): State<Arc<Mutex<Received>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path() == "/elsewhere" {
        received.lock().unwrap().requests.push((uri.to_string(), headers));
        return "welcome".into_response();
    }
    assert_eq!(headers["content-encoding"], "gzip");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    let behaviour = {
        let mut received = received.lock().unwrap();
        received.requests.push((uri.to_string(), headers));
        received.script.pop_front()
    };
    match behaviour {
        Some(Behaviour::Status(429, text)) => {
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], text).into_response()
        }
        Some(Behaviour::Status(status, text)) => {
            (StatusCode::from_u16(status).unwrap(), text).into_response()
        }
        Some(Behaviour::Elsewhere(status)) => {
            (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")]).into_response()
        }
        Some(Behaviour::Slow(time)) => {
            tokio::time::sleep(time).await;
            keep(&received, &uri, &text, &[201])
        }
        Some(Behaviour::CutOff) => {
            keep(&received, &uri, &text, &[201]);
            let broken = futures::stream::iter([Ok("{"), Err(std::io::Error::other("cut off"))]);
            Body::from_stream(broken).into_response()
        }
        Some(Behaviour::Rejected(lines)) => {
            keep(&received, &uri, &text, &[201]);
            let partial = json!({ "rejectedLogRecords": lines.to_string(), "errorMessage": "too old" });
            axum::Json(json!({ "partialSuccess": partial })).into_response()
        }
        Some(Behaviour::Items(statuses)) => keep(&received, &uri, &text, &statuses),
        Some(Behaviour::Verbose(bytes)) => {
            received.lock().unwrap().reason = Some("x".repeat(bytes));
            keep(&received, &uri, &text, &[201])
        }
        Some(Behaviour::AtMost(lines)) => {
            received.lock().unwrap().at_most = Some(lines);
            keep(&received, &uri, &text, &[201])
        }
        None => keep(&received, &uri, &text, &[201]),
    }
}

fn keep(received: &Mutex<Received>, uri: &Uri, text: &str, statuses: &[u16]) -> Response {
    let mut received = received.lock().unwrap();
    let too_many = |lines: usize| received.at_most.is_some_and(|most| lines > most);
    if !uri.path().ends_with("/_bulk") {
        let body = serde_json::from_str(text).unwrap();
        if too_many(lines(&body).len()) {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
        received.bodies.push(body);
        return StatusCode::NO_CONTENT.into_response();
    }
    let lines: Vec<&str> = text.lines().collect();
    if too_many(lines.len() / 2) {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    let mut items = Vec::new();
    for (pair, status) in lines.chunks(2).zip(statuses.iter().cycle()) {
        let action: Value = serde_json::from_str(pair[0]).unwrap();
        let name = action["create"]["_id"].as_str().unwrap().to_owned();
        let status = match status {
            200..=299 if received.documents.contains_key(&name) => 409,
            200..=299 => {
                received.documents.insert(name, serde_json::from_str(pair[1]).unwrap());
                *status
            }
            _ => *status,
        };
        let reason = received.reason.as_deref().unwrap_or("because");
        items.push(json!({ "create": { "status": status, "error": { "type": "kind", "reason": reason } } }));
    }
    let errors = received.reason.is_some() || items.iter().any(|item| item["create"]["status"] != 201);
    axum::Json(json!({ "errors": errors, "items": items })).into_response()
}
