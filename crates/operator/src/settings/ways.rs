//! The ways to the queues, and the tokens that open them.

use std::sync::Arc;

use bk_api::config::{Config, IntakeKind, Queue};
use bk_buildkite::{Credentials, GraphqlClient, Registrar, StacksClient, StandIn, TokenKind, graphql};
use kube::Client;
use secrecy::SecretString;

use crate::{
    USER_AGENT,
    error::Error,
    intake::{Home, Intake, Intakes, Stack, Unclustered, Way},
    telemetry::Announcer,
    token::TokenSecret,
};

/// Tokens that the operator was started with.
pub(super) struct OwnTokens {
    /// The one that opens the queues, whichever that is.
    pub(super) given: Option<String>,
    /// The agent token.
    pub(super) agent: Option<String>,
    /// Whether agents in pods need that, too, from its Secret.
    pub(super) is_for_pods: bool,
}

/// What opens the queues.
pub(super) struct Access {
    pub(super) intakes: Intakes,
    pub(super) registrar: Registrar,
    pub(super) followed: Vec<(TokenSecret, Credentials)>,
}

/// Where tokens are looked for, and who hears that one is not there.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) announcer: &'a Announcer,
}

/// Finds the tokens, and the way to each queue. A token that is not there is waited for, unless the operator has its own.
pub(super) async fn find(
    config: &Config,
    former: Vec<Queue>,
    endpoint: &str,
    own: OwnTokens,
    home: &Home,
    place: Place<'_>,
) -> Result<Access, Error> {
    let Place { client, namespace, announcer } = place;
    let spawner = &config.spawner;
    let secret =
        |kind, name: &str| TokenSecret { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    let (own_agent, own_api) = match spawner.intake {
        IntakeKind::Stacks => (own.given.or(own.agent), None),
        IntakeKind::Graphql => (own.agent, own.given),
    };
    let mut followed = Vec::new();
    let secret_of_agents = secret(TokenKind::Agent, &config.pods.agent_token_secret);
    let agents = if let Some(token) = own_agent {
        if own.is_for_pods {
            secret_of_agents.miss(client.clone()).await;
        }
        StacksClient::new(endpoint, SecretString::from(token), USER_AGENT)?
    } else {
        let token = secret_of_agents.wait(client.clone(), announcer).await?;
        let agents = StacksClient::new(endpoint, token, USER_AGENT)?;
        followed.push((secret_of_agents, agents.credentials().clone()));
        agents
    };
    let registrar = Registrar::new(endpoint, agents.credentials().clone(), USER_AGENT)?;
    if spawner.intake == IntakeKind::Stacks {
        let intakes = ways(config, former, |queue| {
            Arc::new(Stack::new(agents.clone(), queue.stack_key.clone(), queue.key.clone(), home.clone()))
        });
        return Ok(Access { intakes, registrar, followed });
    }

    let secret_of_api = secret(TokenKind::Api, &spawner.api_token_secret);
    let (token, secret_of_api) = match own_api {
        Some(token) => (SecretString::from(token), None),
        None => (secret_of_api.wait(client.clone(), announcer).await?, Some(secret_of_api)),
    };
    let address = spawner.graphql_endpoint.as_deref().unwrap_or(graphql::DEFAULT_ENDPOINT);
    let jobs = GraphqlClient::new(address, token, USER_AGENT)?;
    followed.extend(secret_of_api.map(|secret| (secret, jobs.credentials().clone())));
    let stand_in = StandIn::new(endpoint, agents.credentials().clone(), USER_AGENT)?;
    let intakes = ways(config, former, |queue| {
        Arc::new(Unclustered::new(
            agents.clone(),
            jobs.clone(),
            stand_in.clone(),
            spawner.organization.clone(),
            queue.key.clone(),
        ))
    });
    Ok(Access { intakes, registrar, followed })
}

fn ways(config: &Config, former: Vec<Queue>, intake: impl Fn(&Queue) -> Arc<dyn Intake>) -> Intakes {
    let way = |queue: Queue| Way { intake: intake(&queue), terms: Arc::new(queue) };
    let served = config.spawner.queues().into_iter().map(way).collect();
    let former = former.into_iter().map(way).collect();
    Intakes::new(served, former).expect("a configuration has one queue at least")
}
