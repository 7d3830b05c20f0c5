//! What the managed containers run: the agent's bootstrap, phase by phase.
//!
//! A Buildkite job's bootstrap connects to the `agent` container, which hands out the environment and relays
//! logs and exit statuses. A standalone job's bootstrap finds its environment in the container.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::{Container, EnvVar};

use super::{
    CHECKOUT_CONTAINER, PodSettings, WORKSPACE, agent, agent_config,
    checkout::Checkout,
    git::{self, Git},
    plugin_directories,
    shim::{self, Run},
    variables::{env, literal, set_all},
    workload::CommandContainer,
};
use crate::trace::Trace;

/// The agent where its container delivers it.
pub(super) const AGENT_BINARY: &str = "/workspace/buildkite-agent";
const PHASES: &str = "BUILDKITE_BOOTSTRAP_PHASES";
const SHELL: &str = "/bin/sh -ec";

/// The span that the bootstrap's own spans are within.
const TRACE_PARENT: &str = "BUILDKITE_TRACING_TRACEPARENT";

/// What a standalone job may know better itself, as when it comes from a Buildkite job.
const BETTER_KNOWN: [&str; 6] = [
    "BUILDKITE_SHELL",
    "BUILDKITE_JOB_ID",
    "BUILDKITE_ORGANIZATION_SLUG",
    "BUILDKITE_PIPELINE_SLUG",
    "BUILDKITE_PIPELINE_PROVIDER",
    "BUILDKITE_PULL_REQUEST",
];

/// A managed container and what it has to do when its turn comes.
pub(super) struct Turn {
    pub(super) container: Container,
    phases: &'static str,
    script: Option<String>,
}

/// The managed containers in the order of their turns.
pub(super) fn turns(commands: Vec<CommandContainer>, checkout: Checkout) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(commands.len() + 1);
    let mut first_phases = "plugin,command";
    match checkout {
        Checkout::Skipped => {}
        Checkout::InCommand => first_phases = "plugin,checkout,command",
        Checkout::Own(container) => {
            turns.push(Turn { container: *container, phases: "plugin,checkout", script: None });
        }
    }
    for (index, CommandContainer { container, script }) in commands.into_iter().enumerate() {
        let phases = if index == 0 { first_phases } else { "plugin,command" };
        turns.push(Turn { container, phases, script });
    }
    turns
}

/// Whether a finished container checks out the source.
pub(super) fn checks_out(container: &Container) -> bool {
    let mut phases = container.env.iter().flatten().filter(|var| var.name == PHASES);
    phases.any(|var| var.value.as_ref().is_some_and(|phases| phases.contains("checkout")))
}

/// The managed containers, ready for the pod.
pub(super) fn containers(
    job: &BuildJob,
    turns: Vec<Turn>,
    run: &Run,
    git: &Git,
    settings: &PodSettings,
) -> Vec<Container> {
    turns.into_iter().enumerate().map(|(id, turn)| container(job, id, turn, run, git, settings)).collect()
}

fn container(
    job: &BuildJob,
    id: usize,
    turn: Turn,
    run: &Run,
    git: &Git,
    settings: &PodSettings,
) -> Container {
    let Turn { mut container, phases, script } = turn;
    let bootstrap = if run.standalone { "bootstrap" } else { "kubernetes-bootstrap" };
    let command = shim::line_of(&mut container, AGENT_BINARY, &[bootstrap]);
    let own_checkout = container.name == CHECKOUT_CONTAINER;
    container.command = Some(if own_checkout {
        run.checkout(&container.name, &git.credentials().private_files(), &command)
    } else {
        run.job(&container.name, &command)
    });

    let vars = container.env.get_or_insert_default();
    if !own_checkout {
        vars.extend(job.spec.env.iter().cloned());
        if run.shared && !vars.iter().any(|var| var.name == git::COUNT) {
            vars.extend(git::settings(&[git::trust()]));
        }
    }
    let known: Vec<&str> =
        BETTER_KNOWN.into_iter().filter(|name| vars.iter().any(|var| var.name == *name)).collect();
    vars.push(env(PHASES, phases));
    if let Some(script) = script {
        vars.push(env("BUILDKITE_COMMAND", script));
    }
    vars.push(env("BUILDKITE_CONTAINER_ID", id.to_string()));
    vars.push(env("BUILDKITE_SOCKETS_PATH", format!("{WORKSPACE}/sockets/{}", container.name)));
    let joins =
        agent_config::joins_traces(&settings.config) && !vars.iter().any(|var| var.name == TRACE_PARENT);
    if let Some(trace) = Trace::of(job).filter(|_| joins) {
        vars.push(env(TRACE_PARENT, trace.parent()));
    }
    if run.standalone {
        let mut told = standalone_env(job, settings);
        set_all(&mut told, agent_config::bootstrap_env(&settings.config));
        set_all(&mut told, git.bootstrap_env());
        told.retain(|var| !known.contains(&var.name.as_str()));
        vars.extend(told);
    }
    container
}

/// What the agent would have told a standalone job's bootstrap.
fn standalone_env(job: &BuildJob, settings: &PodSettings) -> Vec<EnvVar> {
    let name = job.metadata.name.clone().unwrap_or_default();
    let id = job.metadata.uid.clone().unwrap_or_else(|| name.clone());
    let mut vars = vec![
        env("CI", "true"),
        env("BUILDKITE", "true"),
        env("BUILDKITE_JOB_ID", id),
        env("BUILDKITE_AGENT_NAME", "standalone"),
        env(
            "BUILDKITE_ORGANIZATION_SLUG",
            job.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        ),
        env("BUILDKITE_PIPELINE_SLUG", name),
        env("BUILDKITE_PIPELINE_PROVIDER", "git"),
        env("BUILDKITE_PULL_REQUEST", "false"),
        env("BUILDKITE_BIN_PATH", WORKSPACE),
        env("BUILDKITE_BUILD_PATH", format!("{WORKSPACE}/build")),
        env("BUILDKITE_BUILD_CHECKOUT_PATH", format!("{WORKSPACE}/build/buildkite")),
        env(agent_config::HOOKS, agent_config::hooks_path(&settings.config)),
        env("BUILDKITE_PLUGINS_PATH", agent_config::plugins_path(&settings.config)),
        env("BUILDKITE_SHELL", SHELL),
        agent::redacted_vars(settings),
        // Nobody is there to be told which commit was resolved.
        env("BUILDKITE_COMMIT_RESOLVED", "true"),
        env(
            "BUILDKITE_CANCEL_GRACE_PERIOD",
            settings.config.termination_grace_period_seconds.max(1).to_string(),
        ),
    ];
    match &job.spec.source {
        Some(source) => vars.extend([
            env("BUILDKITE_REPO", &source.repo),
            env("BUILDKITE_COMMIT", &source.commit),
            env("BUILDKITE_BRANCH", &source.branch),
        ]),
        // The bootstrap insists on a repository even when it is told not to use it.
        None => vars.extend([
            env("BUILDKITE_SKIP_CHECKOUT", "true"),
            env("BUILDKITE_REPO", "none"),
            env("BUILDKITE_COMMIT", "HEAD"),
            env("BUILDKITE_BRANCH", "main"),
        ]),
    }
    let plugins = plugin_directories::standalone(&job.spec.plugins);
    if !plugins.is_empty() {
        vars.push(env("BUILDKITE_PLUGINS", literal(&serde_json::Value::from(plugins).to_string())));
    }
    vars
}
