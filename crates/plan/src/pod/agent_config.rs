//! `pod_config.agentConfig`: the agent's settings as variables, and the volumes with hooks, plugins and keys.
//!
//! `buildkite-agent start` and `buildkite-agent bootstrap`, which standalone jobs run, know some settings under different
//! names: what one is told not to do, the other is told to do.

use bk_api::config::{AgentConfig, PodConfig};
use k8s_openapi::api::core::v1::{EnvVar, Volume, VolumeMount};

use super::{WORKSPACE, mount, variables::env};

const SIGNING_DIRECTORY: &str = "/buildkite/signing-jwks";
const VERIFICATION_DIRECTORY: &str = "/buildkite/verification-jwks";
const PLUGINS_VOLUME: &str = "buildkite-plugins";
/// The key set's file where the configuration names none.
const KEY_FILE: &str = "key";

/// The variable with the directory where hooks are looked for.
pub(super) const HOOKS: &str = "BUILDKITE_HOOKS_PATH";
/// The variable with further such directories.
const MORE_HOOKS: &str = "BUILDKITE_ADDITIONAL_HOOKS_PATHS";

/// What a container does, and so what it needs of the agent's things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Talks to Buildkite.
    Agent,
    /// Checks out.
    Checkout,
    /// Runs a command.
    Command,
}

/// Where the agent looks for hooks.
pub(super) fn hooks_path(config: &PodConfig) -> String {
    path(config, |agent| agent.hooks_path.as_deref(), "hooks")
}

/// Where the agent puts plugins.
pub(super) fn plugins_path(config: &PodConfig) -> String {
    path(config, |agent| agent.plugins_path.as_deref(), "plugins")
}

fn path(config: &PodConfig, choose: impl Fn(&AgentConfig) -> Option<&str>, default: &str) -> String {
    let chosen = config.agent_config.as_ref().and_then(choose);
    chosen.map_or_else(|| format!("{WORKSPACE}/{default}"), str::to_owned)
}

/// A setting of the agent.
struct Setting {
    value: String,
    /// The variable of `start`.
    start: &'static str,
    /// The variable of `bootstrap` and its value, if it knows the setting.
    bootstrap: Option<(&'static str, String)>,
}

/// Whether the agent's spans become part of a trace that others have begun.
pub(super) fn joins_traces(config: &PodConfig) -> bool {
    config.agent_config.as_ref().is_some_and(|agent| agent.tracing_propagate_traceparent == Some(true))
}

/// The settings as variables of `buildkite-agent start`.
pub(super) fn start_env(config: &PodConfig) -> Vec<EnvVar> {
    let settings = config.agent_config.iter().flat_map(settings);
    settings.map(|setting| env(setting.start, setting.value)).collect()
}

/// The settings as variables of `buildkite-agent bootstrap`.
pub(super) fn bootstrap_env(config: &PodConfig) -> Vec<EnvVar> {
    let settings = config.agent_config.iter().flat_map(settings);
    settings.filter_map(|setting| setting.bootstrap).map(|(name, value)| env(name, value)).collect()
}

fn settings(config: &AgentConfig) -> Vec<Setting> {
    let switches = [
        same("BUILDKITE_STRICT_SINGLE_HOOKS", config.strict_single_hooks),
        same("BUILDKITE_TRACING_PROPAGATE_TRACEPARENT", config.tracing_propagate_traceparent),
        same("BUILDKITE_GIT_SKIP_FETCH_EXISTING_COMMITS", config.git_skip_fetch_existing_commits),
        start("BUILDKITE_NO_HTTP2", config.no_http2),
        start("BUILDKITE_AGENT_NO_COLOR", config.no_color),
        start("BUILDKITE_NO_MULTIPART_ARTIFACT_UPLOAD", config.no_multipart_artifact_upload),
        start("BUILDKITE_AGENT_DEBUG_SIGNING", config.debug_signing),
        opposite("BUILDKITE_NO_PTY", "BUILDKITE_PTY", config.no_pty),
        opposite("BUILDKITE_NO_COMMAND_EVAL", "BUILDKITE_COMMAND_EVAL", config.no_command_eval),
        opposite("BUILDKITE_NO_LOCAL_HOOKS", "BUILDKITE_LOCAL_HOOKS_ENABLED", config.no_local_hooks),
        opposite("BUILDKITE_NO_PLUGINS", "BUILDKITE_PLUGINS_ENABLED", config.no_plugins),
        opposite(
            "BUILDKITE_NO_PLUGIN_VALIDATION",
            "BUILDKITE_PLUGIN_VALIDATION",
            config.plugin_validation.map(|validate| !validate),
        ),
    ];
    let signing_file =
        file(config.signing_jwks_file.as_deref(), config.signing_jwks_volume.as_ref(), SIGNING_DIRECTORY);
    let verification_file = file(
        config.verification_jwks_file.as_deref(),
        config.verification_jwks_volume.as_ref(),
        VERIFICATION_DIRECTORY,
    );
    let texts = [
        same("BUILDKITE_AGENT_EXPERIMENT", list(&config.experiment)),
        same("BUILDKITE_SHELL", config.shell.clone()),
        same("BUILDKITE_TRACE_CONTEXT_ENCODING", config.trace_context_encoding.clone()),
        same("BUILDKITE_TRACING_BACKEND", config.tracing_backend.clone()),
        same("BUILDKITE_TRACING_SERVICE_NAME", config.tracing_service_name.clone()),
        same("BUILDKITE_AGENT_DISABLE_WARNINGS_FOR", list(&config.disable_warnings_for)),
        same(HOOKS, config.hooks_path.clone()),
        same(MORE_HOOKS, list(&additional_hooks_paths(config))),
        same("BUILDKITE_PLUGINS_PATH", config.plugins_path.clone()),
        start("BUILDKITE_KUBERNETES_CONTAINER_START_TIMEOUT", config.container_start_timeout.clone()),
        start("BUILDKITE_AGENT_SIGNING_JWKS_FILE", signing_file),
        start("BUILDKITE_AGENT_SIGNING_JWKS_KEY_ID", config.signing_jwks_key_id.clone()),
        start("BUILDKITE_AGENT_VERIFICATION_JWKS_FILE", verification_file),
        // Left out, it means `block`: who verifies signatures does not want jobs without one.
        start(
            "BUILDKITE_AGENT_JOB_VERIFICATION_NO_SIGNATURE_BEHAVIOR",
            config.verification_failure_behavior.clone(),
        ),
    ];
    switches.into_iter().chain(texts).flatten().collect()
}

/// A setting that both know under one name.
fn same(name: &'static str, value: Option<impl ToString>) -> Option<Setting> {
    let value = value?.to_string();
    Some(Setting { bootstrap: Some((name, value.clone())), start: name, value })
}

/// A setting of `start` alone.
fn start(name: &'static str, value: Option<impl ToString>) -> Option<Setting> {
    Some(Setting { value: value?.to_string(), start: name, bootstrap: None })
}

/// A setting that `bootstrap` has the other way round.
fn opposite(start: &'static str, bootstrap: &'static str, value: Option<bool>) -> Option<Setting> {
    let value = value?;
    Some(Setting { value: value.to_string(), start, bootstrap: Some((bootstrap, (!value).to_string())) })
}

fn list(items: &[String]) -> Option<String> {
    (!items.is_empty()).then(|| items.join(","))
}

fn additional_hooks_paths(config: &AgentConfig) -> Vec<String> {
    let volumes = config.additional_hooks.iter().map(|hooks| hooks.path.clone());
    config.additional_hooks_paths.iter().cloned().chain(volumes).collect()
}

/// Has the agent look for hooks in one more directory.
pub(super) fn add_hooks_path(vars: &mut Vec<EnvVar>, directory: &str) {
    match vars.iter_mut().find(|var| var.name == MORE_HOOKS) {
        Some(EnvVar { value: Some(paths), .. }) if !paths.is_empty() => {
            paths.push(',');
            paths.push_str(directory);
        }
        Some(var) => *var = env(MORE_HOOKS, directory),
        None => vars.push(env(MORE_HOOKS, directory)),
    }
}

/// The key set's file: as named, below `directory` if that is no absolute path, or where its volume is mounted.
fn file(named: Option<&str>, volume: Option<&Volume>, directory: &str) -> Option<String> {
    match named {
        Some(file) if file.starts_with('/') => Some(file.to_owned()),
        Some(file) => Some(format!("{directory}/{file}")),
        None => volume.map(|_| format!("{directory}/{KEY_FILE}")),
    }
}

/// Where the volume with a key set is mounted: where the file is.
fn key_directory(named: Option<&str>, directory: &str) -> String {
    match named.filter(|file| file.starts_with('/')).and_then(|file| file.rsplit_once('/')) {
        Some((above, _)) if !above.is_empty() => above.to_owned(),
        _ => directory.to_owned(),
    }
}

/// A volume of the agent's with its mount, and who has it.
struct Attached {
    volume: Volume,
    path: String,
    read_only: Option<bool>,
    roles: &'static [Role],
}

/// The volumes with hooks, plugins and keys, in the order of their mounts.
fn attached(config: &PodConfig) -> Vec<Attached> {
    const EVERYONE: &[Role] = &[Role::Agent, Role::Checkout, Role::Command];
    let Some(agent) = &config.agent_config else { return Vec::new() };
    let mut all = Vec::new();
    // What the agent runs or goes by is not for jobs to change; plugins are put there by them.
    let mut add = |volume: &Volume, name: &str, path: String, roles| {
        let read_only = (name != PLUGINS_VOLUME).then_some(true);
        let name = if volume.name.is_empty() { name.to_owned() } else { volume.name.clone() };
        all.push(Attached { volume: Volume { name, ..volume.clone() }, path, read_only, roles });
    };
    if let Some(volume) = &agent.hooks_volume {
        add(volume, "buildkite-hooks", hooks_path(config), EVERYONE);
    }
    for (index, hooks) in agent.additional_hooks.iter().enumerate() {
        add(&hooks.volume, &format!("buildkite-hooks-{index}"), hooks.path.clone(), EVERYONE);
    }
    if let Some(volume) = &agent.plugins_volume {
        add(volume, PLUGINS_VOLUME, plugins_path(config), EVERYONE);
    }
    if let Some(volume) = &agent.signing_jwks_volume {
        let path = key_directory(agent.signing_jwks_file.as_deref(), SIGNING_DIRECTORY);
        add(volume, "buildkite-signing-jwks", path, &[Role::Agent, Role::Command]);
    }
    if let Some(volume) = &agent.verification_jwks_volume {
        let path = key_directory(agent.verification_jwks_file.as_deref(), VERIFICATION_DIRECTORY);
        add(volume, "buildkite-verification-jwks", path, &[Role::Agent]);
    }
    all
}

/// The volumes that the pod has for the agent.
pub(super) fn volumes(config: &PodConfig) -> Vec<Volume> {
    attached(config).into_iter().map(|attached| attached.volume).collect()
}

/// The mounts of a container with this role.
pub(super) fn mounts(config: &PodConfig, role: Role) -> Vec<VolumeMount> {
    let mine = attached(config).into_iter().filter(|attached| attached.roles.contains(&role));
    mine.map(|attached| mount(&attached.volume.name, &attached.path, attached.read_only)).collect()
}

#[cfg(test)]
mod tests;
