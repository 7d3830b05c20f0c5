//! The operator's tokens stay out of reach of whoever writes pods: steps, BuildEnvironments, PodTemplates and patches.
//!
//! Looked for in the finished pod, so that it does not matter who wrote what where. Where agents do not register by way of the operator, the `agent` container alone has the
//! agent token; what a step may change of that container is what cannot make it tell: see [`check_patch`].

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::{PodSpec, Volume};
use serde_json::{Map, Value};

use super::{AGENT_CONTAINER, PodSettings, RenderError, registration, variables::refers};

/// What a step's patch may change of the `agent` container.
const PATCHABLE: [&str; 4] = ["name", "resources", "env", "$patch"];

/// Variables of the `agent` container that a step's patch may set: nothing that names a program, a file, a hook or an address.
const VARIABLES: [&str; 10] = [
    "BUILDKITE_AGENT_DEBUG",
    "BUILDKITE_AGENT_EXPERIMENT",
    "BUILDKITE_AGENT_LOG_LEVEL",
    "BUILDKITE_AGENT_NO_COLOR",
    "BUILDKITE_AGENT_TAGS",
    "BUILDKITE_CANCEL_GRACE_PERIOD",
    "BUILDKITE_NO_PTY",
    "BUILDKITE_SIGNAL_GRACE_PERIOD_SECONDS",
    "BUILDKITE_STRICT_SINGLE_HOOKS",
    "BUILDKITE_TIMESTAMP_LINES",
];

/// These say how git is called, which the agent has other containers do.
const VARIABLES_OF_GIT: &str = "BUILDKITE_GIT_";

/// How Helm calls the Secrets that it keeps its records in, with all values that somebody has set: the agent token may be among them.
const HELM_RECORDS: &str = "sh.helm.release.v1.";

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// Refuses a finished pod in which a token could be read by anything but the agent.
pub(super) fn check(spec: &PodSpec, job: &BuildJob, settings: &PodSettings) -> Result<(), RenderError> {
    let is_buildkites = job.spec.buildkite.is_some();
    let mut others = spec.clone();
    if is_buildkites && settings.broker.is_none() {
        let own = registration::agent_token(settings);
        let agents = others.containers.iter_mut().filter(|container| container.name == AGENT_CONTAINER);
        agents.filter_map(|agent| agent.env.as_mut()).for_each(|env| env.retain(|var| *var != own));
    }
    // A pod is JSON to begin with.
    let json = serde_json::to_value(&others).unwrap_or_default();
    let tokens = [&settings.config.agent_token_secret, &settings.api_token_secret];
    let is_own =
        |name: &str| tokens.into_iter().chain(&settings.broker_secrets).any(|guarded| guarded == name);
    let is_guarded = |name: &str| is_own(name) || name.starts_with(HELM_RECORDS);
    if let Some((path, secret)) = find(&json, "pod.spec", "", &is_guarded) {
        let holds = if is_own(secret) {
            "holds a token of the operator's"
        } else {
            "is Helm's record of an installation, with its tokens"
        };
        let problem = format!("the Secret `{secret}` {holds}, which is not for jobs; name another");
        return Err(RenderError { path, problem });
    }
    if is_buildkites && spec.share_process_namespace == Some(true) {
        return Err(RenderError {
            path: "pod.spec.shareProcessNamespace".to_owned(),
            problem: "must not be true: every container could read the agent's token from its process"
                .to_owned(),
        });
    }
    if is_buildkites {
        check_paths(spec)?;
    }
    check_account(spec, is_buildkites, settings)
}

/// Refuses a path in which the agent itself would put its variables, and tell them to all containers.
fn check_paths(spec: &PodSpec) -> Result<(), RenderError> {
    const EXPANDED: &str = "BUILDKITE_GIT_MIRRORS_PATH";
    let agents = spec.containers.iter().filter(|container| container.name == AGENT_CONTAINER);
    let mut paths = agents.flat_map(|agent| agent.env.iter().flatten()).filter(|var| var.name == EXPANDED);
    if paths.any(|path| path.value.as_deref().is_some_and(|value| value.contains('$'))) {
        return Err(RenderError {
            path: format!("pod.spec.containers[{AGENT_CONTAINER}].env[{EXPANDED}].value"),
            problem: "must not contain `$`: the agent would put its own variables there".to_owned(),
        });
    }
    Ok(())
}

/// Refuses a pod that is the operator. One that names no account has the `default` one, and is let alone as long as it gets no token.
fn check_account(spec: &PodSpec, registers: bool, settings: &PodSettings) -> Result<(), RenderError> {
    let Some(own) = &settings.own_account else { return Ok(()) };
    let refuse = |path: String, problem: &str| {
        let problem =
            format!("{problem}`{own}` is the operator's own account, which is not for jobs; name another");
        Err(RenderError { path, problem })
    };
    match &spec.service_account_name {
        Some(name) if name == own => return refuse("pod.spec.serviceAccountName".to_owned(), ""),
        None if own == DEFAULT_ACCOUNT => {}
        _ => return Ok(()),
    }
    let unnamed = "the pod names no `serviceAccountName`, and ";
    if spec.automount_service_account_token != Some(false) {
        return refuse("pod.spec.automountServiceAccountToken".to_owned(), unnamed);
    }
    // The broker's own is for the broker alone, which has it say in which pod it is.
    let proof: Vec<Volume> = registers
        .then(|| registration::volumes(settings))
        .into_iter()
        .flatten()
        .map(|(volume, _)| volume)
        .collect();
    let shows_token = |volume: &&Volume| {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        sources.into_iter().any(|source| source.service_account_token.is_some())
    };
    let others = spec.volumes.iter().flatten().filter(|volume| !proof.contains(volume));
    match others.into_iter().find(shows_token) {
        Some(volume) => refuse(format!("pod.spec.volumes[{}].projected", volume.name), unnamed),
        None => Ok(()),
    }
}

/// The first reference to one of these Secrets below `value`, which stands at `path` under `key`: its path and the Secret.
fn find<'a>(
    value: &'a Value,
    path: &str,
    key: &str,
    is_guarded: &impl Fn(&str) -> bool,
) -> Option<(String, &'a str)> {
    match value {
        Value::Object(object) => object.iter().find_map(|(below, value)| {
            let path = format!("{path}.{below}");
            let names_secret =
                below == "secretName" || (below == "name" && key.to_ascii_lowercase().contains("secret"));
            match value {
                Value::String(name) if names_secret && is_guarded(name) => Some((path, name.as_str())),
                value => find(value, &path, below, is_guarded),
            }
        }),
        Value::Array(list) => list.iter().enumerate().find_map(|(index, value)| {
            let name = value.get("name").and_then(Value::as_str);
            let place = name.map_or_else(|| index.to_string(), str::to_owned);
            find(value, &format!("{path}[{place}]"), key, is_guarded)
        }),
        _ => None,
    }
}

/// Refuses an entry, which stands at `path`, of a step's patch for the `agent` container, if it could make that container
/// run something else or talk to somebody else. The configuration's patch is the administrator's, who has the token anyway.
pub(super) fn check_patch(entry: &Map<String, Value>, path: &str) -> Result<(), RenderError> {
    let refuse = |below: String| {
        let problem =
            "a step may change `resources` and some variables of `agent`, which has the job's credentials; \
                       `pod_config.podSpecPatch` may change all of it"
                .to_owned();
        Err(RenderError { path: format!("{path}.{below}"), problem })
    };
    let given = |value: &Value| !value.is_null();
    if let Some((key, _)) =
        entry.iter().find(|(key, value)| !PATCHABLE.contains(&key.as_str()) && given(value))
    {
        return refuse(key.clone());
    }
    let variables = entry.get("env").and_then(Value::as_array).into_iter().flatten();
    for (index, variable) in variables.enumerate() {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_plain = variable.get("valueFrom").is_none_or(Value::is_null);
        let is_harmless = VARIABLES.contains(&name) || name.starts_with(VARIABLES_OF_GIT);
        if !(is_plain && is_harmless) {
            return refuse(format!("env[{index}]"));
        }
        if variable.get("value").and_then(Value::as_str).is_some_and(refers) {
            return Err(RenderError {
                path: format!("{path}.env[{index}].value"),
                problem: "must not refer to another variable of `agent`, which has the job's credentials; write `$$(` for `$(`"
                    .to_owned(),
            });
        }
    }
    Ok(())
}
