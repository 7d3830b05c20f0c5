//! A server that takes metrics, and behaves as it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    Status(u16),
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
) -> (StatusCode, &'static str) {
    let behaviour = receiver.script.lock().unwrap().pop_front();
    match behaviour {
        Some(Behaviour::Status(status)) => (StatusCode::from_u16(status).unwrap(), "not\n like this"),
        Some(Behaviour::Never) => std::future::pending().await,
        None => {
            let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
            let call = Call { what: format!("{method} {uri}"), body, authorization };
            receiver.calls.lock().unwrap().push(call);
            (StatusCode::OK, "")
        }
    }
}
