//! How the shim, and with it the agent, gets to the containers of a pod: from a ConfigMap, or by an init container.

use std::collections::BTreeSet;

use bk_api::config::{AgentDelivery, Architecture};
use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Container, KeyToPath, PodSpec, Volume, VolumeMount};

use super::{PodSettings, RenderError, mount, node, shim};

/// The init container's name, which patches may use.
pub(super) const COPY_AGENT: &str = "copy-agent";

/// What the init container runs. An image that has no shim of its own gets the one from the ConfigMap, if that runs on every
/// node where the pod may land.
const SCRIPT: &str = r#"shim=$(command -v buildkite-shim) || shim=/buildkite/shim/buildkite-shim
if [ ! -e "$shim" ]; then
  echo "the agent's image has no buildkite-shim; on nodes of another architecture than the operator's it needs one" >&2
  exit 1
fi
cp "$shim" "/workspace/.buildkite-shim.$2"
chmod 755 "/workspace/.buildkite-shim.$2"
mv -f "/workspace/.buildkite-shim.$2" /workspace/buildkite-shim
hooks=/workspace/.buildkite-operator/hooks
(umask 0; mkdir -p "$hooks"; for hook in environment pre-command pre-exit; do ln -f /workspace/buildkite-shim "$hooks/$hook"; done) || true
exec /workspace/buildkite-shim deliver "$@""#;

/// The agent's hooks that the shim is, under their names.
const HOOKS: [&str; 3] = ["environment", "pre-command", "pre-exit"];
/// The volume with them, and where it is mounted.
const HOOKS_VOLUME: &str = "buildkite-shim-hooks";
const MOUNTED_HOOKS: &str = "/buildkite/shim-hooks";
/// Where the init container puts them.
const COPIED_HOOKS: &str = "/workspace/.buildkite-operator/hooks";

/// How the shim gets to the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// They run it from the ConfigMap.
    Shim,
    /// An init container copies it to the workspace.
    Init {
        /// Whether the ConfigMap's shim runs wherever the pod may land.
        from_config_map: bool,
    },
}

impl Delivery {
    /// The way for a pod: as configured, unless it may land on nodes where the ConfigMap's shim does not run.
    pub(super) fn of(spec: &PodSpec, settings: &PodSettings) -> Result<Self, RenderError> {
        if node::is_windows(spec) {
            return Err(RenderError {
                path: "pod.spec".to_owned(),
                problem: "the job asks for Windows nodes, and there is no agent image for them; \
                          choose nodes with the label kubernetes.io/os=linux"
                    .to_owned(),
            });
        }
        let own = label(settings.architecture);
        let offered = settings.config.architectures.iter().copied().map(label).map(str::to_owned);
        let offered: BTreeSet<String> = offered.collect();
        let offered = if offered.is_empty() { BTreeSet::from([own.to_owned()]) } else { offered };
        let runs_everywhere = node::architectures(spec, &offered).iter().all(|possible| possible == own);
        Ok(match (settings.config.agent_delivery, runs_everywhere) {
            (AgentDelivery::Shim, true) => Self::Shim,
            (_, from_config_map) => Self::Init { from_config_map },
        })
    }

    /// Where containers find the shim.
    pub(super) fn binary(self) -> &'static str {
        match self {
            Self::Shim => shim::MOUNTED,
            Self::Init { .. } => shim::COPIED,
        }
    }

    /// The volume that the pod needs.
    pub(super) fn volume(self, settings: &PodSettings) -> Option<Volume> {
        let needed = self != Self::Init { from_config_map: false };
        needed.then(|| Volume {
            name: shim::VOLUME.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: settings.shim_config_map.clone(),
                default_mode: Some(0o555),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        })
    }

    /// Where containers find the shim as hooks of the agent.
    pub(super) fn hooks(self) -> &'static str {
        match self {
            Self::Shim => MOUNTED_HOOKS,
            Self::Init { .. } => COPIED_HOOKS,
        }
    }

    /// The volume with these hooks and its mount, if they are not in the workspace.
    pub(super) fn hooks_volume(self, settings: &PodSettings) -> Option<(Volume, VolumeMount)> {
        let item =
            |hook: &str| KeyToPath { key: shim::FILE.to_owned(), path: hook.to_owned(), mode: Some(0o555) };
        let volume = || Volume {
            name: HOOKS_VOLUME.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: settings.shim_config_map.clone(),
                items: Some(HOOKS.into_iter().map(item).collect()),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        };
        (self == Self::Shim).then(|| (volume(), mount(HOOKS_VOLUME, MOUNTED_HOOKS, Some(true))))
    }

    /// Gives a container the shim, if it does not find it in the workspace.
    pub(super) fn share(self, container: &mut Container) {
        if self == Self::Shim {
            let mounts = container.volume_mounts.get_or_insert_default();
            mounts.push(mount(shim::VOLUME, shim::DIRECTORY, Some(true)));
        }
    }

    /// The init container that copies shim and agent, if there is to be one, made from what patches left of its draft. It runs the
    /// agent's image.
    pub(super) fn init_container(
        self,
        drafted: Option<Container>,
        agent: &Container,
        run: &str,
    ) -> Option<Container> {
        let Self::Init { from_config_map } = self else { return None };
        let mut container = drafted.unwrap_or_default();
        COPY_AGENT.clone_into(&mut container.name);
        container.image = container.image.or_else(|| agent.image.clone());
        container.image_pull_policy = container.image_pull_policy.or_else(|| agent.image_pull_policy.clone());
        let command = ["/bin/sh", "-ec", SCRIPT, COPY_AGENT, "--run", run];
        container.command.get_or_insert_with(|| command.map(str::to_owned).to_vec());
        if from_config_map {
            let mounts = container.volume_mounts.get_or_insert_default();
            mounts.push(mount(shim::VOLUME, shim::DIRECTORY, Some(true)));
        }
        Some(container)
    }
}

/// The value of a node's label.
fn label(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "amd64",
        Architecture::Arm64 => "arm64",
    }
}
