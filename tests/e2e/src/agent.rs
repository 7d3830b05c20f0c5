//! An agent that the test plays itself, where the real one is too large or must not behave.

use std::{io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use bk_api::config::TOKEN_KEY;
use bk_buildkite::agent::{ChunkPosition, FinishedJob, RegisterAgent, RegisteredAgent, StartJob};
use bk_plan::pod::{AGENT_CONTAINER, AUDIENCE, AUTHORITY_FILE};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{Api, ResourceExt, api::PostParams};
use reqwest::{Method, RequestBuilder, Response};
use uuid::Uuid;

use crate::{
    World,
    buildkite::{Buildkite, QUEUE},
    tls,
};

/// The ConfigMap by which pods trust the operator.
const TRUST: &str = "buildkite-operator-broker";

/// How long a registration may take: the operator gives one up after 25 s.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An agent that has registered and connected.
pub struct PlayedAgent {
    http: reqwest::Client,
    endpoint: String,
    token: String,
}

impl PlayedAgent {
    /// Registers an agent for the operator's queue.
    pub async fn register(buildkite: &Buildkite, name: &str) -> Result<Self> {
        let mut agent = Self {
            http: buildkite.http(),
            endpoint: buildkite.endpoint(),
            token: buildkite.agent_token.clone(),
        };
        let answer = agent.send(agent.request(Method::POST, "register").json(&about(name))).await?;
        agent.token = answer.json::<RegisteredAgent>().await?.access_token;
        agent.connect().await?;
        Ok(agent)
    }

    /// Says that it is there.
    pub async fn connect(&self) -> Result<()> {
        self.send(self.request(Method::POST, "connect")).await.map(drop)
    }

    /// Takes the job and says that it has begun.
    pub async fn take(&self, job: Uuid) -> Result<()> {
        self.send(self.request(Method::PUT, &format!("jobs/{job}/acquire"))).await?;
        let start = StartJob { started_at: Timestamp::now().to_string() };
        self.send(self.request(Method::PUT, &format!("jobs/{job}/start")).json(&start)).await.map(drop)
    }

    /// Sends the whole of the job's log.
    pub async fn log(&self, job: Uuid, text: &str) -> Result<()> {
        let size = i64::try_from(text.len())?;
        let mut body = GzEncoder::new(Vec::new(), Compression::fast());
        body.write_all(text.as_bytes())?;
        let chunk = self
            .request(Method::POST, &format!("jobs/{job}/chunks"))
            .query(&ChunkPosition { sequence: 1, offset: 0, size })
            .header("Content-Type", "text/plain")
            .header("Content-Encoding", "gzip")
            .body(body.finish()?);
        self.send(chunk).await.map(drop)
    }

    /// Ends the job.
    pub async fn finish(&self, job: Uuid, exit_status: i32) -> Result<()> {
        let finished = FinishedJob {
            exit_status: exit_status.to_string(),
            finished_at: Timestamp::now().to_string(),
            ignore_agent_in_dispatches: true,
            ..FinishedJob::default()
        };
        self.send(self.request(Method::PUT, &format!("jobs/{job}/finish")).json(&finished)).await.map(drop)
    }

    /// Says goodbye.
    pub async fn disconnect(&self) -> Result<()> {
        self.send(self.request(Method::POST, "disconnect")).await.map(drop)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}/{path}", self.endpoint);
        self.http.request(method, url).header("Authorization", format!("Token {}", self.token))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.with_context(|| format!("cannot reach {}", self.endpoint))?;
        let (status, url) = (response.status(), response.url().clone());
        ensure!(status.is_success(), "{url} answered {status}: {}", response.text().await?);
        Ok(response)
    }
}

/// What an agent says about itself.
fn about(name: &str) -> RegisterAgent {
    RegisterAgent {
        name: name.to_owned(),
        version: "3.137.2".to_owned(),
        script_eval_enabled: true,
        ignore_in_dispatches: true,
        meta_data: vec![format!("queue={QUEUE}")],
        ..RegisterAgent::default()
    }
}

/// The operator as pods know it, by way of which their agents register.
#[derive(Clone)]
pub struct Broker {
    url: String,
    authority: String,
    buildkite: Buildkite,
    cluster: kube::Client,
    namespace: String,
}

impl Broker {
    /// The one of this world, once its operator lets pods trust it.
    pub async fn of(world: &World) -> Result<Self> {
        let (cluster, namespace) = (world.cluster.client.clone(), world.cluster.namespace.clone());
        let maps = Api::<ConfigMap>::namespaced(cluster.clone(), &namespace);
        let authority = crate::eventually("pods can trust the broker", async || {
            let trust = maps.get_opt(TRUST).await?;
            Ok(trust.and_then(|trust| trust.data?.remove(AUTHORITY_FILE)))
        })
        .await?;
        let (url, buildkite) = (world.broker_url(), world.buildkite.clone());
        Ok(Self { url, authority, buildkite, cluster, namespace })
    }

    /// The one-time token of a pod, for its agent.
    pub fn ticket(pod: &Pod) -> Result<String> {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let agent = containers.iter().find(|container| container.name == AGENT_CONTAINER);
        let mut variables = agent.context("the pod has no agent")?.env.iter().flatten();
        let token = variables.find(|variable| variable.name == TOKEN_KEY);
        token.and_then(|token| token.value.clone()).context("the agent has no token of its own")
    }

    /// The same with proof that it is the pod who shows it: a token of its service account, as the kubelet gets one for it.
    pub async fn proven_ticket(&self, pod: &Pod) -> Result<String> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let spec = TokenRequestSpec {
            audiences: vec![AUDIENCE.to_owned()],
            bound_object_ref: Some(bound),
            expiration_seconds: Some(600),
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.cluster.clone(), &self.namespace);
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let account = account.unwrap_or("default");
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("no token for {}", pod.name_any()))?;
        let proof = answer.status.context("the API server answers with a token")?.token;
        Ok(format!("{}!{proof}", Self::ticket(pod)?))
    }

    /// A client that trusts the broker as pods do, on connections of its own.
    #[allow(clippy::disallowed_methods, reason = "no client of ours is like an agent's")]
    fn http(&self) -> Result<reqwest::Client> {
        let tls = tls::like_an_agent(self.authority.as_bytes())?;
        let http =
            reqwest::Client::builder().user_agent("e2e").timeout(TIMEOUT).tls_backend_preconfigured(tls);
        Ok(http.build()?)
    }

    /// A call to it, from outside of any pod.
    pub fn call(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        Ok(self.http()?.request(method, format!("{}/{path}", self.url)))
    }

    /// Registers an agent with what its pod shows, on a connection of its own. It goes on where it is told to.
    pub async fn register(&self, shown: &str) -> Result<PlayedAgent> {
        let http = self.http()?;
        let mut agent = PlayedAgent { http, endpoint: self.url.clone(), token: shown.to_owned() };
        // What it is called is for the operator to say.
        let answer = agent.send(agent.request(Method::POST, "register").json(&about("an agent"))).await?;
        let registered: RegisteredAgent = answer.json().await?;
        agent.http = self.buildkite.http();
        agent.token = registered.access_token;
        agent.endpoint = registered.endpoint.context("the broker tells where to go on")?;
        Ok(agent)
    }
}
