//! Who is calling. Three kinds of token, each good only where it belongs; the REST API has its own.

use std::collections::HashMap;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use rusqlite::Transaction;
use uuid::Uuid;

use super::Shared;
use super::error::{ApiError, ApiResult};
use super::extract::{self, Path};
use super::host;
use crate::config::{LOOPBACK_AGENT_TOKEN, LOOPBACK_API_TOKEN};
use crate::problem::Problem;
use crate::store::agents::{self, AgentRow};
use crate::store::builds;
use crate::store::jobs::{self, OwnedJob};

fn credential<'a>(headers: &'a HeaderMap, scheme: &str) -> ApiResult<&'a str> {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(given, token)| given.eq_ignore_ascii_case(scheme) && !token.is_empty())
        .map(|(_, token)| token)
        .ok_or_else(|| ApiError::unauthorized(format!("an \"Authorization: {scheme} …\" header is needed")))
}

/// A caller with the registration token: an agent that comes up, or a stack.
pub(crate) struct Registration;

impl FromRequestParts<Shared> for Registration {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?;
        if !app.tokens.is_agent(token) {
            return Err(ApiError::unauthorized("this is not the registration token"));
        }
        if token == LOOPBACK_AGENT_TOKEN {
            host::check_well_known(&parts.headers, app.config.external_url.as_deref())?;
        }
        Ok(Self)
    }
}

/// Whom a token of the Agent API belongs to.
enum Holder {
    Agent(Box<AgentRow>),
    Job(Box<OwnedJob>),
}

fn holder(transaction: &Transaction<'_>, token: &str) -> Result<Option<Holder>, Problem> {
    if let Some(agent) = agents::by_token(transaction, token)? {
        return Ok(Some(Holder::Agent(Box::new(agent))));
    }
    Ok(jobs::by_token(transaction, token)?.map(|owned| Holder::Job(Box::new(owned))))
}

/// An agent, by its access token.
pub(crate) struct CallingAgent(pub(crate) AgentRow);

impl FromRequestParts<Shared> for CallingAgent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        match app.store.transact(move |transaction| holder(transaction, &token)).await? {
            Some(Holder::Agent(agent)) => Ok(Self(*agent)),
            Some(Holder::Job(_)) => Err(ApiError::forbidden("a job token is not accepted here")),
            None => Err(ApiError::unauthorized("unknown agent access token")),
        }
    }
}

/// The agent behind a call from the agent itself or from inside its job.
pub(crate) struct ActingAgent(pub(crate) AgentRow);

impl FromRequestParts<Shared> for ActingAgent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        let found = app
            .store
            .transact(move |transaction| match holder(transaction, &token)? {
                Some(Holder::Agent(agent)) => Ok(Some(*agent)),
                Some(Holder::Job(owned)) => {
                    owned.job.agent.map_or(Ok(None), |agent| agents::get(transaction, agent))
                }
                None => Ok(None),
            })
            .await?;
        found.map(Self).ok_or_else(|| ApiError::unauthorized("unknown agent access token or job token"))
    }
}

/// A caller that may act for the job in the path: with its job token, or as the agent that took it.
pub(crate) struct JobAccess {
    /// The job in the path.
    pub(crate) job: Uuid,
    /// Its build.
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for JobAccess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        let id = path_parameter(parts, "job").await?;
        app.store
            .transact(move |transaction| {
                let Some(holder) = holder(transaction, &token)? else {
                    return Ok(Err(ApiError::unauthorized("unknown job token")));
                };
                let id = match extract::id("job", &id) {
                    Ok(id) => id,
                    Err(error) => return Ok(Err(error)),
                };
                let refused = || Ok(Err(ApiError::forbidden("this token belongs to another job")));
                match holder {
                    Holder::Job(owned) if owned.job.id == id => Ok(Ok(Self { job: id, build: owned.build })),
                    Holder::Job(_) => refused(),
                    Holder::Agent(agent) => match jobs::get(transaction, id)? {
                        owned if owned.job.agent == Some(agent.id) => {
                            Ok(Ok(Self { job: id, build: owned.build }))
                        }
                        _ => refused(),
                    },
                }
            })
            .await?
    }
}

/// The job behind the caller's token, whatever the path says.
pub(crate) struct JobToken {
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for JobToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        let found = app
            .store
            .transact(move |transaction| match holder(transaction, &token)? {
                Some(Holder::Job(owned)) => Ok(Ok(Some(*owned))),
                Some(Holder::Agent(agent)) => Ok(Ok(jobs::of_agent(transaction, agent.id)?)),
                None => Ok(Err(ApiError::unauthorized("unknown job token"))),
            })
            .await??;
        match found {
            Some(owned) => Ok(Self { build: owned.build }),
            None => Err(ApiError::forbidden("this agent has no job")),
        }
    }
}

/// A caller that may act for the build in the path: one of its jobs.
pub(crate) struct BuildAccess {
    /// The build in the path.
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for BuildAccess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let caller = JobToken::from_request_parts(parts, app).await?;
        let build = extract::id("build", &path_parameter(parts, "build").await?)?;
        if caller.build != build {
            return Err(ApiError::forbidden("this token belongs to another build"));
        }
        Ok(Self { build })
    }
}

/// A caller that may read from the build in the path: one of its jobs, or a job of a build that belongs to the
/// same chain of triggers. A triggered build may thus use what its parent made, and the parent what it
/// triggered; other builds stay closed.
pub(crate) struct BuildReader {
    /// The build in the path.
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for BuildReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let caller = JobToken::from_request_parts(parts, app).await?;
        let build = extract::id("build", &path_parameter(parts, "build").await?)?;
        let related = caller.build == build
            || app
                .store
                .transact(move |transaction| {
                    Ok(builds::root(transaction, build)? == builds::root(transaction, caller.build)?)
                })
                .await?;
        if !related {
            return Err(ApiError::forbidden("this token belongs to another build"));
        }
        Ok(Self { build })
    }
}

/// A segment of the path, decoded: clients encode even dots.
pub(crate) async fn path_parameter(parts: &mut Parts, name: &str) -> ApiResult<String> {
    let Path(mut parameters) = Path::<HashMap<String, String>>::from_request_parts(parts, &()).await?;
    parameters.remove(name).ok_or_else(|| ApiError::not_found("there is nothing at this path"))
}

/// A caller with the API token, of the REST API or of GraphQL.
pub(crate) struct ApiToken;

impl FromRequestParts<Shared> for ApiToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        match credential(&parts.headers, "Bearer")? {
            token if app.tokens.is_api(token) => {
                if token == LOOPBACK_API_TOKEN {
                    host::check_well_known(&parts.headers, app.config.external_url.as_deref())?;
                }
                Ok(Self)
            }
            token if app.tokens.is_agent(token) => {
                Err(ApiError::unauthorized("this is the agents' token; the API token is needed here"))
            }
            _ => Err(ApiError::unauthorized("this is not the API token")),
        }
    }
}

/// A user of the REST API below an organisation.
pub(crate) struct ApiUser;

impl FromRequestParts<Shared> for ApiUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        ApiToken::from_request_parts(parts, app).await?;
        let organization = path_parameter(parts, "org").await?;
        if organization != app.config.organization {
            return Err(ApiError::not_found(format!("no organization {organization}")));
        }
        Ok(Self)
    }
}
