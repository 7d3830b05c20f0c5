//! Where hooks are looked for, and by whom.
//!
//! The agent runs some itself, in its own container, which has what it registered with: `agent-startup` and `agent-shutdown` from all
//! directories, `pre-bootstrap` from the first. So that container looks for none in the workspace, where jobs write; the containers
//! that run the job do. To mount something there would not help: who has the workspace elsewhere can rename the directory below the
//! mount, and put another in its place. So the agent has what is mounted there a second time, outside.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, VolumeMount};

use super::{
    AGENT_CONTAINER, WORKSPACE,
    agent_config::{HOOKS, MORE_HOOKS},
    shim,
    variables::env,
};

/// Where the agent has the volumes that others have in the workspace.
const DIRECTORY: &str = "/buildkite/agent-hooks";
/// Where it has nothing: without a directory it would look into the one that it runs in.
const NOWHERE: &str = "/buildkite/agent-hooks/none";

/// Keeps the agent of a finished pod from looking for hooks in the workspace, and tells the containers that run the job themselves of
/// those that it would have told them of.
pub(super) fn settle(spec: &mut PodSpec) {
    let agents = spec.containers.iter_mut().filter(|container| container.name == AGENT_CONTAINER);
    let told: Vec<EnvVar> = agents.flat_map(withhold).collect();
    for container in &mut spec.containers {
        if container.name == AGENT_CONTAINER || !shim::is_managed(container) {
            continue;
        }
        // What a container has goes before what its agent says.
        let own = container.env.get_or_insert_default();
        let new = told.iter().filter(|new| own.iter().all(|own| own.name != new.name)).cloned();
        own.extend(new.collect::<Vec<_>>());
    }
}

/// Takes directories in the workspace from the agent. Returns the variables that it had, so far as they are others now.
fn withhold(agent: &mut Container) -> Vec<EnvVar> {
    let Some(vars) = &mut agent.env else { return Vec::new() };
    let mut places = Places { own: agent.volume_mounts.clone().unwrap_or_default(), second: Vec::new() };
    let mut had = Vec::new();
    for var in vars.iter_mut().filter(|var| [HOOKS, MORE_HOOKS].contains(&var.name.as_str())) {
        let Some(value) = &var.value else { continue };
        let outside = if var.name == HOOKS {
            places.outside(value).unwrap_or_else(|| NOWHERE.to_owned())
        } else {
            value.split(',').filter_map(|directory| places.outside(directory)).collect::<Vec<_>>().join(",")
        };
        if outside != *value {
            had.push(std::mem::replace(var, env(&var.name, outside)));
        }
    }
    vars.retain(|var| var.name != MORE_HOOKS || var.value.as_deref() != Some(""));
    if !places.second.is_empty() {
        agent.volume_mounts.get_or_insert_default().extend(places.second);
    }
    had
}

/// What the agent has mounted.
struct Places {
    own: Vec<VolumeMount>,
    /// What it needs a second time.
    second: Vec<VolumeMount>,
}

impl Places {
    /// Where the agent finds what is in a directory; none if that is the workspace's.
    fn outside(&mut self, directory: &str) -> Option<String> {
        let Some(path) = in_workspace(directory) else { return Some(directory.to_owned()) };
        let mounted = self.own.iter().filter_map(|mount| Some((in_workspace(&mount.mount_path)?, mount)));
        let above = mounted.filter(|(at, _)| at != Path::new(WORKSPACE) && path.starts_with(at));
        let (at, mount) = above.max_by_key(|(at, _)| at.components().count())?;
        let place = format!("{DIRECTORY}/{}", self.second.len());
        let below = path.strip_prefix(at).ok()?.to_str()?;
        let found = if below.is_empty() { place.clone() } else { format!("{place}/{below}") };
        self.second.push(VolumeMount { mount_path: place, read_only: Some(true), ..mount.clone() });
        Some(found)
    }
}

/// The path of a directory, if it is in the workspace, where the agent runs. Its home is not.
fn in_workspace(directory: &str) -> Option<PathBuf> {
    let directory = directory.trim();
    if directory.starts_with(['~', '$']) {
        return None;
    }
    let mut path = PathBuf::new();
    for component in Path::new(WORKSPACE).join(directory).components() {
        if component == Component::ParentDir {
            path.pop();
        } else {
            path.push(component);
        }
    }
    path.starts_with(WORKSPACE).then_some(path)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/workspace/hooks", Some("/workspace/hooks"))]
    #[case("//workspace/./hooks/", Some("/workspace/hooks"))]
    #[case("/etc/../workspace/hooks", Some("/workspace/hooks"))]
    #[case("/workspace", Some("/workspace"))]
    #[case("hooks", Some("/workspace/hooks"))]
    #[case("", Some("/workspace"))]
    #[case(" /workspace/hooks", Some("/workspace/hooks"))]
    #[case("/workspace/../hooks", None)]
    #[case("/workspaces/hooks", None)]
    #[case("/buildkite/hooks", None)]
    #[case("~/hooks", None)]
    #[case("$HOME/hooks", None)]
    fn the_workspace_has_many_names(#[case] directory: &str, #[case] expected: Option<&str>) {
        assert_eq!(in_workspace(directory), expected.map(PathBuf::from));
    }
}
