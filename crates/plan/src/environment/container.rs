//! BuildEnvironment or inline container → container.

use bk_api::{
    BuildEnvironmentSpec,
    container_use::{ContainerUse, Startup},
};
use k8s_openapi::api::core::v1::Container;
use serde_json::{Map, Value};

use super::{List, Part, Primary, Role, Trail};
use crate::pod::{RenderError, strict};

/// Fields of a container that a BuildEnvironment has itself, or that follow from how it is used.
const OWN_FIELDS: [&str; 11] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "name",
    "resources",
    "securityContext",
    "volumeMounts",
    "workingDir",
];

/// How often a start is probed at most. No pod may take an hour to start.
const START_PROBES: i32 = 3600;

/// What a job's command runs in.
pub(super) fn primary(environment: &BuildEnvironmentSpec, trail: &Trail) -> Result<Primary, RenderError> {
    let mut container = of(environment, trail)?;
    check_mounts(&container, &trail.below("volumeMounts"))?;
    let command = container.command.take().unwrap_or_default();
    let args = container.args.take().unwrap_or_default();
    Ok(Primary {
        container,
        command,
        args,
        git_credentials: environment.git_credentials.clone(),
        trail: trail.clone(),
    })
}

/// A container from an environment, under the name that its user gives it, or else the environment's own.
pub(super) fn named(
    wanted: &ContainerUse,
    environment_name: &str,
    environment: &BuildEnvironmentSpec,
    list: List,
    trail: Trail,
) -> Result<Part, RenderError> {
    let mut container = of(environment, &trail)?;
    check_mounts(&container, &trail.below("volumeMounts"))?;
    container.name = wanted.name.clone().unwrap_or_else(|| environment_name.replace('.', "-"));
    let startup = wanted.startup.or(environment.startup);
    finish(container, list, startup, trail)
}

/// A container that was written on the spot.
pub(super) fn inline(
    wanted: &ContainerUse,
    given: &Map<String, Value>,
    list: List,
    trail: Trail,
) -> Result<Part, RenderError> {
    let here = trail.below("container");
    let mut container: Container = strict::read(&Value::Object(given.clone()), &here.to_string())?;
    refuse_restart_policy(&container, &here)?;
    check_mounts(&container, &here.below("volumeMounts"))?;
    if let Some(name) = &wanted.name {
        container.name.clone_from(name);
    }
    if container.name.is_empty() {
        return Err(trail.refuse("the container needs a `name`".to_owned()));
    }
    if container.image.as_deref().unwrap_or_default().is_empty() {
        return Err(here.refuse("the container needs an `image`".to_owned()));
    }
    finish(container, list, wanted.startup, trail)
}

fn finish(
    mut container: Container,
    list: List,
    startup: Option<Startup>,
    trail: Trail,
) -> Result<Part, RenderError> {
    if !is_label(&container.name) {
        let name = &container.name;
        return Err(trail.refuse(format!(
            "`{name}` cannot be a container's name: give a `name` of 1 to 63 small letters, digits and dashes"
        )));
    }
    let role = match (list, startup.unwrap_or_default()) {
        (List::Init, _) => Role::Init,
        (List::Extra, Startup::Before) => Role::Before,
        (List::Extra, Startup::With) => Role::With,
    };
    if role == Role::Before {
        container.restart_policy = Some("Always".to_owned());
        start_when_ready(&mut container);
    }
    Ok(Part { container, role, trail })
}

/// The kubelet lets the next container start when this one's startup probe has passed, and takes no notice of its
/// readiness. So that the job really finds it ready, readiness without a startup probe is probed at the start as well. How
/// long a start may take is limited for the pod as a whole, not here.
fn start_when_ready(container: &mut Container) {
    if container.startup_probe.is_some() {
        return;
    }
    container.startup_probe = container.readiness_probe.clone().map(|mut probe| {
        probe.failure_threshold = Some(START_PROBES);
        probe.success_threshold = None;
        probe
    });
}

/// The container that an environment describes, without a name.
fn of(environment: &BuildEnvironmentSpec, trail: &Trail) -> Result<Container, RenderError> {
    let further = match &environment.container {
        None => Container::default(),
        Some(given) => further(given, &trail.below("container"))?,
    };
    let some = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
    Ok(Container {
        image: Some(environment.image.clone()),
        image_pull_policy: environment.image_pull_policy.map(|policy| format!("{policy:?}")),
        command: some(&environment.command),
        args: some(&environment.args),
        working_dir: environment.working_dir.clone(),
        env: (!environment.env.is_empty()).then(|| environment.env.clone()),
        env_from: (!environment.env_from.is_empty()).then(|| environment.env_from.clone()),
        resources: environment.resources.clone(),
        volume_mounts: (!environment.volume_mounts.is_empty()).then(|| environment.volume_mounts.clone()),
        security_context: environment.security_context.clone(),
        ..further
    })
}

fn further(given: &Map<String, Value>, here: &Trail) -> Result<Container, RenderError> {
    if let Some(field) = OWN_FIELDS.iter().find(|field| given.contains_key(**field)) {
        let problem = if *field == "name" {
            "whoever uses the environment names the container".to_owned()
        } else {
            format!("write it as `spec.{field}` of the BuildEnvironment")
        };
        return Err(here.below(field).refuse(problem));
    }
    let container = strict::read(&Value::Object(given.clone()), &here.to_string())?;
    refuse_restart_policy(&container, here)?;
    Ok(container)
}

fn refuse_restart_policy(container: &Container, here: &Trail) -> Result<(), RenderError> {
    match container.restart_policy {
        None => Ok(()),
        Some(_) => Err(here.below("restartPolicy").refuse(
            "this follows from how the container is used: `extraContainers` with `startup: before` are started again"
                .to_owned(),
        )),
    }
}

/// Nothing can be mounted where something else is.
fn check_mounts(container: &Container, here: &Trail) -> Result<(), RenderError> {
    let mut taken: Vec<(&str, &str)> = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let path = mount.mount_path.trim_end_matches('/');
        if let Some((_, other)) = taken.iter().find(|(at, _)| *at == path) {
            let volume = &mount.name;
            return Err(here.refuse(format!("both `{other}` and `{volume}` are mounted at {path}")));
        }
        taken.push((path, &mount.name));
    }
    Ok(())
}

fn is_label(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.chars().all(|c| plain(c) || c == '-')
        && name.starts_with(plain)
        && name.ends_with(plain)
}
