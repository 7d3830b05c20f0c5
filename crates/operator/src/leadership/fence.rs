//! A way to the API server on which only the one that works may write.

use std::{
    future::ready,
    task::{Context, Poll},
};

use axum::http::{Method, Request, Response};
use futures::future::BoxFuture;
use kube::{Client, client::Body};
use tower::{BoxError, Service};

use super::Tenure;
use crate::settings::Cluster;

/// A write that would have come too late.
#[derive(Debug, thiserror::Error)]
#[error("the Lease may be another replica's: nothing is written any more")]
struct TooLate;

#[derive(Clone)]
struct Fence {
    client: Client,
    tenure: Tenure,
}

/// The cluster's calls behind a fence.
pub(super) fn fenced(cluster: &Cluster, tenure: Tenure) -> Client {
    Client::new(Fence { client: cluster.calls.clone(), tenure }, cluster.namespace.clone())
}

impl Service<Request<Body>> for Fence {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() != Method::GET && !self.tenure.holds() {
            return Box::pin(ready(Err(TooLate.into())));
        }
        let client = self.client.clone();
        Box::pin(async move { Ok(client.send(request).await?) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, api::PostParams};
    use serde_json::json;

    use super::*;
    use crate::api_server::ApiServer;

    #[tokio::test]
    async fn whoever_has_no_lease_reads_and_does_not_write() {
        let server = ApiServer::start(|_, _| (200, json!({"metadata": {"name": "any"}}))).await;
        let tenure = Tenure::default();
        let api = Api::<ConfigMap>::namespaced(fenced(&server.cluster, tenure.clone()), "ci");
        let write = async || api.create(&PostParams::default(), &ConfigMap::default()).await;
        assert!(write().await.is_err(), "never held");
        tenure.set(Some(Instant::now() + Duration::from_mins(1)));
        assert!(write().await.is_ok());
        tenure.set(Some(Instant::now()));
        let refused = write().await.unwrap_err();
        assert!(bk_ops::report::one_line(&refused).contains("another replica's"), "{refused}");
        assert!(api.get("any").await.is_ok());
        assert_eq!(server.calls().len(), 2, "what is refused is not sent");
    }
}
