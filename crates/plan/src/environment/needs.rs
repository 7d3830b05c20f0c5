//! What the pod must have for the containers that a job and its environments describe.

use bk_api::{
    BuildEnvironmentSpec, BuildJobSpec,
    placement::{NodePreference, NodeRequirement},
};
use k8s_openapi::api::core::v1::{LocalObjectReference, Toleration, Volume};

use super::Trail;
use crate::pod::{RenderError, strict};

/// What the pod must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// Volumes, each name once.
    pub volumes: Vec<Wish<Volume>>,
    /// The service account.
    pub service_account: Option<Wish<String>>,
    /// Credentials of image registries.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// What the node must be like.
    pub node_requirements: Vec<NodeRequirement>,
    /// What the node should be like.
    pub node_preferences: Vec<NodePreference>,
    /// Taints that are tolerated.
    pub tolerations: Vec<Toleration>,
}

/// Something that is needed, and who needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish<T> {
    /// What.
    pub value: T,
    /// Who says so.
    pub trail: Trail,
}

impl Needs {
    /// Adds what an environment needs, at the end of `trail`.
    pub(super) fn add_environment(
        &mut self,
        environment: &BuildEnvironmentSpec,
        trail: &Trail,
    ) -> Result<(), RenderError> {
        for (index, given) in environment.volumes.iter().enumerate() {
            let trail = trail.below(&format!("volumes[{index}]"));
            let value = strict::read(given, &trail.to_string())?;
            self.add_volume(Wish { value, trail })?;
        }
        if let Some(name) = environment.service_account_name.clone().filter(|name| !name.is_empty()) {
            self.add_service_account(Wish { value: name, trail: trail.below("serviceAccountName") })?;
        }
        add_new(&mut self.image_pull_secrets, &environment.image_pull_secrets);
        add_new(&mut self.node_requirements, &environment.node_requirements);
        self.node_preferences.extend_from_slice(&environment.node_preferences);
        add_new(&mut self.tolerations, &environment.tolerations);
        Ok(())
    }

    /// Adds what the job itself needs.
    pub(super) fn add_job(&mut self, job: &BuildJobSpec) {
        add_new(&mut self.node_requirements, &job.node_requirements);
        self.node_preferences.extend_from_slice(&job.node_preferences);
        add_new(&mut self.tolerations, &job.tolerations);
    }

    /// Two may mean the same volume, but not different ones by the same name.
    fn add_volume(&mut self, new: Wish<Volume>) -> Result<(), RenderError> {
        if new.value.name.is_empty() {
            return Err(new.trail.refuse("the volume needs a `name`".to_owned()));
        }
        match self.volumes.iter().find(|old| old.value.name == new.value.name) {
            None => self.volumes.push(new),
            Some(old) if old.value == new.value => {}
            Some(old) => return Err(another_volume(&new, &old.trail.to_string())),
        }
        Ok(())
    }

    fn add_service_account(&mut self, new: Wish<String>) -> Result<(), RenderError> {
        match &self.service_account {
            None => self.service_account = Some(new),
            Some(old) if old.value == new.value => {}
            Some(old) => return Err(another_account(&new, &old.value, &old.trail.to_string())),
        }
        Ok(())
    }
}

/// A volume of the same name is there already, and it is another.
pub(crate) fn another_volume(new: &Wish<Volume>, taken_by: &str) -> RenderError {
    let name = &new.value.name;
    new.trail.refuse(format!("`{name}` is another volume in {taken_by}; choose another name"))
}

/// The pod has another service account already.
pub(crate) fn another_account(new: &Wish<String>, old: &str, taken_by: &str) -> RenderError {
    let name = &new.value;
    new.trail.refuse(format!("the pod cannot be both `{name}` and `{old}`, which is in {taken_by}"))
}

fn add_new<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}
