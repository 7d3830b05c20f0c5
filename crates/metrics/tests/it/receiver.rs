//! A server that takes metrics, and behaves as it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    Status(u16),
    /// A redirection to a page that answers 200 to whoever comes.
    Elsewhere(u16),
    /// It is taken, but for so many values. For OTLP.
    Rejected(u64),
    Never,
}

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: String,
    pub(crate) body: String,
    pub(crate) authorization: Option<String>,
}

/// A server.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    calls: Arc<Mutex<Vec<Call>>>,
    script: Arc<Mutex<VecDeque<Behaviour>>>,
    strayed: Arc<AtomicBool>,
}

impl Receiver {
    /// A server that behaves as the script says, and well after it; and its address.
    pub(crate) async fn start(script: impl IntoIterator<Item = Behaviour>) -> (Self, String) {
        let receiver = Self { script: Arc::new(Mutex::new(script.into_iter().collect())), ..Self::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let routes = Router::new().fallback(answer).with_state(receiver.clone());
        tokio::spawn(axum::serve(listener, routes).into_future());
        (receiver, format!("http://{address}"))
    }

    /// Whether somebody followed a redirection.
    pub(crate) fn strayed(&self) -> bool {
        self.strayed.load(Ordering::Relaxed)
    }

    /// What was asked so far and taken.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

async fn answer(
    State(receiver): State<Receiver>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    if uri.path() == "/elsewhere" {
        receiver.strayed.store(true, Ordering::Relaxed);
        return "welcome".into_response();
    }
    let behaviour = receiver.script.lock().unwrap().pop_front();
    match behaviour {
        Some(Behaviour::Status(status)) => {
            (StatusCode::from_u16(status).unwrap(), "not\n like this").into_response()
        }
        Some(Behaviour::Elsewhere(status)) => {
            (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")]).into_response()
        }
        Some(Behaviour::Rejected(values)) => {
            let partial = json!({ "rejectedDataPoints": values.to_string(), "errorMessage": "too old" });
            axum::Json(json!({ "partialSuccess": partial })).into_response()
        }
        Some(Behaviour::Never) => std::future::pending().await,
        None => {
            let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            let call = Call { what: format!("{method} {uri}"), body, authorization };
            receiver.calls.lock().unwrap().push(call);
            ().into_response()
        }
    }
}
