//! What changes a draft, in this order: the configuration's patch, the step's `image`, the step's own patch.
//!
//! Patches are strategic merges on the JSON that people wrote, so that directives and nulls work.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value};

use super::{AGENT_CONTAINER, CHECKOUT_CONTAINER, Draft, NEVER, PodSettings, RenderError, strict};
use crate::{plugin::KubernetesPlugin, strategic_merge};

/// Lists of a pod spec that hold containers.
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Applies all patches to a draft.
pub(super) fn apply(
    draft: &mut Draft,
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let unsafe_commands = settings.config.allow_unsafe_command_patches;
    if let Some(patch) = &settings.config.pod_spec_patch {
        Patch { content: patch, path: "pod_config.podSpecPatch", unsafe_commands }.apply(draft)?;
    }
    if let Some(image) = job.spec.image.as_ref().filter(|image| !image.is_empty()) {
        let commands = &draft.commands;
        let of_commands = draft.spec.containers.iter_mut().filter(|c| commands.contains(&c.name));
        of_commands.for_each(|container| container.image = Some(image.clone()));
    }
    if let Some(patch) = &plugin.pod_spec_patch {
        Patch { content: patch, path: "spec.kubernetes.podSpecPatch", unsafe_commands }.apply(draft)?;
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
}

impl Patch<'_> {
    fn apply(&self, draft: &mut Draft) -> Result<(), RenderError> {
        strict::check::<PodSpec>(&Value::Object(self.content.clone()), self.path)?;
        let mut patch = self.content.clone();
        for list in LISTS {
            if let Some(Value::Array(entries)) = patch.get_mut(list) {
                self.guard(entries, list)?;
                fit(entries, draft);
                if entries.is_empty() {
                    patch.remove(list);
                }
            }
        }
        let Ok(Value::Object(mut spec)) = serde_json::to_value(&draft.spec) else {
            return Err(self.refuse("", "the pod cannot be written as JSON"));
        };
        strategic_merge::merge(&mut spec, &patch, self.path)?;
        draft.spec = strict::read(&Value::Object(spec), "pod.spec").map_err(|error| RenderError {
            path: self.path.to_owned(),
            problem: format!("the patched pod is not valid: {error}"),
        })?;
        if draft.spec.restart_policy.get_or_insert_with(|| NEVER.to_owned()) != NEVER {
            return Err(self.refuse(
                ".restartPolicy",
                "must be `Never`: a container that is started again would run the command again",
            ));
        }
        Ok(())
    }

    /// Refuses commands of the operator's own containers, without which a job does not run.
    fn guard(&self, entries: &[Value], list: &str) -> Result<(), RenderError> {
        for (index, entry) in entries.iter().enumerate() {
            let given = |key: &str| entry.get(key).is_some_and(|value| !value.is_null());
            let Some(key) = ["command", "args"].into_iter().find(|key| given(key)) else { continue };
            let name = name(entry);
            if is_own(name) && !self.unsafe_commands {
                let problem = format!(
                    "modifying container commands or args via podSpecPatch is not supported for `{name}`, which \
                     the operator runs; `pod_config.allowUnsafeCommandPatches` allows it"
                );
                return Err(self.refuse(&format!(".{list}[{index}].{key}"), &problem));
            }
        }
        Ok(())
    }

    fn refuse(&self, below: &str, problem: &str) -> RenderError {
        RenderError { path: format!("{}{below}", self.path), problem: problem.to_owned() }
    }
}

/// Fits a patch's containers to those of a draft.
fn fit(entries: &mut Vec<Value>, draft: &Draft) {
    let init = draft.spec.init_containers.iter().flatten();
    let present: Vec<_> = draft.spec.containers.iter().chain(init).map(|c| c.name.as_str()).collect();
    // Not every pod has all of the operator's own containers; a patch for one that is not there is not to add it.
    entries.retain(|entry| !is_own(name(entry)) || present.contains(&name(entry)));
    for entry in entries {
        let is_command = draft.commands.iter().any(|command| command == name(entry));
        if let Value::Object(entry) = entry
            && is_command
            && entry.get("command").is_some_and(|command| !command.is_null())
        {
            // As for Kubernetes, another command has nothing to do with the arguments of the one before.
            entry.entry("args").or_insert(Value::Null);
        }
    }
}

fn name(entry: &Value) -> &str {
    entry.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a container is one of the operator's.
fn is_own(name: &str) -> bool {
    name == AGENT_CONTAINER
        || name == CHECKOUT_CONTAINER
        || name == "copy-agent"
        || name.starts_with("imagecheck-")
}
