//! What the operator adds to the containers of a pod so that the agent can work in them: the agent's volumes before patches,
//! users, the shim and init containers of its own after them.

use bk_api::{BuildJob, config::ImageCheck};
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};

use super::{
    AGENT_CONTAINER, CHECKOUT_CONTAINER, PodSettings, RenderError,
    agent_config::{self, Role},
    bootstrap,
    delivery::{COPY_AGENT, Delivery},
    git::Git,
    identity, image_check, images,
    mirror::{self, Mirrors, REPO_MIRROR},
    registration, resources, security,
    shim::{self, Run},
    workspace::Workspace,
};

/// Gives a draft the volumes with hooks, plugins, keys, mirrors and credentials. `commands` are the names of the containers
/// that run a command; what else there is runs as it is.
pub(super) fn equip_draft(
    spec: &mut PodSpec,
    job: &BuildJob,
    commands: &[String],
    git: &Git,
    mirrors: Option<&Mirrors<'_>>,
    settings: &PodSettings,
) {
    let registers = job.spec.buildkite.is_some();
    let has_checkout = spec.containers.iter().any(|container| container.name == CHECKOUT_CONTAINER);
    add_volumes(spec, agent_config::volumes(&settings.config));
    let (volumes, mounts): (Vec<_>, Vec<_>) =
        registers.then(|| registration::volumes(settings)).into_iter().flatten().unzip();
    add_volumes(spec, volumes);
    if has_checkout {
        add_volumes(spec, git.volumes());
    }
    add_volumes(spec, mirrors.iter().map(|mirrors| mirrors.volume()).collect());
    if let Ok(Delivery::Init { .. }) = Delivery::of(spec, settings) {
        // Only its name and image, for patches to find.
        let draft = Container {
            name: COPY_AGENT.to_owned(),
            image: Some(settings.config.agent_image.clone()),
            ..Container::default()
        };
        spec.init_containers.get_or_insert_default().insert(0, draft);
    }
    for container in &mut spec.containers {
        let role = match container.name.as_str() {
            AGENT_CONTAINER => Role::Agent,
            CHECKOUT_CONTAINER => Role::Checkout,
            name if commands.iter().any(|command| command == name) => Role::Command,
            _ => continue,
        };
        add_mounts(container, agent_config::mounts(&settings.config, role));
        if role == Role::Agent {
            add_mounts(container, mounts.clone());
        }
        if role == Role::Command && has_checkout {
            add_mounts(container, git.command_mounts());
        }
        if role != Role::Agent {
            add_mounts(container, mirrors.iter().map(|mirrors| mirrors.mount()).collect());
        }
    }
}

/// Keeps the operator's own containers of a draft as restricted as the configuration asks. `is_made` says that nobody wrote
/// the container that runs the command.
pub(super) fn restrict_draft(spec: &mut PodSpec, commands: &[String], is_made: bool, settings: &PodSettings) {
    let mut containers = std::mem::take(&mut spec.containers);
    for container in &mut containers {
        let own = [AGENT_CONTAINER, CHECKOUT_CONTAINER].contains(&container.name.as_str());
        if own || is_made && commands.contains(&container.name) {
            security::restrict(container, spec, settings);
        }
    }
    spec.containers = containers;
}

/// What finished containers get.
pub(super) struct Equipment<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) delivery: Delivery,
    pub(super) run: &'a Run,
    pub(super) git: &'a Git,
    pub(super) mirrors: Option<&'a Mirrors<'a>>,
}

/// Gives the finished containers of a pod the shim, their users an entry, and the pod its init containers. Returns what the pod's
/// annotation says about users.
pub(super) fn complete(
    spec: &mut PodSpec,
    equipment: &Equipment<'_>,
    settings: &PodSettings,
) -> Result<Option<String>, RenderError> {
    let Equipment { workspace, delivery, .. } = *equipment;
    let mut containers = std::mem::take(&mut spec.containers);
    let mut entries = Vec::new();
    let agent = containers.iter().find(|container| container.name == AGENT_CONTAINER);
    let agent_image = agent.and_then(|agent| agent.image.clone());
    for container in containers.iter_mut().filter(|container| shim::is_managed(container)) {
        workspace.share(container);
        workspace.check(container)?;
        delivery.share(container);
        // What users an image of somebody else has is its own affair, unless it was put in place of ours.
        let is_ours = container.name == CHECKOUT_CONTAINER || container.image == agent_image;
        let checks_out = bootstrap::checks_out(container) && is_ours;
        if checks_out || container.name == AGENT_CONTAINER {
            let entry = identity::introduce(container, spec);
            if checks_out && entry.is_some() {
                identity::give_home(container);
            }
            entries.extend(entry);
        }
    }
    let mut users = containers.iter().filter(|container| shim::is_managed(container));
    if let Some(user) = users.find_map(|container| identity::user(container, spec).filter(|user| *user != 0))
    {
        workspace.open_to(user, spec);
    }
    add_volumes(spec, identity::volumes(&containers));
    add_volumes(spec, delivery.volume(settings).into_iter().collect());
    add_init_containers(spec, &mut containers, equipment, settings)?;
    spec.containers = containers;
    Ok(identity::passwd(&entries))
}

/// Puts the operator's own init containers before the others.
fn add_init_containers(
    spec: &mut PodSpec,
    containers: &mut [Container],
    equipment: &Equipment<'_>,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let Equipment { workspace, delivery, run, git, mirrors } = *equipment;
    let given = spec.init_containers.take().unwrap_or_default();
    let (drafted, others): (Vec<_>, Vec<_>) =
        given.into_iter().partition(|container| container.name == COPY_AGENT);
    let agent = containers.iter().find(|container| container.name == AGENT_CONTAINER);
    let drafted = drafted.into_iter().next();
    let mut own: Vec<_> =
        agent.and_then(|agent| delivery.init_container(drafted, agent, &run.id)).into_iter().collect();
    if settings.config.image_check == ImageCheck::Init {
        let started: Vec<_> = own.iter().chain(&others).chain(agent).cloned().collect();
        let mut checked: Vec<_> = containers
            .iter_mut()
            .filter(|container| ![AGENT_CONTAINER, CHECKOUT_CONTAINER].contains(&container.name.as_str()))
            .collect();
        let mut checks = image_check::checks(&mut checked, &started, delivery.binary());
        for check in &mut checks {
            delivery.share(check);
        }
        own.extend(checks);
    }
    // Last, so that an image that cannot be had is noticed before.
    if let Some(mirrors) = mirrors.filter(|_| others.iter().all(|other| other.name != REPO_MIRROR)) {
        mirror::add_hook(containers, run);
        let mut container = mirrors.init_container(containers, spec, git, run);
        images::settle_one(&mut container, settings)?;
        own.push(container);
    }
    for container in &mut own {
        workspace.share(container);
        let small = || resources::or_small(settings.config.resources.init.as_ref(), resources::INIT);
        container.resources.get_or_insert_with(small);
        security::restrict(container, spec, settings);
    }
    own.extend(others);
    spec.init_containers = Some(own).filter(|all| !all.is_empty());
    Ok(())
}

fn add_volumes(spec: &mut PodSpec, volumes: Vec<Volume>) {
    if !volumes.is_empty() {
        spec.volumes.get_or_insert_default().extend(volumes);
    }
}

/// Adds mounts where the container has none yet.
fn add_mounts(container: &mut Container, mounts: Vec<VolumeMount>) {
    for mount in mounts {
        let own = container.volume_mounts.get_or_insert_default();
        if own.iter().all(|other| other.mount_path != mount.mount_path) {
            own.push(mount);
        }
    }
}
