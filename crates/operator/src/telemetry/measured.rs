//! A way to the API server on which every request is measured.

use std::{
    task::{Context, Poll},
    time::Instant,
};

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use super::metrics::{Calls, calls};
use crate::settings::Cluster;

struct Measured<S> {
    way: S,
    calls: Calls,
}

struct Measure(Calls);

impl<S> Layer<S> for Measure {
    type Service = Measured<S>;

    fn layer(&self, way: S) -> Measured<S> {
        Measured { way, calls: self.0.clone() }
    }
}

/// The same cluster; what is asked of it is counted.
pub(crate) fn measured(cluster: &Cluster, calls: &Calls) -> Result<Cluster, kube::Error> {
    cluster.layered(&Measure(calls.clone()))
}

impl<S, B> Service<Request<Body>> for Measured<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.way.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (calls, asked) = (self.calls.clone(), calls::Request::of(request.method(), request.uri()));
        let answer = self.way.call(request);
        Box::pin(async move {
            let begin = Instant::now();
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            calls.kubernetes(&asked, code, begin.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use serde_json::json;

    use super::*;
    use crate::{
        api_server::{ApiServer, cluster, refusal},
        telemetry::{Form, Metrics},
    };

    #[tokio::test]
    async fn requests_are_counted_by_what_came_of_them() {
        let server = ApiServer::start(|call, _| match call.path.rsplit('/').next() {
            Some("there") => (200, json!({"metadata": {"name": "there"}})),
            _ => refusal(404, "NotFound"),
        })
        .await;
        let metrics = Metrics::default();
        let api = |cluster: &Cluster| {
            Api::<ConfigMap>::namespaced(measured(cluster, &metrics.calls).unwrap().calls, "ci")
        };
        assert!(api(&server.cluster).get("there").await.is_ok());
        assert!(api(&server.cluster).get_opt("gone").await.unwrap().is_none());
        assert!(api(&cluster("http://127.0.0.1:1")).get("there").await.is_err());
        let page = String::from_utf8(metrics.page(Form::Text)).unwrap();
        for code in ["200", "404", "none"] {
            let line = format!(
                "buildkite_operator_kubernetes_requests_total{{verb=\"get\",resource=\"configmaps\",code=\"{code}\"}} 1"
            );
            assert!(page.contains(&line), "{line} is not in\n{page}");
        }
    }
}
