//! Tokens for jobs, and the pages by which others verify them.

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use bk_buildkite::agent::TokenRequest;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::Shared;
use super::auth::JobAccess;
use super::error::{ApiError, ApiResult};
use super::extract::{BaseUrl, Body};
use crate::oidc::key::{KeyProblem, SigningKey};
use crate::oidc::{self, OPTIONAL, STANDARD};
use crate::problem::Problem;
use crate::store::{agents, facts, jobs, keys, pipelines};

const KEY: &str = "oidc";

/// The key, made when it is first needed and kept in the database.
#[derive(Default)]
pub(crate) struct Issuer(OnceCell<SigningKey>);

impl Issuer {
    async fn key(&self, app: &Shared) -> Result<&SigningKey, Problem> {
        self.0.get_or_try_init(|| load(app)).await
    }
}

async fn load(app: &Shared) -> Result<SigningKey, Problem> {
    let failed = |problem: KeyProblem| Problem::Corrupt(problem.to_string());
    let kept = app.store.transact(|transaction| keys::get(transaction, KEY)).await?;
    let der = if let Some(der) = kept {
        der
    } else {
        let made = tokio::task::spawn_blocking(SigningKey::make).await.map_err(|_| Problem::Broken)?;
        let made = made.map_err(failed)?;
        app.store.transact(move |transaction| keys::keep(transaction, KEY, &made)).await?
    };
    SigningKey::read(&der).map_err(failed)
}

/// The routes for everybody, at the server's root.
pub(crate) fn well_known() -> Router<Shared> {
    Router::new()
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/.well-known/jwks", get(published))
}

/// The route of the Agent API.
pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/jobs/{job}/oidc/tokens", post(token))
}

async fn token(
    access: JobAccess,
    State(app): State<Shared>,
    BaseUrl(base): BaseUrl,
    Body(request): Body<TokenRequest>,
) -> ApiResult<Json<Value>> {
    let slug = app.config.organization.clone();
    let (facts, queue) = app
        .store
        .transact(move |transaction| {
            let owned = jobs::get(transaction, access.job)?;
            if !owned.job.state.has_agent() {
                let text = format!("job {} gets no token: it is {}", access.job, owned.job.state);
                return Err(Problem::Refused(text));
            }
            let agent = match owned.job.agent {
                Some(agent) => agents::get(transaction, agent)?,
                None => None,
            };
            let queue = pipelines::queue(transaction, &owned.job.queue)?.map(|queue| queue.id);
            let organization = facts::organization(transaction, &slug, &base)?;
            Ok((facts::of_job(transaction, organization, &owned, agent.as_ref())?, queue))
        })
        .await?;
    let claims = oidc::claims(&request, &facts, queue, Timestamp::now())
        .map_err(|problem| ApiError::unprocessable(problem.to_string()))?;
    let key = app.issuer.key(&app).await?;
    let token = key.sign(&claims).map_err(|problem| Problem::Corrupt(problem.to_string()))?;
    Ok(Json(json!({ "token": token })))
}

async fn configuration(BaseUrl(base): BaseUrl) -> Json<Value> {
    let claims: Vec<&str> = ["sub", "aud", "exp", "iat", "iss", "jti", "nbf"]
        .into_iter()
        .chain(STANDARD)
        .chain(OPTIONAL)
        .collect();
    Json(json!({
        "issuer": base,
        "jwks_uri": format!("{base}/.well-known/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public", "pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid"],
        "claims_supported": claims,
    }))
}

async fn published(State(app): State<Shared>) -> ApiResult<Json<Value>> {
    Ok(Json(app.issuer.key(&app).await?.published()))
}
