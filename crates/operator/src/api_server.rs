//! An API server for tests, which answers as each of them says.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    Json, Router,
    body::Bytes,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::settings::Cluster;

/// A call to the API server.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// A running API server, the calls that it has had, and the way to it.
pub(crate) struct ApiServer {
    pub(crate) cluster: Cluster,
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl ApiServer {
    /// Answers each call with what `answer` makes of it and of how many came before.
    pub(crate) async fn start(answer: impl Fn(&Call, usize) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (record, answer) = (calls.clone(), Arc::new(answer));
        let handle = move |method: Method, uri: Uri, body: Bytes| {
            let call = Call {
                method,
                path: uri.path().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let mut calls = record.lock().unwrap_or_else(PoisonError::into_inner);
            let (status, value) = answer(&call, calls.len());
            calls.push(call);
            drop(calls);
            std::future::ready(reply(status, value))
        };
        tokio::spawn(axum::serve(listener, Router::new().fallback(handle)).into_future());
        let url = format!("http://{address}");
        Self { cluster: cluster(&url), url, calls }
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The way to an API server at an address.
pub(crate) fn cluster(url: &str) -> Cluster {
    bk_ops::http::install_crypto_provider();
    Cluster::new(&kube::Config::new(url.parse().unwrap())).unwrap()
}

/// A refusal as Kubernetes words it.
pub(crate) fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code,
    });
    (code, status)
}

fn reply(status: u16, value: Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), Json(value)).into_response()
}
