//! What conditions can ask about a build.

use std::collections::BTreeMap;

use bk_pipeline::condition::{Facts, Literal};
use bk_pipeline::step::Env;
use uuid::Uuid;

use crate::store::builds::BuildRow;
use crate::store::pipelines::PipelineRow;

/// The facts of a build. `known` are the standard variables that do not depend on a job.
pub(crate) fn of_build(
    organization: (&str, Uuid),
    pipeline: &PipelineRow,
    build: &BuildRow,
    known: &Env,
) -> Facts {
    let mut env = build.pipeline_env.clone();
    env.extend(build.env.clone());
    env.extend(known.clone());
    let text = |text: &str| Literal::Text(text.to_owned());
    let maybe = |value: Option<&str>| value.filter(|value| !value.is_empty()).map_or(Literal::Null, text);
    let (name, email) = match &build.author {
        Some((name, email)) => (Some(name.as_str()), Some(email.as_str())),
        None => (None, None),
    };
    let mut variables = BTreeMap::from([
        ("organization.slug", text(organization.0)),
        ("organization.id", text(&organization.1.to_string())),
        ("pipeline.slug", text(&pipeline.slug)),
        ("pipeline.id", text(&pipeline.id.to_string())),
        ("pipeline.default_branch", text(&pipeline.default_branch)),
        ("pipeline.repository", text(&pipeline.repository)),
        ("build.id", text(&build.id.to_string())),
        ("build.number", Literal::Int(build.number)),
        ("build.branch", text(&build.branch)),
        ("build.commit", text(&build.commit)),
        ("build.message", text(&build.message)),
        ("build.source", text(&build.source)),
        ("build.state", text(build.state.as_str())),
        ("build.tag", maybe(build.tag.as_deref())),
        ("build.author.name", maybe(name)),
        ("build.author.email", maybe(email)),
        ("build.creator.name", maybe(name)),
        ("build.creator.email", maybe(email)),
    ]);
    variables.extend(pull_request(pipeline, build));
    Facts::new(variables, env)
}

fn pull_request(pipeline: &PipelineRow, build: &BuildRow) -> Vec<(&'static str, Literal)> {
    let Some(request) = &build.pull_request else { return Vec::new() };
    let text = |text: &String| {
        Some(text).filter(|text| !text.is_empty()).cloned().map_or(Literal::Null, Literal::Text)
    };
    let id = request.id.parse().map_or_else(|_| text(&request.id), Literal::Int);
    let fork = !request.repository.is_empty() && request.repository != pipeline.repository;
    vec![
        ("build.pull_request.id", id),
        ("build.pull_request.base_branch", text(&request.base_branch)),
        ("build.pull_request.draft", Literal::Bool(request.draft)),
        ("build.pull_request.labels", Literal::List(request.labels.clone())),
        ("build.pull_request.repository", text(&request.repository)),
        ("build.pull_request.repository.fork", Literal::Bool(fork)),
    ]
}
