//! An API server for tests, which answers as each of them says.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::settings::Cluster;

/// How long a call is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

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
    calls: watch::Sender<Vec<Call>>,
}

impl ApiServer {
    /// Answers each call with what `answer` makes of it and of how many came before.
    pub(crate) async fn start(answer: impl Fn(&Call, usize) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = watch::Sender::new(Vec::new());
        let (record, answer) = (calls.clone(), Arc::new(answer));
        let handle = move |method: Method, uri: Uri, body: Bytes| {
            let call = Call {
                method,
                path: uri.path().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let mut response = None;
            record.send_modify(|calls| {
                response = Some(answer(&call, calls.len()));
                calls.push(call);
            });
            let (status, value) = response.expect("it was answered");
            std::future::ready(reply(status, value))
        };
        tokio::spawn(axum::serve(listener, Router::new().fallback(handle)).into_future());
        let url = format!("http://{address}");
        Self { cluster: cluster(&url), url, calls }
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.borrow().clone()
    }

    /// The calls so far, once they are such.
    pub(crate) async fn calls_when(&self, are_such: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        let mut calls = self.calls.subscribe();
        let seen = tokio::time::timeout(PATIENCE, calls.wait_for(|calls| are_such(calls))).await;
        let Ok(seen) = seen else {
            panic!("these are not the calls that are waited for: {:?}", self.calls())
        };
        seen.expect("the server is here").clone()
    }
}

/// The way to an API server at an address.
pub(crate) fn cluster(url: &str) -> Cluster {
    bk_ops::http::install_crypto_provider();
    Cluster::new(&kube::Config::new(url.parse().unwrap())).unwrap()
}

/// What an API server answers about Secrets that is empty at first and takes whatever is written.
pub(crate) fn takes_secrets(call: &Call, before: usize) -> (u16, Value) {
    let secret =
        |version: usize| json!({ "metadata": { "name": "s", "resourceVersion": version.to_string() } });
    match call.method.as_str() {
        "PATCH" => (200, secret(before + 2)),
        _ => (200, json!({ "metadata": { "resourceVersion": "1" }, "items": [secret(1)] })),
    }
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
