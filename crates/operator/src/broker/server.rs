//! `POST register`, and nothing else: a one-time token becomes an agent's session.

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::post,
};
use bk_api::{config::RegistrationProof, names};
use bk_buildkite::{Registrar, Session};
use bk_plan::{
    broker::{Caller, Refusal, Registration, SessionRecord, Ticket, registration},
    facts::Applicant,
    pod::AUDIENCE,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::{
    door::Visitors,
    identity::Identity,
    sessions::{NotKept, Sessions},
    turns::Turns,
};
use crate::{settings::Cluster, telemetry::Metrics};

/// The most that an agent says about itself.
const MAX_BODY: usize = 32 << 10;

/// How many registrations may be under way at once. Agents try again after ten seconds.
const AT_ONCE: usize = 256;

/// What one registration, all in all, may take.
const PATIENCE: Duration = Duration::from_secs(25);

/// How soon after a registration that came to nothing the next one with the same one-time token. Agents try again after ten seconds.
pub(super) const REST: Duration = Duration::from_secs(5);

/// What separates the one-time token from the token of the pod's service account. An agent can send only one, so the shim puts them together before
/// it starts the agent, in `crates/shim/src/proof.rs`.
const SEPARATOR: char = '!';

/// What answers depend on: it may be replaced at any time.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Where job pods are.
    pub(super) namespace: String,
    /// Who registers with the agent token.
    pub(super) registrar: Registrar,
    /// How pods prove who they are.
    pub(super) proof: RegistrationProof,
    /// Whether pods that are made from now on come here.
    pub(super) is_used: bool,
}

/// What every answer needs.
pub(super) struct Desk {
    pub(super) cluster: Cluster,
    pub(super) terms: watch::Receiver<Option<Arc<Terms>>>,
    pub(super) identity: watch::Receiver<Option<Identity>>,
    pub(super) sessions: Sessions,
    pub(super) metrics: Metrics,
    pub(super) room: Arc<Semaphore>,
    pub(super) turns: Turns,
    pub(super) visitors: Visitors,
}

/// What an agent shows that wants to register.
struct Shown {
    /// What its one-time token says.
    ticket: Ticket,
    /// The one-time token itself.
    token: String,
    /// A token of its pod's service account.
    proof: Option<String>,
    /// What it is answered by, whatever changes meanwhile.
    terms: Arc<Terms>,
}

/// Why an agent is not registered. What it reads of it is in its log.
#[derive(Debug)]
enum Failure {
    /// The one-time token is not accepted.
    Refused(Refusal),
    /// It may be, later.
    Later(&'static str, String),
    /// Buildkite says no.
    Rejected(StatusCode, String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Answers below this path.
pub(super) fn routes(path: &str, desk: Arc<Desk>) -> Router {
    let register = format!("{}/register", path.trim_end_matches('/'));
    Router::new()
        .route(&register, post(register_agent).fallback(nothing_here))
        .fallback(nothing_here)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(map_response(last_answer))
        .with_state(desk)
}

async fn nothing_here() -> Response {
    (StatusCode::NOT_FOUND, said("agents register here, and do nothing else")).into_response()
}

/// Room for as many registrations as may be under way at once.
pub(super) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

async fn register_agent(
    State(desk): State<Arc<Desk>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let begin = Instant::now();
    let peer = peer.ip().to_canonical();
    let (word, response) = match desk.room.clone().try_acquire_owned() {
        Err(_) => crowded(),
        Ok(permit) => match read(&desk, &headers) {
            Err(failure) => failed(failure, peer, None),
            Ok(shown) => {
                // It is large, and would be moved with each that it is wrapped in.
                let registering = Box::pin(register(&desk, peer, &shown, body, permit));
                match tokio::time::timeout(PATIENCE, registering).await.unwrap_or_else(|_| Err(late())) {
                    Ok(answer) => {
                        desk.visitors.welcome(peer);
                        ("registered", Json(answer).into_response())
                    }
                    Err(failure) => failed(failure, peer, Some(&shown.ticket)),
                }
            }
        },
    };
    desk.metrics.broker.registered(word, begin.elapsed());
    response
}

fn late() -> Failure {
    let seconds = PATIENCE.as_secs();
    Failure::Later(
        "slow",
        format!("the registration took longer than {seconds} s: the API server or Buildkite is slow"),
    )
}

/// What an agent hears that comes with too many others. It is counted, and not in the log, which as many would fill.
fn crowded() -> (&'static str, Response) {
    let response = (
        StatusCode::TOO_MANY_REQUESTS,
        [(header::RETRY_AFTER, "10")],
        said("too many agents register at once"),
    );
    ("crowded", response.into_response())
}

/// An agent has no other question.
async fn last_answer(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What an agent, the log and the metrics hear of a failure. No token is in any of it.
fn failed(failure: Failure, peer: IpAddr, ticket: Option<&Ticket>) -> (&'static str, Response) {
    let (word, status, message) = match failure {
        Failure::Refused(refusal) => (refusal.word(), StatusCode::UNAUTHORIZED, refusal.to_string()),
        Failure::Later(word, message) => (word, StatusCode::SERVICE_UNAVAILABLE, message),
        Failure::Rejected(status, message) => ("rejected", status, message),
    };
    let (build_job, job_uuid) = ticket.map(|ticket| (&ticket.build_job, &ticket.job_uuid)).unzip();
    tracing::warn!(%peer, build_job, job_uuid, outcome = word, reason = message, "an agent was not registered");
    (word, (status, said(&message)).into_response())
}

fn said(message: &str) -> Json<Value> {
    Json(json!({ "message": message }))
}

/// Reads what an agent shows: its one-time token has to be one of ours.
fn read(desk: &Desk, headers: &HeaderMap) -> Result<Shown, Failure> {
    let unready = |lack: &str| Failure::Later("unready", format!("the operator has {lack} yet"));
    let (terms, identity) = (desk.terms.borrow().clone(), desk.identity.borrow().clone());
    let terms = terms.ok_or_else(|| unready("not read its configuration"))?;
    let identity = identity.ok_or_else(|| unready("no key of one-time tokens"))?;
    let shown = token(headers).ok_or(Refusal::Unknown)?;
    let (shown, proof) =
        shown.split_once(SEPARATOR).map_or((shown, None), |(ticket, proof)| (ticket, Some(proof)));
    let ticket = Ticket::read(shown, &identity.ticket_key).ok_or(Refusal::Unknown)?;
    Ok(Shown { ticket, token: shown.to_owned(), proof: proof.map(str::to_owned), terms })
}

async fn register(
    desk: &Arc<Desk>,
    peer: IpAddr,
    shown: &Shown,
    body: Bytes,
    permit: OwnedSemaphorePermit,
) -> Result<Value, Failure> {
    let Shown { ticket, token, proof, terms } = shown;
    let is_used = |record: SessionRecord| record.bars(&ticket.uid, ticket.attempt);
    if desk.sessions.get(&ticket.job_uuid).is_some_and(is_used) {
        return Err(Refusal::Used.into());
    }
    let reviewed = async {
        match terms.proof {
            RegistrationProof::Address => Ok(None),
            RegistrationProof::ServiceAccount => review(desk, proof.as_deref()).await.map(Some),
        }
    };
    let (reviewed, pod) = tokio::try_join!(reviewed, find(desk, terms, ticket))?;
    let caller = reviewed.as_deref().map_or(Caller::Address(peer), Caller::Pod);
    let admitted = registration::decide(token, pod.as_ref(), caller, Timestamp::now())?;
    let busy = "another registration with this one-time token is under way, or has just come to nothing";
    let turn = desk.turns.take(ticket).ok_or_else(|| Failure::Later("busy", busy.to_owned()))?;
    let (answer, heard) = oneshot::channel();
    let (desk, terms, ticket) = (desk.clone(), terms.clone(), ticket.clone());
    tokio::spawn(async move {
        let registered = enrol(&desk, &terms, &ticket, &admitted, peer, &body).await;
        let is_registered = registered.is_ok();
        let is_unheard = answer.send(registered).is_err();
        if is_registered && is_unheard {
            withdraw(&desk, &terms, &ticket).await;
        }
        drop(permit);
        if !is_registered || is_unheard {
            turn.rest().await;
        }
    });
    heard.await.unwrap_or_else(|_| Err(Failure::Later("stopped", "the operator is about to stop".to_owned())))
}

/// What must not stop half-way, also if the caller does not wait for it: an agent that Buildkite knows of is on record, or leaves again.
async fn enrol(
    desk: &Desk,
    terms: &Terms,
    ticket: &Ticket,
    admitted: &Registration,
    peer: IpAddr,
    body: &[u8],
) -> Result<Value, Failure> {
    let answer = forward(terms, admitted, body).await?;
    keep(desk, terms, ticket, admitted, peer, answer).await
}

/// Takes back a session that nobody has been told of: whoever was to have it comes again.
async fn withdraw(desk: &Desk, terms: &Terms, ticket: &Ticket) {
    let record = desk.sessions.get(&ticket.job_uuid);
    if let Some(record) = record.filter(|record| record.is_of(&ticket.uid, ticket.attempt)) {
        desk.sessions.take_back(&ticket.job_uuid, &ticket.uid);
        disconnect(terms, &record).await;
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("token").then_some(token)
}

/// The pod as the API server has it now. In a `batch/v1` Job it has a name that the operator has not given it.
async fn find(desk: &Desk, terms: &Terms, ticket: &Ticket) -> Result<Option<Pod>, Failure> {
    let failed = |error: kube::Error| {
        let error = bk_ops::report::one_line(&error);
        Failure::Later("api_server", format!("the operator cannot look at the pod: {error}"))
    };
    let api = Api::<Applicant>::namespaced(desk.cluster.calls.clone(), &terms.namespace);
    let name = names::pod(&ticket.build_job, ticket.attempt);
    if let Some(pod) = api.get_opt(&name).await.map_err(failed)? {
        return Ok(Some(pod.into()));
    }
    let label = format!("{}={}", names::LABEL_BUILD_JOB, ticket.build_job);
    let found = api.list(&ListParams::default().labels(&label)).await.map_err(failed)?;
    let belongs = |pod: &Applicant| pod.name_any().starts_with(&format!("{name}-"));
    Ok(found.into_iter().find(belongs).map(Pod::from))
}

/// The UID of the pod that a service account token is bound to, as the API server vouches for.
async fn review(desk: &Desk, proof: Option<&str>) -> Result<String, Failure> {
    const POD: &str = "authentication.kubernetes.io/pod-uid";
    let proof = proof.ok_or(Refusal::Foreign)?;
    let spec = TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: Some(proof.to_owned()) };
    let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
    let api = Api::<TokenReview>::all(desk.cluster.calls.clone());
    let answer = api.create(&PostParams::default(), &review).await.map_err(|error| {
        let error = bk_ops::report::one_line(&error);
        Failure::Later("api_server", format!("the operator cannot have the pod's token reviewed: {error}"))
    })?;
    let is_good = |status: &TokenReviewStatus| {
        // Who does not know of audiences names none.
        let is_for_broker = status.audiences.iter().flatten().any(|audience| audience == AUDIENCE);
        status.authenticated == Some(true) && is_for_broker
    };
    let status = answer.status.filter(is_good).ok_or(Refusal::Foreign)?;
    let of_pod = |user: UserInfo| user.extra?.remove(POD)?.into_iter().next();
    Ok(status.user.and_then(of_pod).ok_or(Refusal::Foreign)?)
}

/// Registers the agent with the agent token. What it says about itself is passed on, but for what the operator has settled.
async fn forward(terms: &Terms, admitted: &Registration, body: &[u8]) -> Result<Value, Failure> {
    let unreadable = |_| Failure::Rejected(StatusCode::BAD_REQUEST, "the body is no JSON object".to_owned());
    let mut agent: Map<String, Value> = serde_json::from_slice(body).map_err(unreadable)?;
    agent.insert("name".to_owned(), json!(admitted.name));
    agent.insert("ignore_in_dispatches".to_owned(), json!(true));
    if let Some(tags) = &admitted.tags {
        agent.insert("meta_data".to_owned(), json!(tags));
    }
    terms.registrar.register(&agent).await.map_err(|error| match error.status() {
        // The token may be replaced meanwhile.
        Some(_) if error.is_refusal() => {
            Failure::Later("token", "Buildkite does not accept the operator's agent token".to_owned())
        }
        Some(status) if !error.is_retryable() => {
            let status = StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
            Failure::Rejected(status, bk_ops::report::one_line(&error))
        }
        _ => Failure::Later("buildkite", bk_ops::report::one_line(&error)),
    })
}

/// Puts the agent's session on record, and answers as Buildkite has, with where to go from here.
async fn keep(
    desk: &Desk,
    terms: &Terms,
    ticket: &Ticket,
    admitted: &Registration,
    peer: IpAddr,
    mut answer: Value,
) -> Result<Value, Failure> {
    let text = |key: &str| answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(agent), Some(token)) = (text("id"), text("access_token")) else {
        return Err(Failure::Later("buildkite", "Buildkite's answer is no registration".to_owned()));
    };
    let endpoint = text("endpoint").map(str::to_owned);
    let record = SessionRecord {
        build_job: ticket.uid.clone(),
        name: (ticket.build_job != names::build_job(&ticket.job_uuid)).then(|| ticket.build_job.clone()),
        namespace: terms.namespace.clone(),
        attempt: ticket.attempt,
        agent: agent.to_owned(),
        token: token.to_owned(),
        endpoint: endpoint.clone(),
        address: (!admitted.is_certain).then(|| peer.to_string()),
    };
    let former = desk.sessions.get(&ticket.job_uuid);
    if let Err(not_kept) = desk.sessions.add(ticket.job_uuid.clone(), record.clone()).await {
        disconnect(terms, &record).await;
        return Err(match not_kept {
            NotKept::Used => Refusal::Used.into(),
            NotKept::Failed(error) => Failure::Later("api_server", bk_ops::report::one_line(&error)),
        });
    }
    // An earlier attempt's agent is gone with its pod.
    if let Some(former) = former.filter(|former| former.is_before(&record)) {
        let terms = terms.clone();
        tokio::spawn(async move { disconnect(&terms, &former).await });
    }
    answer["endpoint"] = json!(endpoint.as_deref().unwrap_or(terms.registrar.endpoint()));
    let Ticket { job_uuid, build_job, .. } = ticket;
    tracing::info!(job_uuid, build_job, agent = record.agent, "an agent has registered");
    Ok(answer)
}

async fn disconnect(terms: &Terms, record: &SessionRecord) {
    let token = SecretString::from(record.token.clone());
    if let Ok(session) = terms.registrar.session(record.endpoint.as_deref(), &token) {
        Session::disconnect(&session).await;
    }
}
