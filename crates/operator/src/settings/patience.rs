//! What cannot be had yet at the start is waited for: an operator that gives up at once only makes others restart it.

use std::time::Duration;

use bk_ops::jitter;
use bk_plan::intake::pace;

use crate::error::Error;

/// Makes a call until its answer says something about what was asked, rather than about the API server's own troubles.
pub(crate) async fn insist<T, F>(attempt: &str, mut call: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut failures = 0;
    loop {
        match call().await {
            Err(error) if is_passing(&error) => {
                failures += 1;
                let pause = pace::after_failures(failures, asked(&error), jitter::fraction());
                let error = bk_ops::report::one_line(&error);
                tracing::warn!(error, ?pause, "cannot {attempt} yet");
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome,
        }
    }
}

/// How soon to try again to put back what cannot be put back.
const RETRY: Duration = Duration::from_secs(5);

/// Puts back what somebody took away, however often that fails.
pub(crate) async fn put_back<T>(what: &str, put: impl AsyncFn() -> Result<T, Error>) {
    while let Err(error) = put().await {
        tracing::warn!(error = %bk_ops::report::one_line(&error), "cannot put {what} back");
        tokio::time::sleep(RETRY).await;
    }
    tracing::warn!("{what} was gone, or altered, and has been put back");
}

/// Whether a failure is one of the API server, or of the way to it, and may pass by itself.
pub(crate) fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..),
        // No answer, half an answer, or one of somebody in between.
        kube::Error::HyperError(_)
        | kube::Error::Service(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_) => true,
        _ => false,
    }
}

/// How long the API server asks us to wait.
fn asked(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use serde_json::json;

    use super::*;
    use crate::api_server::{ApiServer, cluster, refusal};

    #[tokio::test(start_paused = true)]
    async fn an_api_server_in_trouble_is_waited_for() {
        let server = ApiServer::start(|_, before| match before {
            0 => refusal(503, "ServiceUnavailable"),
            1 => refusal(429, "TooManyRequests"),
            2 => refusal(500, "InternalError"),
            3 => (200, json!("a page of somebody in between")),
            _ => (200, json!({"metadata": {"name": "any"}})),
        })
        .await;
        let api = Api::<ConfigMap>::namespaced(server.cluster.calls.clone(), "ci");
        let found = insist("read a ConfigMap", || api.get("any")).await.unwrap();
        assert_eq!((found.metadata.name.as_deref(), server.calls().len()), (Some("any"), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_an_answer() {
        for code in [401, 403, 404, 422] {
            let server = ApiServer::start(move |_, _| refusal(code, "No")).await;
            let api = Api::<ConfigMap>::namespaced(server.cluster.calls.clone(), "ci");
            assert!(insist("read a ConfigMap", || api.get("any")).await.is_err());
            assert_eq!(server.calls().len(), 1, "{code}");
        }
    }

    #[tokio::test]
    async fn nobody_there_may_pass() {
        // Nothing listens on port 1, and nobody but the superuser could make it so.
        let api = Api::<ConfigMap>::namespaced(cluster("http://127.0.0.1:1").calls, "ci");
        assert!(is_passing(&api.get("any").await.unwrap_err()));
    }
}
