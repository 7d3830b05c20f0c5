//! Containers before and beside the job, and what the pod must have for them.

use bk_api::exporters::JOB_ENDED_VARIABLE;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{AGENT_CONTAINER, CHECKOUT_CONTAINER, RenderError, WORKSPACE, shim, variables::env};
use crate::environment::{Needs, Part, Resolved, Role, Trail, Wish, needs};

const POD_SPEC: &str = "spec.kubernetes.podSpec";

/// Adds containers and volumes, the service account and pull secrets. `share` gives a container the workspace.
///
/// They go before the init containers of the pod's author, which may want to use them, and behind its containers, which
/// they must not keep from starting.
pub(super) fn add(
    spec: &mut PodSpec,
    resolved: &Resolved,
    share: impl Fn(&mut Container),
) -> Result<(), RenderError> {
    check_names(spec, &resolved.parts)?;
    check_ports(resolved)?;
    let (with, first): (Vec<_>, Vec<_>) = resolved.parts.iter().partition(|part| part.role == Role::With);
    let made = |part: &Part| {
        let mut container = part.container.clone();
        share(&mut container);
        container
    };
    if !first.is_empty() {
        let first = first.into_iter().map(made);
        spec.init_containers = Some(first.chain(spec.init_containers.take().unwrap_or_default()).collect());
    }
    spec.containers.extend(with.into_iter().map(made));
    add_needs(spec, &resolved.needs)
}

/// Tells a container beside the job by which file it learns of the job's end.
pub(super) fn tell(container: &mut Container, run: &str) {
    let vars = container.env.get_or_insert_default();
    vars.push(env(JOB_ENDED_VARIABLE, format!("{WORKSPACE}/.buildkite-operator/{run}/job-ended")));
}

/// All containers of a pod share one space of names.
fn check_names(spec: &PodSpec, parts: &[Part]) -> Result<(), RenderError> {
    let operators = [AGENT_CONTAINER, CHECKOUT_CONTAINER].map(|name| (name, "the operator".to_owned()));
    let own = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let own = own.map(|container| (container.name.as_str(), "the job's own pod".to_owned()));
    let mut taken: Vec<(&str, String)> = operators.into_iter().chain(own).collect();
    for part in parts {
        let name = part.container.name.as_str();
        if let Some((_, by)) = taken.iter().find(|(other, _)| *other == name) {
            return Err(part.trail.refuse(format!(
                "the container's name `{name}` is taken by {by}; give it a `name` of its own"
            )));
        }
        taken.push((name, part.trail.to_string()));
    }
    Ok(())
}

/// All containers that run at the same time share one space of ports.
fn check_ports(resolved: &Resolved) -> Result<(), RenderError> {
    let primary = std::iter::once((&resolved.primary.container, &resolved.primary.trail));
    let beside = resolved.parts.iter().filter(|part| part.role != Role::Init);
    let mut taken: Vec<(i32, &str, &Trail)> = Vec::new();
    for (container, trail) in primary.chain(beside.map(|part| (&part.container, &part.trail))) {
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let (number, protocol) = (port.container_port, port.protocol.as_deref().unwrap_or("TCP"));
            if let Some((_, _, by)) = taken.iter().find(|(n, p, _)| (*n, *p) == (number, protocol)) {
                return Err(trail.below("container").below(&format!("ports[{index}]")).refuse(format!(
                    "{protocol} port {number} is taken by {by}: the containers of a pod share their ports"
                )));
            }
            taken.push((number, protocol, trail));
        }
    }
    Ok(())
}

fn add_needs(spec: &mut PodSpec, needs: &Needs) -> Result<(), RenderError> {
    for volume in &needs.volumes {
        if volume.value.name == shim::VOLUME {
            return Err(needs::another_volume(volume, "every job pod"));
        }
        match spec.volumes.iter().flatten().find(|own| own.name == volume.value.name) {
            None => spec.volumes.get_or_insert_default().push(volume.value.clone()),
            Some(own) if *own == volume.value => {}
            Some(_) => return Err(needs::another_volume(volume, "the job's own pod")),
        }
    }
    if let Some(account) = &needs.service_account {
        add_service_account(spec, account)?;
    }
    for secret in &needs.image_pull_secrets {
        let own = spec.image_pull_secrets.get_or_insert_default();
        if !own.contains(secret) {
            own.push(secret.clone());
        }
    }
    Ok(())
}

fn add_service_account(spec: &mut PodSpec, account: &Wish<String>) -> Result<(), RenderError> {
    let given = [&spec.service_account_name, &spec.service_account];
    if let Some(own) = given.into_iter().flatten().find(|name| !name.is_empty() && **name != account.value) {
        return Err(needs::another_account(account, own, POD_SPEC));
    }
    spec.service_account_name = Some(account.value.clone());
    Ok(())
}
