//! The containers that run the command: the user's own from `kubernetes.podSpec`, or one from `image`, or
//! one from the agent's image.

use bk_api::BuildJob;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;

use super::{AGENT_CONTAINER, CHECKOUT_CONTAINER, PodSettings, RenderError, SHIM_VOLUME, strict};

/// Keys of the `kubernetes` plugin that are understood.
const PLUGIN_KEYS: [&str; 1] = ["podSpec"];

/// What the author of a job asked for.
pub(super) struct Workload {
    /// The user's pod spec without its containers.
    pub(super) pod_spec: PodSpec,
    /// The containers that run the command, each with a name and an image.
    pub(super) containers: Vec<CommandContainer>,
}

/// A container that runs a command.
pub(super) struct CommandContainer {
    /// The container as the user wrote it, without `command` and `args`.
    pub(super) container: Container,
    /// The script to run.
    pub(super) script: Option<String>,
}

/// Reads the workload out of a BuildJob.
pub(super) fn of(job: &BuildJob, settings: &PodSettings) -> Result<Workload, RenderError> {
    let mut pod_spec = pod_spec(job)?;
    let mut containers = std::mem::take(&mut pod_spec.containers);
    if containers.is_empty() {
        containers.push(Container::default());
    }
    let containers = containers
        .into_iter()
        .enumerate()
        .map(|(index, container)| command_container(job, index, container, settings))
        .collect::<Result<Vec<_>, _>>()?;
    check_names(&containers, &pod_spec)?;
    check_volumes(&pod_spec)?;
    Ok(Workload { pod_spec, containers })
}

fn pod_spec(job: &BuildJob) -> Result<PodSpec, RenderError> {
    let Some(plugin) = &job.spec.kubernetes else {
        return Ok(PodSpec::default());
    };
    if let Some(key) = plugin.keys().find(|key| !PLUGIN_KEYS.contains(&key.as_str())) {
        return Err(RenderError {
            path: format!("spec.kubernetes.{key}"),
            problem: format!(
                "this key of the kubernetes plugin is not supported; known: {}",
                PLUGIN_KEYS.join(", ")
            ),
        });
    }
    match plugin.get("podSpec") {
        None | Some(Value::Null) => Ok(PodSpec::default()),
        Some(value) => strict::read(value, "spec.kubernetes.podSpec"),
    }
}

fn command_container(
    job: &BuildJob,
    index: usize,
    mut container: Container,
    settings: &PodSettings,
) -> Result<CommandContainer, RenderError> {
    let path = || format!("spec.kubernetes.podSpec.containers[{index}]");
    if container.name.is_empty() {
        container.name = format!("container-{index}");
    }
    if let Some(image) = &job.spec.image {
        container.image = Some(image.clone());
    }
    container.image.get_or_insert_with(|| settings.config.agent_image.clone());

    let command = container.command.take().unwrap_or_default();
    let args = container.args.take().unwrap_or_default();
    if command.is_empty() && !args.is_empty() {
        return Err(RenderError {
            path: format!("{}.args", path()),
            problem: "args need a command: the image's own entrypoint is replaced by the agent's".to_owned(),
        });
    }
    let script = if command.is_empty() {
        job.spec.command.clone()
    } else {
        Some(
            script(&command, &args)
                .map_err(|problem| RenderError { path: format!("{}.args", path()), problem })?,
        )
    };
    Ok(CommandContainer { container, script })
}

/// A container's command as a script: one line per element, and the arguments, quoted, behind the last line.
fn script(command: &[String], args: &[String]) -> Result<String, String> {
    let mut script = command.join("\n");
    if !args.is_empty() {
        let quoted = shlex::try_join(args.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        script.push(' ');
        script.push_str(&quoted);
    }
    Ok(script)
}

/// Containers and init containers share one space of names.
fn check_names(containers: &[CommandContainer], spec: &PodSpec) -> Result<(), RenderError> {
    let commands = containers.iter().map(|container| &container.container.name).enumerate();
    let inits = spec.init_containers.iter().flatten().map(|container| &container.name).enumerate();
    let all = commands
        .map(|(index, name)| ("containers", index, name))
        .chain(inits.map(|(index, name)| ("initContainers", index, name)));
    let mut taken = vec![AGENT_CONTAINER, CHECKOUT_CONTAINER];
    for (list, index, name) in all {
        if taken.contains(&name.as_str()) {
            return Err(RenderError {
                path: format!("spec.kubernetes.podSpec.{list}[{index}].name"),
                problem: format!("the name `{name}` is taken; choose another"),
            });
        }
        taken.push(name);
    }
    Ok(())
}

fn check_volumes(spec: &PodSpec) -> Result<(), RenderError> {
    match spec.volumes.iter().flatten().position(|volume| volume.name == SHIM_VOLUME) {
        None => Ok(()),
        Some(index) => Err(RenderError {
            path: format!("spec.kubernetes.podSpec.volumes[{index}].name"),
            problem: format!("the name `{SHIM_VOLUME}` is taken; choose another"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&["make test"], &[], "make test")]
    #[case(&["one", "two"], &[], "one\ntwo")]
    #[case(&["one", "two"], &["three", "four five"], "one\ntwo three 'four five'")]
    fn commands_become_scripts(#[case] command: &[&str], #[case] args: &[&str], #[case] expected: &str) {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        assert_eq!(script(&owned(command), &owned(args)).unwrap(), expected);
    }
}
