//! What the author of a job asked for: the pod to begin with, the containers that run the command, and those beside them.

use bk_api::{BuildJob, params::Interposer};
use k8s_openapi::{
    DeepMerge,
    api::core::v1::{Container, PodSpec},
};

use super::{
    AGENT_CONTAINER, CHECKOUT_CONTAINER, PodSettings, RenderError, append, container_path, git::merge_mounts,
    mount_besides, script, variables::literal,
};
use crate::{environment::Primary, plugin::KubernetesPlugin, surroundings::Surroundings};

/// What the author of a job asked for.
pub(super) struct Workload {
    /// The pod to begin with, without containers that run a command.
    pub(super) pod_spec: PodSpec,
    /// The containers that run a command, as their author wrote them, each with a name and an image.
    pub(super) commands: Vec<Container>,
    /// Whether nobody wrote them: one was made because there has to be one.
    pub(super) is_made: bool,
}

/// A container that runs a command.
pub(super) struct CommandContainer {
    /// The container, without `command` and `args`.
    pub(super) container: Container,
    /// The script to run.
    pub(super) script: Option<String>,
}

/// Reads the workload out of a BuildJob.
pub(super) fn of(
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    primary: &Primary,
    surroundings: &Surroundings,
    settings: &PodSettings,
) -> Result<Workload, RenderError> {
    let mut pod_spec = begin(job, plugin, surroundings)?;
    let mut commands = std::mem::take(&mut pod_spec.containers);
    check_reserved(&commands, plugin)?;
    let is_made = commands.is_empty();
    if is_made {
        commands.push(Container::default());
    }
    commands[0] = lay_over(&primary.container, std::mem::take(&mut commands[0]));
    for (index, container) in commands.iter_mut().enumerate() {
        if container.name.is_empty() {
            container.name = format!("container-{index}");
        }
        let image = container.image.take().filter(|image| !image.is_empty());
        container.image = image.or_else(|| Some(settings.config.agent_image.clone()));
        command_params(container, plugin, settings);
    }
    let sidecars = plugin.sidecars.iter().enumerate();
    let sidecars: Vec<_> = sidecars.map(|(index, given)| sidecar(index, given, plugin, settings)).collect();
    append(&mut pod_spec.init_containers, &sidecars);
    Ok(Workload { pod_spec, commands, is_made })
}

/// The first container of the author's pod, with what its environment says where it is silent itself.
fn lay_over(environment: &Container, mut own: Container) -> Container {
    let mut container = environment.clone();
    // A list that Kubernetes would replace; here both are meant.
    let sources = own.env_from.take();
    append(&mut container.env_from, sources.iter().flatten());
    container.merge_from(own);
    container
}

/// What to run where a container has no command of its own: the job's command, or else its environment's.
pub(super) fn script(job: &BuildJob, primary: &Primary) -> Result<Option<String>, RenderError> {
    let own = job.spec.command.as_ref().filter(|command| !command.trim().is_empty());
    if own.is_some() || primary.command.is_empty() {
        return Ok(own.cloned());
    }
    // Words, as a container's command is; not lines.
    script::of(None, &primary.command, &primary.args, Interposer::Vector).map_err(|script::NulByte| {
        primary
            .trail
            .below("command")
            .refuse("`command` and `args` cannot have a NUL byte in them".to_owned())
    })
}

/// Refuses a standalone job that has nothing to run. A Buildkite job may leave that to its plugins.
pub(super) fn check_scripts(job: &BuildJob, commands: &[CommandContainer]) -> Result<(), RenderError> {
    let idle = |command: &&CommandContainer| command.script.as_deref().unwrap_or_default().is_empty();
    match commands.iter().find(idle) {
        Some(command) if job.spec.buildkite.is_none() => Err(RenderError {
            path: "spec.command".to_owned(),
            problem: format!(
                "there is nothing to run in `{}`: neither it nor the job nor its environment has a command",
                command.container.name
            ),
        }),
        _ => Ok(()),
    }
}

/// The pod to begin with: the step's own, or a PodTemplate's, or an empty one.
fn begin(
    job: &BuildJob,
    plugin: &KubernetesPlugin,
    surroundings: &Surroundings,
) -> Result<PodSpec, RenderError> {
    if let Some(spec) = &plugin.pod_spec {
        if !plugin.containers.is_empty() {
            return Err(RenderError {
                path: "spec.kubernetes.containers".to_owned(),
                problem: "give either `podSpec` or `containers`, which is short for `podSpec.containers`"
                    .to_owned(),
            });
        }
        return Ok(spec.clone());
    }
    let mut spec = match plugin.used_template() {
        None => PodSpec::default(),
        Some(name) => {
            let found = surroundings.pod_templates.get(name).and_then(Option::as_ref);
            let template = found.ok_or_else(|| RenderError {
                path: "spec.kubernetes.podTemplate".to_owned(),
                problem: format!(
                    "there is no PodTemplate `{name}` in namespace `{}`",
                    job.metadata.namespace.as_deref().unwrap_or("default")
                ),
            })?;
            template.spec.clone().unwrap_or_default()
        }
    };
    if !plugin.containers.is_empty() {
        spec.containers.clone_from(&plugin.containers);
    }
    Ok(spec)
}

/// Two containers have names of their own in every pod; a step that means to change them needs a patch.
fn check_reserved(commands: &[Container], plugin: &KubernetesPlugin) -> Result<(), RenderError> {
    let reserved = [AGENT_CONTAINER, CHECKOUT_CONTAINER];
    let at = commands.iter().position(|container| reserved.contains(&container.name.as_str()));
    let Some(at) = at else { return Ok(()) };
    let list = match plugin.used_template() {
        _ if plugin.pod_spec.is_some() => "spec.kubernetes.podSpec.containers".to_owned(),
        Some(name) if plugin.containers.is_empty() => format!("PodTemplate {name}: template.spec.containers"),
        _ => "spec.kubernetes.containers".to_owned(),
    };
    let name = &commands[at].name;
    Err(RenderError {
        path: format!("{list}[{at}].name"),
        problem: format!(
            "the name `{name}` is taken by the operator's own container; choose another, or change that one \
             with `podSpecPatch`"
        ),
    })
}

/// Adds what configuration and step give to every command container.
fn command_params(container: &mut Container, plugin: &KubernetesPlugin, settings: &PodSettings) {
    let all = [&settings.config.command, &plugin.command_params];
    let [configured, own] = all.map(|params| &params.extra_volume_mounts);
    mount_besides(container, &merge_mounts(configured.clone(), own));
    let sources = all.into_iter().flat_map(|params| &params.env_from).chain(&plugin.git_env_from);
    append(&mut container.env_from, sources);
}

/// A container that runs beside the job: Kubernetes starts it before, and ends it after all others.
fn sidecar(index: usize, given: &Container, plugin: &KubernetesPlugin, settings: &PodSettings) -> Container {
    let mut sidecar = given.clone();
    sidecar.name = sidecar_name(index, given);
    sidecar.restart_policy = Some("Always".to_owned());
    let all = [&settings.config.sidecar, &plugin.sidecar_params];
    let [configured, own] = all.map(|params| &params.extra_volume_mounts);
    mount_besides(&mut sidecar, &merge_mounts(configured.clone(), own));
    let sources = all.into_iter().flat_map(|params| &params.env_from).chain(&plugin.git_env_from);
    append(&mut sidecar.env_from, sources);
    sidecar
}

/// What a sidecar is called: as its author says, or by its place.
pub(super) fn sidecar_name(index: usize, given: &Container) -> String {
    if given.name.is_empty() { format!("sidecar-{index}") } else { given.name.clone() }
}

/// How `command` and `args` become a script: as the step says, or the configuration.
pub(super) fn interposer(plugin: &KubernetesPlugin, settings: &PodSettings) -> Interposer {
    plugin.command_params.interposer.or(settings.config.command.interposer).unwrap_or_default()
}

/// Takes `command` and `args` out of a container and makes them its script.
pub(super) fn with_script(
    mut container: Container,
    step: Option<&str>,
    interposer: Interposer,
) -> Result<CommandContainer, RenderError> {
    let command = container.command.take().unwrap_or_default();
    let args = container.args.take().unwrap_or_default();
    // What stands in the container's own `command` means what it means in any pod; the step's knows nothing of pods.
    let step = step.map(literal);
    let script =
        script::of(step.as_deref(), &command, &args, interposer).map_err(|script::NulByte| RenderError {
            path: format!("{}.command", container_path(&container.name)),
            problem: "`command` and `args` cannot have a NUL byte in them".to_owned(),
        })?;
    Ok(CommandContainer { container, script })
}
