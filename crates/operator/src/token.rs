//! Tokens in their Secrets. They may be replaced at any time.

use std::time::Duration;

use bk_api::config::{API_TOKEN_KEY, TOKEN_KEY};
use bk_buildkite::{Credentials, TokenKind};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use secrecy::SecretString;

use crate::{
    error::Error,
    settings::{patience, watch_one},
    telemetry::Announcer,
};

/// How often to look whether somebody has put a token into its Secret.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Where a token is.
#[derive(Clone, Debug)]
pub struct TokenSecret {
    /// What it is good for.
    pub kind: TokenKind,
    /// The job namespace: agents in pods take their token from the same Secret.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

impl TokenSecret {
    /// The token, as soon as there is one. Until then people are told what is missing.
    pub async fn wait(&self, client: Client, announcer: &Announcer) -> Result<SecretString, Error> {
        let mut told = None;
        loop {
            let problem = match self.read(&client).await? {
                Ok(token) => return Ok(token),
                Err(problem) => problem,
            };
            if told.as_ref() != Some(&problem) {
                tracing::warn!(problem, "waiting for the {}", self.kind.name());
                announcer.warn("TokenMissing", &problem);
                told = Some(problem);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Says so if the agent token is not in its Secret, though the operator has one of its own: agents in pods have not.
    pub async fn miss(&self, client: Client) {
        let problem = match self.read(&client).await {
            Ok(Ok(_)) => return,
            Ok(Err(problem)) => problem,
            Err(error) => bk_ops::report::one_line(&error),
        };
        tracing::warn!(problem, "agents in pods take the token from its Secret, and cannot start without it");
    }

    async fn read(&self, client: &Client) -> Result<Result<SecretString, String>, Error> {
        let Self { namespace, name, .. } = self;
        let attempt = format!("read Secret {namespace}/{name}");
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        let found = patience::insist(&attempt, || api.get_opt(name)).await;
        Ok(self.token(found.map_err(Error::kubernetes(attempt))?))
    }

    /// Hands every new token on, for as long as the process lives. What is none is not: the last one may still be good.
    pub async fn follow(&self, client: Client, credentials: &Credentials) {
        let api = Api::<Secret>::namespaced(client, &self.namespace);
        let mut versions = std::pin::pin!(watch_one(api, &self.name));
        while let Some(version) = versions.next().await {
            let secret = match version {
                Ok(secret) => secret,
                Err(error) => {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(secret = self.name, error, "cannot watch a token");
                    continue;
                }
            };
            let replaced = self
                .token(secret)
                .and_then(|token| credentials.replace(&token).map_err(|error| error.to_string()));
            match replaced {
                Ok(true) => tracing::info!(secret = self.name, "the {} has changed", self.kind.name()),
                Ok(false) => {}
                Err(problem) => tracing::warn!(problem, "the last {} stays in use", self.kind.name()),
            }
        }
    }

    fn key(&self) -> &'static str {
        match self.kind {
            TokenKind::Agent => TOKEN_KEY,
            TokenKind::Api => API_TOKEN_KEY,
        }
    }

    /// The token in a Secret, or what is wrong.
    pub(crate) fn token(&self, secret: Option<Secret>) -> Result<SecretString, String> {
        let Self { kind, namespace, name } = self;
        let (what, key) = (kind.name(), self.key());
        let token = secret
            .and_then(|secret| secret.data?.remove(key))
            .and_then(|bytes| String::from_utf8(bytes.0).ok())
            .filter(|token| !token.trim().is_empty());
        let cure =
            format!("`kubectl --namespace {namespace} create secret generic {name} --from-literal={key}=…`");
        match token {
            None => Err(format!(
                "there is no {what}: Secret {namespace}/{name} with key {key} is missing or empty; create it \
                 with {cure}"
            )),
            // The agents in pods get theirs as it is, and would be refused.
            Some(token) if token.trim() != token => Err(format!(
                "the {what} in Secret {namespace}/{name} begins or ends with white space; delete the Secret and \
                 create it again with {cure}"
            )),
            Some(token) => Ok(token.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bk_api::config::Config;
    use k8s_openapi::ByteString;
    use rstest::rstest;
    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;
    use crate::{
        api_server::{ApiServer, refusal},
        settings::{Cluster, Deployed},
    };

    #[rstest]
    #[case::as_it_should_be(Some("bkct_1"), Ok("bkct_1"))]
    #[case::no_key(
        None,
        Err("there is no agent token: Secret ci/token with key BUILDKITE_AGENT_TOKEN is missing or empty")
    )]
    #[case::nothing_in_it(Some(" \n"), Err("there is no agent token"))]
    #[case::from_a_file(
        Some("bkct_1\n"),
        Err("the agent token in Secret ci/token begins or ends with white space")
    )]
    fn a_token_is_usable_or_explained(#[case] value: Option<&str>, #[case] expected: Result<&str, &str>) {
        let place =
            TokenSecret { kind: TokenKind::Agent, namespace: "ci".to_owned(), name: "token".to_owned() };
        let data = value.map(|value| BTreeMap::from([(TOKEN_KEY.to_owned(), ByteString(value.into()))]));
        let token = place.token(Some(Secret { data, ..Secret::default() }));
        match (token, expected) {
            (Ok(token), Ok(expected)) => assert_eq!(token.expose_secret(), expected),
            (Err(problem), Err(expected)) => assert!(problem.starts_with(expected), "{problem}"),
            (token, expected) => panic!("{token:?} is not {expected:?}"),
        }
    }

    #[test]
    fn each_token_has_a_key_of_its_own() {
        let place =
            TokenSecret { kind: TokenKind::Api, namespace: "ci".to_owned(), name: "token".to_owned() };
        let problem = place.token(None).unwrap_err();
        let expected =
            "there is no API token: Secret ci/token with key BUILDKITE_API_TOKEN is missing or empty";
        assert!(problem.starts_with(expected), "{problem}");
    }

    fn place() -> TokenSecret {
        TokenSecret { kind: TokenKind::Agent, namespace: "ci".to_owned(), name: "token".to_owned() }
    }

    fn announcer(cluster: &Cluster) -> Announcer {
        let deployed = Deployed { namespace: "ci".to_owned(), name: "operator".to_owned() };
        Announcer::new(cluster.calls.clone(), Some(deployed), "ci", &Config::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_not_there_is_waited_for_and_announced() {
        let server = ApiServer::start(|call, before| match call.path.as_str() {
            "/api/v1/namespaces/ci/secrets/token" if before < 5 => refusal(404, "NotFound"),
            "/api/v1/namespaces/ci/secrets/token" => {
                (200, json!({"metadata": {"name": "token"}, "data": {TOKEN_KEY: "YmtjdF8x"}}))
            }
            "/apis/apps/v1/namespaces/ci/deployments/operator" => {
                let spec = json!({"selector": {}, "template": {}});
                (200, json!({"metadata": {"name": "operator", "namespace": "ci"}, "spec": spec}))
            }
            _ => (201, call.body.clone()),
        })
        .await;
        let announcer = announcer(&server.cluster);
        let token = place().wait(server.cluster.calls.clone(), &announcer).await.unwrap();
        assert_eq!(token.expose_secret(), "bkct_1");
        let events: Vec<_> =
            server.calls().into_iter().filter(|call| call.path.ends_with("/events")).collect();
        assert_eq!(events.len(), 1, "once for all the time that it takes");
        assert_eq!(events[0].body["reason"], "TokenMissing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_may_not_be_read_is_not_waited_for() {
        let server = ApiServer::start(|_, _| refusal(403, "Forbidden")).await;
        let announcer = announcer(&server.cluster);
        let error = place().wait(server.cluster.calls.clone(), &announcer).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot read Secret ci/token");
        // Whoever has a token of its own goes on.
        place().miss(server.cluster.calls.clone()).await;
    }
}
