//! What changes a draft, in this order: the configuration's patch, the step's `image`, the step's own patch.
//!
//! Patches are strategic merges on the JSON that people wrote, so that directives and nulls work.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Map, Value};

use super::{
    AGENT_CONTAINER, CHECKOUT_CONTAINER, Draft, NEVER, PodSettings, RenderError, agent_config,
    delivery::COPY_AGENT, exporters, holdings::Holdings, image_check, mirror::REPO_MIRROR, secrecy, strict,
    workspace::Workspace,
};
use crate::{plugin::KubernetesPlugin, strategic_merge};

/// Lists of a pod spec that hold containers.
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// What decides which program a container runs, besides its command.
const PROGRAM: [&str; 5] = ["image", "env", "envFrom", "volumeMounts", "lifecycle"];

/// Applies all patches to a draft.
pub(super) fn apply(
    draft: &mut Draft,
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let unsafe_commands = settings.config.allow_unsafe_command_patches;
    let guard = Guard::of(job, draft.workspace.volume_name(), settings);
    if let Some(guard) = &guard {
        guard.holdings(&draft.spec).check_writers(&Holdings::default())?;
    }
    if let Some(patch) = &settings.config.pod_spec_patch {
        Patch { content: patch, path: "pod_config.podSpecPatch", unsafe_commands, trusted: true }
            .apply(draft)?;
    }
    if let Some(image) = job.spec.image.as_ref().filter(|image| !image.is_empty()) {
        let commands = &draft.commands;
        let of_commands = draft.spec.containers.iter_mut().filter(|c| commands.contains(&c.name));
        of_commands.for_each(|container| container.image = Some(image.clone()));
    }
    if let Some(patch) = &plugin.pod_spec_patch {
        let patch = Patch {
            content: patch,
            path: "spec.kubernetes.podSpecPatch",
            unsafe_commands,
            trusted: unsafe_commands,
        };
        let before = guard.filter(|_| !patch.trusted).map(|guard| (guard.holdings(&draft.spec), guard));
        patch.apply(draft)?;
        if let Some((before, guard)) = before {
            guard.holdings(&draft.spec).check(&before, patch.path)?;
        }
    }
    Ok(())
}

/// Tells what of a pod is its agent's.
struct Guard {
    workspace: String,
    plugins: String,
}

impl Guard {
    /// None for a job whose agent has nothing to keep to itself.
    fn of(job: &BuildJob, workspace: &str, settings: &PodSettings) -> Option<Self> {
        let plugins = || agent_config::plugins_path(&settings.config);
        job.spec.buildkite.as_ref().map(|_| Self { workspace: workspace.to_owned(), plugins: plugins() })
    }

    fn holdings(&self, spec: &PodSpec) -> Holdings {
        Holdings::of(spec, &self.workspace, &self.plugins)
    }
}

/// A patch of a container that the draft does not have.
pub(super) struct Late {
    patch: Map<String, Value>,
    path: String,
    trusted: bool,
}

/// Applies what waits for containers that are made when the others are settled: checks of their images, and exporters.
pub(super) fn apply_late(
    spec: &mut PodSpec,
    late: &[Late],
    job: &BuildJob,
    workspace: &Workspace,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let guard = Guard::of(job, workspace.volume_name(), settings);
    for Late { patch, path: origin, trusted } in late {
        let named = patch.values().filter_map(|entries| entries.get(0)).map(name);
        if named.into_iter().all(|name| all_containers(spec).any(|container| container.name == name)) {
            let before = guard.as_ref().filter(|_| !trusted).map(|guard| (guard.holdings(spec), guard));
            merge(spec, patch, origin)?;
            if let Some((before, guard)) = before {
                guard.holdings(spec).check(&before, origin)?;
            }
        }
    }
    Ok(())
}

/// A strategic merge patch for a pod spec.
struct Patch<'a> {
    content: &'a Map<String, Value>,
    /// Where it was written.
    path: &'a str,
    /// Whether it may change what the operator's own containers run.
    unsafe_commands: bool,
    /// Whether it may make the agent's container, which has the token, something else.
    trusted: bool,
}

impl Patch<'_> {
    fn apply(&self, draft: &mut Draft) -> Result<(), RenderError> {
        strict::check::<PodSpec>(&Value::Object(self.content.clone()), self.path)?;
        let mut patch = self.content.clone();
        for list in LISTS {
            if let Some(Value::Array(entries)) = patch.get_mut(list) {
                self.guard(entries, list)?;
                let absent = take_absent(entries, &draft.spec);
                keep_commands_whole(entries, &draft.commands);
                if entries.is_empty() {
                    patch.remove(list);
                }
                draft.late.extend(absent.into_iter().map(|entry| Late {
                    patch: Map::from_iter([(list.to_owned(), Value::Array(vec![entry]))]),
                    path: self.path.to_owned(),
                    trusted: self.trusted,
                }));
            }
        }
        merge(&mut draft.spec, &patch, self.path)?;
        if draft.spec.restart_policy.get_or_insert_with(|| NEVER.to_owned()) != NEVER {
            return Err(self.refuse(
                ".restartPolicy",
                "must be `Never`: a container that is started again would run the command again",
            ));
        }
        Ok(())
    }

    /// Refuses commands of the operator's own containers, without which a job does not run, and what could make the agent tell
    /// its token.
    fn guard(&self, entries: &[Value], list: &str) -> Result<(), RenderError> {
        for (index, entry) in entries.iter().enumerate() {
            let Some(key) = ["command", "args"].into_iter().find(|key| given(entry, key)) else { continue };
            let name = name(entry);
            if is_own(name) && !self.unsafe_commands {
                let problem = format!(
                    "modifying container commands or args via podSpecPatch is not supported for `{name}`, which \
                     the operator runs; `pod_config.allowUnsafeCommandPatches` allows it"
                );
                return Err(self.refuse(&format!(".{list}[{index}].{key}"), &problem));
            }
        }
        for (index, entry) in entries.iter().enumerate().filter(|_| !self.trusted) {
            let Some(key) = PROGRAM.into_iter().find(|key| name(entry) == COPY_AGENT && given(entry, key))
            else {
                continue;
            };
            let problem = format!(
                "a step may not change what `{COPY_AGENT}` puts there for the agent to run; \
                 `pod_config.podSpecPatch` may"
            );
            return Err(self.refuse(&format!(".{list}[{index}].{key}"), &problem));
        }
        let agents = entries.iter().enumerate().filter(|(_, entry)| name(entry) == AGENT_CONTAINER);
        for (index, entry) in agents.filter(|_| !self.trusted) {
            if let Value::Object(entry) = entry {
                secrecy::check_patch(entry, &format!("{}.{list}[{index}]", self.path))?;
            }
        }
        Ok(())
    }

    fn refuse(&self, below: &str, problem: &str) -> RenderError {
        RenderError { path: format!("{}{below}", self.path), problem: problem.to_owned() }
    }
}

/// Merges a patch, which `origin` has written, into a pod.
fn merge(spec: &mut PodSpec, patch: &Map<String, Value>, origin: &str) -> Result<(), RenderError> {
    let refuse = |error: String| RenderError {
        path: origin.to_owned(),
        problem: format!("the patched pod is not valid: {error}"),
    };
    let mut json = serde_json::to_value(&*spec).map_err(|error| refuse(error.to_string()))?;
    if let Value::Object(json) = &mut json {
        strategic_merge::merge(json, patch, origin)?;
    }
    *spec = strict::read(&json, "pod.spec").map_err(|error| refuse(error.to_string()))?;
    Ok(())
}

/// Takes the entries for containers of the operator's own that a pod does not have. Not every pod has all of them, and a
/// patch for one is not to add it.
fn take_absent(entries: &mut Vec<Value>, spec: &PodSpec) -> Vec<Value> {
    let is_present = |name: &str| all_containers(spec).any(|container| container.name == name);
    let (present, absent) = std::mem::take(entries)
        .into_iter()
        .partition(|entry| !is_own(name(entry)) || is_present(name(entry)));
    *entries = present;
    absent
}

/// As for Kubernetes, another command has nothing to do with the arguments of the one before.
fn keep_commands_whole(entries: &mut [Value], commands: &[String]) {
    for entry in entries {
        let is_command = commands.iter().any(|command| command == name(entry));
        if let Value::Object(entry) = entry
            && is_command
            && entry.get("command").is_some_and(|command| !command.is_null())
        {
            entry.entry("args").or_insert(Value::Null);
        }
    }
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Whether a patch says something about a field.
fn given(entry: &Value, key: &str) -> bool {
    entry.get(key).is_some_and(|value| !value.is_null())
}

fn name(entry: &Value) -> &str {
    entry.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a container is one of the operator's.
fn is_own(name: &str) -> bool {
    [AGENT_CONTAINER, CHECKOUT_CONTAINER, COPY_AGENT, REPO_MIRROR].contains(&name)
        || exporters::NAMES.contains(&name)
        || name.starts_with(image_check::PREFIX)
}
