//! The containers of a draft, by what they do, once patches are applied.

use k8s_openapi::api::core::v1::Container;

use super::{AGENT_CONTAINER, CHECKOUT_CONTAINER, RenderError};

/// The containers of a pod.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Those that run a command, in the order of their turns.
    pub(super) commands: Vec<Container>,
    /// The one that talks to Buildkite.
    pub(super) agent: Container,
    /// The one that checks out.
    pub(super) checkout: Option<Container>,
    /// Those that run as they are.
    pub(super) others: Vec<Container>,
}

impl Parts {
    /// Takes `containers` apart. `commands` are the names of those that run a command, in the order of their turns.
    pub(super) fn of(containers: Vec<Container>, commands: &[String]) -> Result<Self, RenderError> {
        let mut parts = Self::default();
        let mut agent = None;
        for container in containers {
            match container.name.as_str() {
                AGENT_CONTAINER => agent = Some(container),
                CHECKOUT_CONTAINER => parts.checkout = Some(container),
                name if commands.iter().any(|command| command == name) => parts.commands.push(container),
                _ => parts.others.push(container),
            }
        }
        parts.commands.sort_by_key(|container| commands.iter().position(|name| *name == container.name));
        let refused = |problem: &str| RenderError {
            path: "pod.spec.containers".to_owned(),
            problem: problem.to_owned(),
        };
        parts.agent =
            agent.ok_or_else(|| refused("a patch removes `agent`, without which no job can run"))?;
        if parts.commands.is_empty() {
            return Err(refused("a patch removes every container that runs a command; leave one"));
        }
        Ok(parts)
    }
}
