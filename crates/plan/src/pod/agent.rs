//! The container that talks to Buildkite.
//!

use bk_api::{BuildJob, build_job::BuildkiteJob, config::ImageCheck, names};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec};

use super::{
    AGENT_CONTAINER, PodSettings, WORKSPACE, agent_config,
    git::Git,
    registration, resources,
    shim::{self, Run},
    tags,
    variables::{env, literal, set_all},
};

/// What the agent hides in logs by default; a list given to it replaces its own.
const REDACTED_VARS: &str = "*_PASSWORD,*_SECRET,*_TOKEN,*_PRIVATE_KEY,*_SSH_KEY,*_ACCESS_KEY,*_SECRET_KEY,\
                             *_CONNECTION_STRING,*_API_KEY";

const CONTAINER_COUNT: &str = "BUILDKITE_CONTAINER_COUNT";

/// The `agent` container as patches see it: without what depends on the other containers.
pub(super) fn container(job: &BuildJob, attempt: u32, git: &Git, settings: &PodSettings) -> Container {
    let name = names::pod(job.metadata.name.as_deref().unwrap_or_default(), attempt);
    let environment = |buildkite| {
        let mut vars = environment(buildkite, &name, settings);
        vars.extend(registration::variables(job, buildkite, attempt, settings));
        set_all(&mut vars, agent_config::start_env(&settings.config));
        set_all(&mut vars, git.start_env());
        vars
    };
    Container {
        name: AGENT_CONTAINER.to_owned(),
        image: Some(settings.config.agent_image.clone()),
        env: job.spec.buildkite.as_ref().map(environment),
        resources: Some(resources::or_small(settings.config.resources.agent.as_ref(), resources::AGENT)),
        ..Container::default()
    }
}

/// Tells the agent which containers it waits for, and how long the pod may take to end.
pub(super) fn finish(
    agent: &mut Container,
    job: &BuildJob,
    spec: &PodSpec,
    run: &Run,
    settings: &PodSettings,
) {
    let line = shim::line_of(agent, "buildkite-agent", &["start"]);
    agent.command = Some(run.agent(&line));
    if job.spec.buildkite.is_none() {
        return;
    }
    let grace =
        spec.termination_grace_period_seconds.unwrap_or(settings.config.termination_grace_period_seconds);
    let vars = agent.env.get_or_insert_default();
    vars.retain(|var| var.name != CONTAINER_COUNT);
    vars.push(env(CONTAINER_COUNT, run.names.len().to_string()));
    for (name, value) in [
        ("BUILDKITE_CANCEL_GRACE_PERIOD", grace.max(1)),
        ("BUILDKITE_SIGNAL_GRACE_PERIOD_SECONDS", (grace.saturating_sub(10)).max(0)),
    ] {
        if !vars.iter().any(|var| var.name == name) {
            vars.push(env(name, value.to_string()));
        }
    }
}

/// Patterns of the variables whose values the agent hides in logs.
pub(super) fn redacted_vars(settings: &PodSettings) -> EnvVar {
    let more = settings.config.additional_redacted_vars.iter().map(String::as_str);
    let patterns: Vec<_> = [REDACTED_VARS].into_iter().chain(more).collect();
    env("BUILDKITE_REDACTED_VARS", patterns.join(","))
}

fn environment(job: &BuildkiteJob, name: &str, settings: &PodSettings) -> Vec<EnvVar> {
    let mut vars = vec![env("BUILDKITE_KUBERNETES_EXEC", "true"), env("BUILDKITE_AGENT_NAME", name)];
    if settings.config.image_check != ImageCheck::None {
        // The fence has proved that all containers run; the agent need not watch for it.
        vars.push(env("BUILDKITE_KUBERNETES_CONTAINER_START_TIMEOUT", "0s"));
    }
    vars.extend([
        env("BUILDKITE_AGENT_TAGS", literal(&tags::of(job, settings).join(","))),
        from_field("BUILDKITE_K8S_NODE", "spec.nodeName"),
        from_field("BUILDKITE_K8S_NAMESPACE", "metadata.namespace"),
        from_field("BUILDKITE_K8S_SERVICE_ACCOUNT", "spec.serviceAccountName"),
        env("BUILDKITE_BUILD_PATH", format!("{WORKSPACE}/build")),
        env(agent_config::HOOKS, agent_config::hooks_path(&settings.config)),
        env("BUILDKITE_PLUGINS_PATH", agent_config::plugins_path(&settings.config)),
        env("BUILDKITE_SOCKETS_PATH", format!("{WORKSPACE}/sockets/agent")),
        env("BUILDKITE_SHELL", "/bin/sh -ec"),
        // An agent with one job has no use for a stream of pings.
        env("BUILDKITE_AGENT_PING_MODE", "poll-only"),
        env("BUILDKITE_AGENT_ACQUIRE_JOB", literal(&job.job_uuid)),
        redacted_vars(settings),
    ]);
    vars
}

/// A variable that Kubernetes fills with a field of the pod.
pub(super) fn from_field(name: &str, path: &str) -> EnvVar {
    let field_ref =
        Some(ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() });
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref, ..EnvVarSource::default() }),
    }
}
