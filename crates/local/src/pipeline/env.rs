//! The environment of a job.
//!
//! Lowest to highest: the pipeline's `env`, the build's (with that of uploads), the step's, the standard
//! variables. Variables that the agent owns are never set here: each would draw a warning in the log.

use bk_pipeline::variables;
use uuid::Uuid;

use super::step::{Command, Env, Step};
use crate::build::Job;
use crate::store::builds::{BuildRow, PullRequest};
use crate::store::pipelines::PipelineRow;

/// Everything the environment of a job is made of.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) organization: Organization,
    pub(crate) pipeline: PipelineRow,
    pub(crate) build: BuildRow,
    /// The step as it is written.
    pub(crate) written: Step,
    /// The step as this job sees it, with its combination of a matrix filled in.
    pub(crate) step: Step,
    /// Who answered a block step of the build last.
    pub(crate) unblocker: Option<Person>,
    pub(crate) group: Option<Group>,
    pub(crate) job: Job,
    /// Present once an agent has the job.
    pub(crate) agent: Option<Agent>,
}

/// Whose server this is.
#[derive(Debug, Clone)]
pub(crate) struct Organization {
    pub(crate) slug: String,
    pub(crate) id: Uuid,
    pub(crate) cluster_id: Uuid,
    pub(crate) cluster_name: String,
    /// Where people reach this server, without a trailing slash.
    pub(crate) base_url: String,
}

/// The group of the job's step.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) id: Uuid,
    pub(crate) key: Option<String>,
    pub(crate) label: Option<String>,
}

/// Somebody who did something.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) email: String,
}

/// The agent that has the job.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// `key=value`, or bare words.
    pub(crate) tags: Vec<String>,
}

impl Facts {
    /// The page of the build.
    pub(crate) fn build_url(&self) -> String {
        format!(
            "{}/{}/{}/builds/{}",
            self.organization.base_url, self.organization.slug, self.pipeline.slug, self.build.number
        )
    }
}

/// The environment of a job that runs `command`.
pub(crate) fn environment(facts: &Facts, command: &Command) -> Env {
    let mut env = facts.build.pipeline_env.clone();
    env.extend(facts.build.env.clone());
    env.extend(variables::of_step(&facts.step, command));
    let mut set = |name: &str, value: &str| {
        env.insert(name.to_owned(), value.to_owned());
    };
    organization(facts, &mut set);
    build(facts, &mut set);
    job(facts, &mut set);
    if let Some(agent) = &facts.agent {
        bound(agent, &mut set);
    }
    env
}

fn organization(facts: &Facts, set: &mut impl FnMut(&str, &str)) {
    let Facts { organization, pipeline, .. } = facts;
    set("CI", "true");
    set("BUILDKITE", "true");
    set("BUILDKITE_ORGANIZATION_SLUG", &organization.slug);
    set("BUILDKITE_ORGANIZATION_ID", &organization.id.to_string());
    set("BUILDKITE_CLUSTER_ID", &organization.cluster_id.to_string());
    set("BUILDKITE_CLUSTER_NAME", &organization.cluster_name);
    set("BUILDKITE_COMPUTE_TYPE", "self-hosted");
    set("BUILDKITE_PIPELINE_ID", &pipeline.id.to_string());
    set("BUILDKITE_PIPELINE_SLUG", &pipeline.slug);
    set("BUILDKITE_PIPELINE_NAME", &pipeline.name);
    set("BUILDKITE_PIPELINE_DEFAULT_BRANCH", &pipeline.default_branch);
    set("BUILDKITE_PIPELINE_PROVIDER", "git");
    set("BUILDKITE_PIPELINE_TEAMS", "");
    set("BUILDKITE_PROJECT_SLUG", &format!("{}/{}", organization.slug, pipeline.slug));
    set("BUILDKITE_PROJECT_PROVIDER", "git");
    set("BUILDKITE_REPO", &pipeline.repository);
}

fn build(facts: &Facts, set: &mut impl FnMut(&str, &str)) {
    let build = &facts.build;
    set("BUILDKITE_BUILD_ID", &build.id.to_string());
    set("BUILDKITE_BUILD_NUMBER", &build.number.to_string());
    set("BUILDKITE_BUILD_URL", &facts.build_url());
    set("BUILDKITE_BRANCH", &build.branch);
    set("BUILDKITE_TAG", build.tag.as_deref().unwrap_or_default());
    set("BUILDKITE_COMMIT", &build.commit);
    // `false` lets the checkout resolve HEAD and record the commit as meta-data.
    set("BUILDKITE_COMMIT_RESOLVED", "false");
    set("BUILDKITE_MESSAGE", &build.message);
    set("BUILDKITE_SOURCE", &build.source);
    let (name, email) = build.author.as_ref().map_or(("", ""), |(name, email)| (name, email));
    for who in ["AUTHOR", "CREATOR"] {
        set(&format!("BUILDKITE_BUILD_{who}"), name);
        set(&format!("BUILDKITE_BUILD_{who}_EMAIL"), email);
    }
    set("BUILDKITE_BUILD_CREATOR_TEAMS", "");
    origin(build, set);
    pull_request(build.pull_request.as_ref(), set);
}

/// The builds that this one comes from.
fn origin(build: &BuildRow, set: &mut impl FnMut(&str, &str)) {
    let (id, number) =
        build.rebuilt_from.map_or_else(Default::default, |(id, number)| (id.to_string(), number.to_string()));
    set("BUILDKITE_REBUILT_FROM_BUILD_ID", &id);
    set("BUILDKITE_REBUILT_FROM_BUILD_NUMBER", &number);
    let (id, number, slug) = build.triggered_from.as_ref().map_or_else(Default::default, |from| {
        (from.build.to_string(), from.number.to_string(), from.pipeline.clone())
    });
    set("BUILDKITE_TRIGGERED_FROM_BUILD_ID", &id);
    set("BUILDKITE_TRIGGERED_FROM_BUILD_NUMBER", &number);
    set("BUILDKITE_TRIGGERED_FROM_BUILD_PIPELINE_SLUG", &slug);
}

fn pull_request(pull_request: Option<&PullRequest>, set: &mut impl FnMut(&str, &str)) {
    let none = PullRequest::default();
    let shown = pull_request.unwrap_or(&none);
    // The literal `false`: an empty value makes some checkouts fetch a pull request that is none.
    set("BUILDKITE_PULL_REQUEST", pull_request.map_or("false", |one| &one.id));
    set("BUILDKITE_PULL_REQUEST_BASE_BRANCH", &shown.base_branch);
    set("BUILDKITE_PULL_REQUEST_REPO", &shown.repository);
    if pull_request.is_some() {
        set("BUILDKITE_PULL_REQUEST_LABELS", &shown.labels.join(","));
    }
    if shown.draft {
        set("BUILDKITE_PULL_REQUEST_DRAFT", "true");
    }
}

fn job(facts: &Facts, set: &mut impl FnMut(&str, &str)) {
    set("BUILDKITE_JOB_ID", &facts.job.id.to_string());
    set("BUILDKITE_STEP_ID", &facts.job.step.to_string());
    set("BUILDKITE_RETRY_COUNT", &facts.job.retry_count.to_string());
    if let Some((index, count)) = facts.job.parallel {
        set("BUILDKITE_PARALLEL_JOB", &index.to_string());
        set("BUILDKITE_PARALLEL_JOB_COUNT", &count.to_string());
    }
    if let Some(group) = &facts.group {
        set("BUILDKITE_GROUP_ID", &group.id.to_string());
        set("BUILDKITE_GROUP_KEY", group.key.as_deref().unwrap_or_default());
        set("BUILDKITE_GROUP_LABEL", group.label.as_deref().unwrap_or_default());
    }
    if let Some(person) = &facts.unblocker {
        set("BUILDKITE_UNBLOCKER", &person.name);
        set("BUILDKITE_UNBLOCKER_EMAIL", &person.email);
        set("BUILDKITE_UNBLOCKER_ID", &person.id.to_string());
        set("BUILDKITE_UNBLOCKER_TEAMS", "");
    }
}

/// What only a job with an agent has.
fn bound(agent: &Agent, set: &mut impl FnMut(&str, &str)) {
    set("BUILDKITE_AGENT_ID", &agent.id.to_string());
    set("BUILDKITE_AGENT_NAME", &agent.name);
    for tag in &agent.tags {
        let (key, value) = tag.split_once('=').unwrap_or((tag, "true"));
        let name: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        set(&format!("BUILDKITE_AGENT_META_DATA_{name}"), value);
    }
}

#[cfg(test)]
mod tests;
