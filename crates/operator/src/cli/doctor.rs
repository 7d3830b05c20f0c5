//! `buildkite-operator doctor`: whether an installation can work, check by check.
//!
//! - [`broker`]: whether agents in job pods can register by way of the operator
//! - [`checks`]: what was read → what to say about it
//! - [`finding`]: what a check has found
//! - [`webhook`]: whether the API server asks the operator, and would believe it

mod broker;
mod checks;
mod finding;
mod webhook;

use std::{io::Write, time::Duration};

use anyhow::{Context, Result};
use bk_api::{RepoMirror, config::Config};
use bk_buildkite::{StacksClient, TokenKind, client::DEFAULT_ENDPOINT};
use clap::Args;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        coordination::v1::Lease,
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use self::{
    finding::{Finding, Grade},
    webhook::Webhook,
};
use super::{
    connection::{ClusterArgs, Connection, failed},
    installation::{Installation, variable},
    output::Format,
};
use crate::{USER_AGENT, permissions, token::TokenSecret};

/// How long a server outside may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many questions about permissions are asked at once.
const CONCURRENCY: usize = 8;
/// What is said where something may not be read.
const UNREADABLE: &str = "allow it, or ask whoever may read it";

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "--namespace is the operator's own; its configuration says where jobs are. Exit status: 1 if a check has failed."
)]
pub(super) struct DoctorArgs {
    /// How to print the findings
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Says whether nothing has failed.
pub(super) async fn run(args: DoctorArgs) -> Result<bool> {
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    let findings = Box::pin(examine(&cluster.calls, &namespace)).await?;
    let mut out = std::io::stdout().lock();
    args.output.write(&mut out, &findings, &finding::lines(&findings))?;
    out.flush()?;
    Ok(findings.iter().all(|finding| finding.grade != Grade::Fail))
}

/// All checks, in an order in which the first that fails explains most.
async fn examine(client: &Client, namespace: &str) -> Result<Vec<Finding>> {
    let version = client.apiserver_version().await.context("cannot read the version of Kubernetes")?;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone()).list(&ListParams::default()).await;
    let definitions = definitions
        .map(|list| list.items)
        .map_err(|error| failed("list custom resource definitions")(error).to_string());
    let installation = Box::pin(Installation::read(client, namespace)).await;
    let mut findings = vec![
        checks::kubernetes(&version.minor, &version.git_version),
        checks::definitions(definitions.as_deref()),
        checks::configuration(&installation),
        checks::deployment(&installation),
    ];
    findings.extend(checks::version(&installation));
    findings.extend(leader(client, &installation).await);
    findings.extend(Box::pin(may_do(client, &installation)).await);
    findings.extend(Box::pin(webhook::examine(client, &installation)).await);
    findings.extend(Box::pin(broker::examine(client, &installation)).await);
    findings.extend(checks::unheeded(&installation));
    let shim = installation.shim(client).await.map_err(|error| error.to_string());
    findings.push(checks::shim(shim, installation.job_namespace()));
    if let Ok(config) = &installation.config {
        findings.extend(token(client, installation.job_namespace(), config).await);
        findings.extend(sinks(client, installation.job_namespace(), config).await);
    }
    findings.extend(mirrors(client, installation.job_namespace()).await);
    Ok(findings)
}

async fn leader(client: &Client, installation: &Installation) -> Option<Finding> {
    let name = variable(installation.deployment()?, "BUILDKITE_OPERATOR_LEASE")?;
    let namespace = &installation.namespace;
    let lease = Api::<Lease>::namespaced(client.clone(), namespace).get_opt(&name).await;
    Some(match lease {
        Ok(lease) => checks::leader(lease.as_ref(), &name, Timestamp::now()),
        Err(error) => {
            let problem = failed(format!("read Lease {namespace}/{name}"))(error);
            Finding::warn("leader", problem.to_string(), UNREADABLE)
        }
    })
}

/// Asks about each permission of the operator's service account.
async fn may_do(client: &Client, installation: &Installation) -> Vec<Finding> {
    let deployment = installation.deployment();
    let account = installation.account().unwrap_or_else(|| "buildkite-operator".to_owned());
    let config = installation.config.clone().unwrap_or_default();
    let names = permissions::Names {
        agent_token: config.pods.agent_token_secret,
        api_token: config.spawner.api_token_secret,
        deployment: deployment.map_or_else(|| account.clone(), ResourceExt::name_any),
    };
    let mut asked = checks::attributes(&permissions::in_job_namespace(&names), installation.job_namespace());
    asked.extend(checks::attributes(&permissions::in_own_namespace(&names), &installation.namespace));
    if let Some(webhook) = deployment.and_then(Webhook::of) {
        asked.extend(checks::of_webhooks(&webhook, installation));
    }
    let broker = installation.broker();
    asked.extend(broker.iter().flat_map(|broker| broker::permissions(broker, installation)));
    let user = format!("system:serviceaccount:{}:{account}", installation.namespace);
    let mut findings = match denied(client, &user, &installation.namespace, &asked).await {
        Ok(denied) => vec![checks::permissions(&user, asked.len(), &denied)],
        Err(finding) => return vec![finding],
    };
    if broker.is_some() {
        let asked = checks::attributes(&permissions::broker_in_cluster(), "");
        let denied = denied(client, &user, &installation.namespace, &asked).await;
        findings.extend(denied.ok().and_then(|denied| broker::nodes(&denied)));
    }
    findings
}

/// What of this a service account in a namespace may not do.
async fn denied(
    client: &Client,
    user: &str,
    namespace: &str,
    asked: &[ResourceAttributes],
) -> Result<Vec<ResourceAttributes>, Finding> {
    let answers: Vec<Result<bool, kube::Error>> = stream::iter(asked)
        .map(|attributes| is_allowed(client, user, namespace, attributes))
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut denied = Vec::new();
    for (attributes, answer) in asked.iter().zip(answers) {
        match answer {
            Ok(true) => {}
            Ok(false) => denied.push(attributes.clone()),
            Err(error) => {
                let problem = failed(format!("ask what {user} may do"))(error).to_string();
                let cure = "ask whoever may create SubjectAccessReviews";
                return Err(Finding::warn("permissions", problem, cure));
            }
        }
    }
    Ok(denied)
}

async fn is_allowed(
    client: &Client,
    user: &str,
    namespace: &str,
    attributes: &ResourceAttributes,
) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(attributes.clone()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The agent token, and what Buildkite says to it.
async fn token(client: &Client, namespace: &str, config: &Config) -> Vec<Finding> {
    let check = "token";
    let name = config.pods.agent_token_secret.clone();
    let place = TokenSecret { kind: TokenKind::Agent, namespace: namespace.to_owned(), name: name.clone() };
    let secret = match Api::<Secret>::namespaced(client.clone(), namespace).get_opt(&name).await {
        Ok(secret) => secret,
        Err(error) => {
            let problem = failed(format!("read Secret {namespace}/{name}"))(error).to_string();
            return vec![Finding::warn(check, problem, UNREADABLE)];
        }
    };
    let token = match place.token(secret) {
        Ok(token) => token,
        Err(problem) => {
            let (problem, cure) = problem.split_once("; ").unwrap_or((&problem, "create it anew"));
            return vec![Finding::fail(check, problem, cure)];
        }
    };
    let found = Finding::ok(check, format!("Secret {namespace}/{name} has one"));
    let endpoint = config.spawner.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    let answer = match StacksClient::new(endpoint, token, USER_AGENT) {
        Ok(buildkite) => tokio::time::timeout(PATIENCE, buildkite.token_identity()).await,
        Err(error) => Ok(Err(error)),
    };
    let answer = match &answer {
        Ok(answer) => checks::buildkite(answer.as_ref(), endpoint),
        Err(_) => Finding::warn(
            "buildkite",
            format!("{endpoint} does not answer from here"),
            "the operator may reach it all the same: see its log and `top`",
        ),
    };
    vec![found, answer]
}

async fn sinks(client: &Client, namespace: &str, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    for (name, sink) in &config.logs.sinks {
        let secret = match sink.secret() {
            None => None,
            Some(secret) => match secrets.get_metadata_opt(secret).await {
                Ok(found) => Some((secret, found.is_some())),
                Err(error) => {
                    let problem = failed(format!("read Secret {namespace}/{secret}"))(error).to_string();
                    findings.push(Finding::warn("sinks", problem, UNREADABLE));
                    continue;
                }
            },
        };
        let reached = match checks::address(sink) {
            None => None,
            Some(url) => Some((url, reach(url).await)),
        };
        findings.push(checks::sink(name, secret, reached));
    }
    findings
}

/// Whether somebody listens there.
async fn reach(url: &str) -> Result<(), String> {
    let uri: axum::http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().ok_or("it has no host")?.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    match tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect((host, port))).await {
        Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

async fn mirrors(client: &Client, namespace: &str) -> Vec<Finding> {
    match Api::<RepoMirror>::namespaced(client.clone(), namespace).list(&ListParams::default()).await {
        Ok(list) => checks::mirrors(&list.items),
        Err(error) => {
            let problem = failed(format!("list RepoMirrors in namespace {namespace}"))(error).to_string();
            vec![Finding::warn("mirrors", problem, UNREADABLE)]
        }
    }
}
