//! Who is calling. Three kinds of token, each good only where it belongs; the REST API has its own.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use uuid::Uuid;

use super::Shared;
use super::error::{ApiError, ApiResult};
use super::extract;
use crate::store::agents::{self, AgentRow};
use crate::store::jobs;

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
        if app.tokens.is_agent(credential(&parts.headers, "Token")?) {
            Ok(Self)
        } else {
            Err(ApiError::unauthorized("this is not the registration token"))
        }
    }
}

/// An agent, by its access token.
pub(crate) struct CallingAgent(pub(crate) AgentRow);

impl FromRequestParts<Shared> for CallingAgent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        let (agent, job) = app
            .store
            .transact(move |transaction| {
                Ok((agents::by_token(transaction, &token)?, jobs::by_token(transaction, &token)?))
            })
            .await?;
        match (agent, job) {
            (Some(agent), _) => Ok(Self(agent)),
            (None, Some(_)) => Err(ApiError::forbidden("a job token is not accepted here")),
            (None, None) => Err(ApiError::unauthorized("unknown agent access token")),
        }
    }
}

/// A caller that may act for the job in the path: with its job token, or as the agent that has it.
pub(crate) struct JobAccess {
    /// The job in the path.
    pub(crate) job: Uuid,
    /// Its build.
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for JobAccess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let job = extract::id("job", &path_parameter(parts, "job").await?)?;
        let caller = JobToken::from_request_parts(parts, app).await?;
        if caller.job != job {
            return Err(ApiError::forbidden("this token belongs to another job"));
        }
        Ok(Self { job, build: caller.build })
    }
}

/// The job behind the caller's token, whatever the path says.
pub(crate) struct JobToken {
    pub(crate) job: Uuid,
    pub(crate) build: Uuid,
}

impl FromRequestParts<Shared> for JobToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        let token = credential(&parts.headers, "Token")?.to_owned();
        let found = app
            .store
            .transact(move |transaction| {
                if let Some(owned) = jobs::by_token(transaction, &token)? {
                    return Ok(Ok(Some(owned)));
                }
                match agents::by_token(transaction, &token)? {
                    Some(agent) => Ok(Ok(jobs::of_agent(transaction, agent.id)?)),
                    None => Ok(Err(ApiError::unauthorized("unknown job token"))),
                }
            })
            .await??;
        match found {
            Some(owned) => Ok(Self { job: owned.job.id, build: owned.build }),
            None => Err(ApiError::forbidden("this agent has no such job")),
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
        let build = extract::id("build", &path_parameter(parts, "build").await?)?;
        let caller = JobToken::from_request_parts(parts, app).await?;
        if caller.build != build {
            return Err(ApiError::forbidden("this token belongs to another build"));
        }
        Ok(Self { build })
    }
}

async fn path_parameter(parts: &mut Parts, name: &str) -> ApiResult<String> {
    // Decodes percent-encoded segments: clients encode even dots.
    let Path(mut parameters) = Path::<HashMap<String, String>>::from_request_parts(parts, &())
        .await
        .map_err(|_| ApiError::bad_request("the path cannot be read"))?;
    parameters.remove(name).ok_or_else(|| ApiError::not_found("there is nothing at this path"))
}

/// A caller with the API token.
pub(crate) struct ApiToken;

impl FromRequestParts<Shared> for ApiToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> ApiResult<Self> {
        if credential(&parts.headers, "Bearer")? != app.tokens.api {
            return Err(ApiError::unauthorized("this is not the API token"));
        }
        Ok(Self)
    }
}

/// A user of the REST API.
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
