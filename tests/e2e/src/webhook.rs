//! An admission webhook that refuses every pod of the test's namespace, served by the test over TLS.

use std::{io, net::SocketAddr};

use anyhow::Result;
use axum::{Json, Router, routing::post, serve::Listener};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{World, tls::Identity};

/// A running webhook. It is the cluster's: [`Webhook::remove`] it.
pub struct Webhook<'a> {
    world: &'a World,
    _stop: DropGuard,
}

impl<'a> Webhook<'a> {
    /// Refuses pods from now on, in these words.
    pub async fn refuse_pods(world: &'a World, words: &'static str) -> Result<Self> {
        let host = world.environment.host;
        let Identity { certificate, acceptor } = Identity::at(host)?;
        let listener = Tls { tcp: TcpListener::bind((host, 0)).await?, acceptor };
        let url = format!("https://{}/", listener.tcp.local_addr()?);
        let router = Router::new().route("/", post(async move |Json(review)| refuse(&review, words)));
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(axum::serve(listener, router).into_future()));
        let namespace = &world.cluster.namespace;
        let manifest = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": namespace },
            "webhooks": [{
                "name": "pods.e2e.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": { "url": url, "caBundle": STANDARD.encode(certificate) },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
            }],
        });
        world.cluster.kubectl(&["create", "-f", "-"], Some(&manifest.to_string()))?;
        Ok(Self { world, _stop: stop.drop_guard() })
    }

    /// Takes it out of the cluster.
    pub fn remove(self) -> Result<()> {
        let name = &self.world.cluster.namespace;
        self.world.cluster.kubectl(&["delete", "validatingwebhookconfiguration", name], None).map(drop)
    }
}

fn refuse(review: &Value, words: &str) -> Json<Value> {
    Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": false, "status": { "message": words } },
    }))
}

/// Connections after their handshake. The API server is the only one who calls, so they wait for one another.
struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.tcp).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
