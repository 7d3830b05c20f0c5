//! BuildJob → Pod.
//!
//! Every job pod has the same shape. The *managed* containers take turns: `checkout` first, if there is one,
//! then `container-0`, `container-1`, … Each runs the real agent's bootstrap under the shim. The `agent`
//! container talks to Buildkite and starts only when every managed container runs (the start fence), so that
//! an image that cannot be pulled is noticed while the job is merely reserved.
//!
//! - [`workload`]: the containers that run the command
//! - [`agent`]: the container that talks to Buildkite
//! - [`bootstrap`]: what a managed container runs, for Buildkite jobs and standalone ones
//! - [`tags`]: what the agent says about itself
//! - [`metadata`]: labels and annotations
//! - [`shim`]: the command lines of PID 1

mod agent;
mod bootstrap;
mod metadata;
mod shim;
pub(crate) mod strict;
mod tags;
mod workload;

use bk_api::{
    BuildJob,
    config::{PodConfig, ResourceClasses},
};
use k8s_openapi::{
    api::core::v1::{
        ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, Pod, PodSpec, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::surroundings::Surroundings;

/// Where the pod's containers share files.
pub const WORKSPACE: &str = "/workspace";
/// Name of the container that talks to Buildkite.
pub const AGENT_CONTAINER: &str = "agent";
/// Name of the container that checks out the source, where it has one of its own.
pub const CHECKOUT_CONTAINER: &str = "checkout";

const WORKSPACE_VOLUME: &str = "workspace";
const SHIM_VOLUME: &str = "buildkite-shim";

/// What a pod needs beyond its BuildJob.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSettings {
    /// What pods look like.
    pub config: PodConfig,
    /// Resource classes by name.
    pub resource_classes: ResourceClasses,
    /// The Agent API as seen from pods.
    pub endpoint: String,
    /// The ConfigMap in the job namespace with the shim.
    pub shim_config_map: String,
    /// The queue whose jobs the operator takes.
    pub queue: String,
}

/// A BuildJob that cannot become a pod.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{path}: {problem}")]
pub struct RenderError {
    /// The field, from the BuildJob's root.
    pub path: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// The pod of an attempt at a BuildJob.
pub fn render(
    job: &BuildJob,
    attempt: u32,
    _surroundings: &Surroundings,
    settings: &PodSettings,
) -> Result<Pod, RenderError> {
    let job_name = job.metadata.name.clone().unwrap_or_default();
    let pod_name = bk_api::names::pod(&job_name, attempt);
    let workload = workload::of(job, settings)?;
    let turns = bootstrap::turns(job, &workload, settings);

    let mut spec = workload.pod_spec;
    let run = shim::Run {
        id: run_id(job, attempt, &pod_name),
        names: turns.iter().map(|turn| turn.container.name.clone()).collect(),
    };
    let agent = agent::container(job, &spec, &run, settings);
    let mut managed = bootstrap::containers(job, turns, &run, settings);
    // The order that users of Buildkite's own controller know: commands, agent, checkout.
    let checkout = managed.iter().position(|c| c.name == CHECKOUT_CONTAINER).map(|at| managed.remove(at));
    spec.containers = managed;
    spec.containers.push(agent);
    spec.containers.extend(checkout);
    share_volumes(&mut spec, settings);

    // A container that is started again would run the command again.
    spec.restart_policy = Some("Never".to_owned());
    spec.termination_grace_period_seconds.get_or_insert(settings.config.termination_grace_period_seconds);
    name_service_account(&mut spec);
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(pod_name),
            namespace: job.metadata.namespace.clone(),
            labels: Some(metadata::labels(job, settings)),
            annotations: Some(metadata::annotations(job, attempt)),
            owner_references: job.owner_reference().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// Short whatever the BuildJob is called: the shim takes 63 characters. Only a BuildJob that was never stored
/// has no id.
fn run_id(job: &BuildJob, attempt: u32, pod_name: &str) -> String {
    job.metadata.uid.as_ref().map_or_else(|| pod_name.to_owned(), |uid| format!("{uid}-{attempt}"))
}

/// The containers of a rendered pod that take turns, in the order of their turns, without the agent.
pub fn managed_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let checkout = spec.containers.iter().filter(|container| container.name == CHECKOUT_CONTAINER);
    let commands = spec.containers.iter().filter(|container| {
        container.name != CHECKOUT_CONTAINER
            && container.name != AGENT_CONTAINER
            && shim::is_managed(container)
    });
    checkout.chain(commands)
}

/// A job that names no service account has no business with the cluster's API.
fn name_service_account(spec: &mut PodSpec) {
    let old_spelling = spec.service_account.take();
    let names = [spec.service_account_name.take(), old_spelling];
    spec.service_account_name = names.into_iter().flatten().find(|name| !name.is_empty());
    if spec.service_account_name.is_none() {
        spec.automount_service_account_token.get_or_insert(false);
    }
}

/// Gives every container that runs the shim the workspace and the shim itself.
fn share_volumes(spec: &mut PodSpec, settings: &PodSettings) {
    let volumes = spec.volumes.get_or_insert_default();
    if !volumes.iter().any(|volume| volume.name == WORKSPACE_VOLUME) {
        volumes.push(Volume {
            name: WORKSPACE_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
    }
    volumes.push(Volume {
        name: SHIM_VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: settings.shim_config_map.clone(),
            default_mode: Some(0o555),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    });
    for container in &mut spec.containers {
        let mounts = container.volume_mounts.get_or_insert_default();
        if !mounts.iter().any(|mount| mount.mount_path == WORKSPACE) {
            mounts.push(mount(WORKSPACE_VOLUME, WORKSPACE, None));
        }
        mounts.push(mount(SHIM_VOLUME, shim::DIRECTORY, Some(true)));
        container.working_dir.get_or_insert_with(|| WORKSPACE.to_owned());
    }
}

fn mount(volume: &str, path: &str, read_only: Option<bool>) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), read_only, ..VolumeMount::default() }
}

fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None }
}
