//! Tokens with which a job proves to others who it is: what they claim. Pure; the key is in [`key`].

pub(crate) mod key;

use bk_buildkite::agent::TokenRequest;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::pipeline::env::Facts;

/// How long a token is good when the job does not say.
const LIFETIME: i64 = 5 * 60;
const MAX_LIFETIME: i64 = 24 * 60 * 60;
const MAX_AUDIENCE: usize = 1024;

/// The claims of every token.
pub(crate) const STANDARD: [&str; 11] = [
    "organization_slug",
    "pipeline_slug",
    "build_number",
    "build_branch",
    "build_tag",
    "build_commit",
    "build_source",
    "step_key",
    "job_id",
    "agent_id",
    "runner_environment",
];

/// The claims that a job can ask for, besides `agent_tag:NAME`.
pub(crate) const OPTIONAL: [&str; 7] =
    ["organization_id", "pipeline_id", "build_id", "cluster_id", "cluster_name", "queue_id", "queue_key"];

/// The claims that can be the subject: those that never change.
const SUBJECTS: [&str; 5] = ["organization_id", "pipeline_id", "build_id", "cluster_id", "queue_id"];

/// Where AWS looks for session tags.
const AWS_TAGS: &str = "https://aws.amazon.com/tags";

/// Why a token is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenProblem {
    #[error("lifetime {0} is not between 1 and {MAX_LIFETIME} seconds")]
    Lifetime(i64),
    #[error("the audience has more than {MAX_AUDIENCE} bytes or holds control characters")]
    Audience,
    #[error("there is no claim {0:?} to ask for; known are {known} and agent_tag:NAME", known = OPTIONAL.join(", "))]
    Claim(String),
    #[error("{0:?} cannot be an AWS session tag: there is no such claim")]
    SessionTag(String),
    #[error("{0:?} cannot be the subject; known are {known}", known = SUBJECTS.join(", "))]
    Subject(String),
}

/// The claims of a token for this job. `queue` is the id of the job's queue.
pub(crate) fn claims(
    request: &TokenRequest,
    facts: &Facts,
    queue: Option<Uuid>,
    now: Timestamp,
) -> Result<Map<String, Value>, TokenProblem> {
    let lifetime = match request.lifetime {
        0 => LIFETIME,
        seconds @ 1..=MAX_LIFETIME => seconds,
        seconds => return Err(TokenProblem::Lifetime(seconds)),
    };
    if request.audience.len() > MAX_AUDIENCE || request.audience.chars().any(char::is_control) {
        return Err(TokenProblem::Audience);
    }
    let audience = match request.audience.as_str() {
        "" => format!("https://buildkite.com/{}", facts.organization.slug),
        audience => audience.to_owned(),
    };
    let mut claims = Map::new();
    let issued = now.as_second();
    claims.insert("iss".to_owned(), json!(facts.organization.base_url));
    claims.insert("sub".to_owned(), json!(subject(request, facts, queue)?));
    claims.insert("aud".to_owned(), json!(audience));
    claims.insert("iat".to_owned(), json!(issued));
    claims.insert("nbf".to_owned(), json!(issued));
    claims.insert("exp".to_owned(), json!(issued + lifetime));
    claims.insert("jti".to_owned(), json!(Uuid::new_v4()));
    for name in STANDARD {
        claims.insert(name.to_owned(), value(name, facts, queue).unwrap_or_default());
    }
    for name in &request.claims {
        if !OPTIONAL.contains(&name.as_str()) && !is_agent_tag(name) {
            return Err(TokenProblem::Claim(name.clone()));
        }
        if let Some(value) = value(name, facts, queue) {
            claims.insert(name.clone(), value);
        }
    }
    if !request.aws_session_tags.is_empty() {
        claims.insert(AWS_TAGS.to_owned(), session_tags(&request.aws_session_tags, facts, queue)?);
    }
    Ok(claims)
}

fn is_agent_tag(name: &str) -> bool {
    name.strip_prefix("agent_tag:").is_some_and(|tag| !tag.is_empty())
}

/// Tags are lists of texts, whatever the claim is.
fn session_tags(names: &[String], facts: &Facts, queue: Option<Uuid>) -> Result<Value, TokenProblem> {
    let mut tags = Map::new();
    for name in names {
        let known = STANDARD.contains(&name.as_str()) || OPTIONAL.contains(&name.as_str());
        if !known && !is_agent_tag(name) {
            return Err(TokenProblem::SessionTag(name.clone()));
        }
        let text = match value(name, facts, queue) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        tags.insert(name.clone(), json!([text]));
    }
    Ok(json!({ "principal_tags": tags }))
}

fn subject(request: &TokenRequest, facts: &Facts, queue: Option<Uuid>) -> Result<String, TokenProblem> {
    if !request.subject_claim.is_empty() {
        let name = &request.subject_claim;
        return Some(name)
            .filter(|name| SUBJECTS.contains(&name.as_str()))
            .and_then(|name| value(name, facts, queue))
            .and_then(|value| value.as_str().map(str::to_owned))
            .ok_or_else(|| TokenProblem::Subject(name.clone()));
    }
    let reference = match facts.build.tag.as_deref() {
        Some(tag) if !tag.is_empty() => format!("refs/tags/{tag}"),
        _ => format!("refs/heads/{}", facts.build.branch),
    };
    Ok(format!(
        "organization:{}:pipeline:{}:ref:{reference}:commit:{}:step:{}",
        facts.organization.slug,
        facts.pipeline.slug,
        facts.build.commit,
        facts.step.key.as_deref().unwrap_or_default(),
    ))
}

/// The value of a claim, when the job has one.
fn value(name: &str, facts: &Facts, queue: Option<Uuid>) -> Option<Value> {
    let Facts { organization, pipeline, build, .. } = facts;
    Some(match name {
        "organization_slug" => json!(organization.slug),
        "organization_id" => json!(organization.id),
        "cluster_id" => json!(organization.cluster_id),
        "cluster_name" => json!(organization.cluster_name),
        "pipeline_slug" => json!(pipeline.slug),
        "pipeline_id" => json!(pipeline.id),
        "build_number" => json!(build.number),
        "build_branch" => json!(build.branch),
        "build_tag" => json!(build.tag),
        "build_commit" => json!(build.commit),
        "build_source" => json!(build.source),
        "build_id" => json!(build.id),
        "step_key" => json!(facts.step.key),
        "job_id" => json!(facts.job.id),
        "agent_id" => json!(facts.agent.as_ref()?.id),
        "runner_environment" => json!("self-hosted"),
        "queue_id" => json!(queue?),
        "queue_key" => json!(facts.job.queue),
        tag => {
            let wanted = tag.strip_prefix("agent_tag:")?;
            let tags = &facts.agent.as_ref()?.tags;
            json!(tags.iter().find_map(|tag| match tag.split_once('=') {
                Some((key, value)) => (key == wanted).then_some(value),
                None => (tag == wanted).then_some("true"),
            })?)
        }
    })
}
