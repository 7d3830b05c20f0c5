//! How git gets the source: the configuration's `checkout` and the step's, as variables, volumes and mounts.

use bk_api::{
    credentials::GitCredentials,
    params::{CheckoutParams, GitMirrors},
};
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Volume, VolumeMount};

use super::{
    PodSettings,
    credentials::Credentials,
    mount,
    variables::{env, literal},
};
use crate::plugin::KubernetesPlugin;

/// Where mirrors are, unless somebody says otherwise.
const MIRRORS_DIRECTORY: &str = "/buildkite/git-mirrors";
const MIRRORS_VOLUME: &str = "git-mirrors";

/// The variable that says how many settings follow.
pub(super) const COUNT: &str = "GIT_CONFIG_COUNT";

/// How a job's source is checked out.
#[derive(Debug, Default)]
pub(super) struct Git {
    params: CheckoutParams,
    /// The same for the agent's container: what the step says must not refer to what stands in that container's variables.
    told: CheckoutParams,
    credentials: Credentials,
    env_from: Vec<EnvFromSource>,
}

impl Git {
    /// What the configuration says, the environment and the step on top of it.
    pub(super) fn of(
        plugin: &KubernetesPlugin,
        environment: Option<&GitCredentials>,
        settings: &PodSettings,
    ) -> Self {
        let config = &settings.config;
        let credentials = Credentials::new(config.git_credentials.as_ref(), environment);
        Self::new(&config.checkout, &plugin.checkout, credentials, &plugin.git_env_from)
    }

    /// `env_from` is what the step gives to everything that uses git.
    fn new(
        configured: &CheckoutParams,
        step: &CheckoutParams,
        credentials: Credentials,
        env_from: &[EnvFromSource],
    ) -> Self {
        let params = merge(configured, step);
        let told = merge(configured, &taken_literally(step));
        let credentials = credentials.with_store(params.git_credentials_secret.as_ref());
        Self { params, told, credentials, env_from: env_from.to_vec() }
    }

    /// Whether nothing is checked out.
    pub(super) fn is_skipped(&self) -> bool {
        self.params.skip.unwrap_or(false)
    }

    /// Whether something is for the checkout alone, so that it cannot share a container with the command.
    pub(super) fn wants_own_container(&self) -> bool {
        let CheckoutParams { env_from, extra_volume_mounts, .. } = &self.params;
        !self.credentials.is_empty()
            || !env_from.is_empty()
            || !extra_volume_mounts.is_empty()
            || !self.env_from.is_empty()
    }

    /// Secrets with which git authenticates.
    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Variables of `buildkite-agent start`, which tells every bootstrap.
    pub(super) fn start_env(&self) -> Vec<EnvVar> {
        let submodules =
            self.told.no_submodules.map(|none| env("BUILDKITE_NO_GIT_SUBMODULES", none.to_string()));
        flags(&self.told).into_iter().chain(submodules).collect()
    }

    /// Variables of `buildkite-agent bootstrap`, where no agent tells it.
    pub(super) fn bootstrap_env(&self) -> Vec<EnvVar> {
        let submodules =
            self.params.no_submodules.map(|none| env("BUILDKITE_GIT_SUBMODULES", (!none).to_string()));
        flags(&self.params).into_iter().chain(submodules).collect()
    }

    /// Flags with which the agent clones, if anybody says.
    pub(super) fn clone_flags(&self) -> Option<&str> {
        self.params.clone_flags.as_deref()
    }

    /// Whether the agent keeps mirrors of its own.
    pub(super) fn has_mirrors(&self) -> bool {
        mirrors_path(&self.params).is_some()
    }

    fn mirrors_volume(&self) -> Option<Volume> {
        let volume = self.params.git_mirrors.as_ref()?.volume.clone()?;
        let name = if volume.name.is_empty() { MIRRORS_VOLUME.to_owned() } else { volume.name };
        Some(Volume { name, ..volume })
    }

    /// Volumes of the pod.
    pub(super) fn volumes(&self) -> Vec<Volume> {
        self.mirrors_volume().into_iter().chain(self.credentials.volumes()).collect()
    }

    /// Mounts of the container that checks out.
    pub(super) fn mounts(&self) -> Vec<VolumeMount> {
        let mirrors = self.mirrors_mount(None);
        let extra = self.params.extra_volume_mounts.iter().cloned();
        mirrors.into_iter().chain(extra).chain(self.credentials.mounts()).collect()
    }

    /// Mounts of the containers that run commands: a clone that borrows from a mirror is of no use without it.
    pub(super) fn command_mounts(&self) -> Vec<VolumeMount> {
        self.mirrors_mount(Some(true)).into_iter().collect()
    }

    fn mirrors_mount(&self, read_only: Option<bool>) -> Option<VolumeMount> {
        Some(mount(&self.mirrors_volume()?.name, &mirrors_path(&self.params)?, read_only))
    }

    /// ConfigMaps and Secrets whose entries are variables of the container that checks out.
    pub(super) fn env_from(&self) -> Vec<EnvFromSource> {
        self.params.env_from.iter().chain(&self.env_from).cloned().collect()
    }
}

fn flags(params: &CheckoutParams) -> Vec<EnvVar> {
    let config = &params.submodule_clone_config;
    let mut flags = vec![
        ("BUILDKITE_GIT_CHECKOUT_FLAGS", params.checkout_flags.clone()),
        ("BUILDKITE_GIT_CLEAN_FLAGS", params.clean_flags.clone()),
        ("BUILDKITE_GIT_CLONE_FLAGS", params.clone_flags.clone()),
        ("BUILDKITE_GIT_FETCH_FLAGS", params.fetch_flags.clone()),
        ("BUILDKITE_GIT_SUBMODULE_CLONE_CONFIG", (!config.is_empty()).then(|| config.join(","))),
    ];
    if let Some(mirrors) = &params.git_mirrors {
        let timeout = mirrors.lock_timeout.filter(|seconds| *seconds > 0);
        flags.extend([
            ("BUILDKITE_GIT_MIRRORS_PATH", mirrors_path(params)),
            ("BUILDKITE_GIT_CLONE_MIRROR_FLAGS", mirrors.clone_flags.clone()),
            ("BUILDKITE_GIT_MIRRORS_LOCK_TIMEOUT", timeout.map(|seconds| seconds.to_string())),
            ("BUILDKITE_GIT_MIRRORS_SKIP_UPDATE", mirrors.skip_update.map(|skip| skip.to_string())),
        ]);
    }
    flags.into_iter().filter_map(|(name, value)| Some(env(name, value?))).collect()
}

/// Where mirrors are, if there are any. A volume is there to be used, also if nobody says where.
fn mirrors_path(params: &CheckoutParams) -> Option<String> {
    let mirrors = params.git_mirrors.as_ref()?;
    let default = || mirrors.volume.as_ref().map(|_| MIRRORS_DIRECTORY.to_owned());
    mirrors.path.clone().or_else(default)
}

/// The same parameters with every text such that Kubernetes leaves it as it is.
fn taken_literally(params: &CheckoutParams) -> CheckoutParams {
    let text = |text: &Option<String>| text.as_deref().map(literal);
    CheckoutParams {
        checkout_flags: text(&params.checkout_flags),
        clean_flags: text(&params.clean_flags),
        clone_flags: text(&params.clone_flags),
        fetch_flags: text(&params.fetch_flags),
        submodule_clone_config: params.submodule_clone_config.iter().map(|entry| literal(entry)).collect(),
        git_mirrors: params.git_mirrors.as_ref().map(|mirrors| GitMirrors {
            path: text(&mirrors.path),
            clone_flags: text(&mirrors.clone_flags),
            ..mirrors.clone()
        }),
        ..params.clone()
    }
}

/// The step's word goes before the configuration's; what both may add is added.
fn merge(configured: &CheckoutParams, step: &CheckoutParams) -> CheckoutParams {
    let (old, new) = (configured.clone(), step.clone());
    let either = |new: Vec<String>, old: Vec<String>| if new.is_empty() { old } else { new };
    CheckoutParams {
        skip: new.skip.or(old.skip),
        checkout_flags: new.checkout_flags.or(old.checkout_flags),
        clean_flags: new.clean_flags.or(old.clean_flags),
        clone_flags: new.clone_flags.or(old.clone_flags),
        fetch_flags: new.fetch_flags.or(old.fetch_flags),
        no_submodules: new.no_submodules.or(old.no_submodules),
        submodule_clone_config: either(new.submodule_clone_config, old.submodule_clone_config),
        git_mirrors: match (new.git_mirrors, old.git_mirrors) {
            (Some(new), Some(old)) => Some(merge_mirrors(new, old)),
            (new, old) => new.or(old),
        },
        git_credentials_secret: new.git_credentials_secret.or(old.git_credentials_secret),
        env_from: [old.env_from, new.env_from].concat(),
        extra_volume_mounts: merge_mounts(old.extra_volume_mounts, &new.extra_volume_mounts),
    }
}

fn merge_mirrors(new: GitMirrors, old: GitMirrors) -> GitMirrors {
    GitMirrors {
        path: new.path.or(old.path),
        volume: new.volume.or(old.volume),
        clone_flags: new.clone_flags.or(old.clone_flags),
        lock_timeout: new.lock_timeout.or(old.lock_timeout),
        skip_update: new.skip_update.or(old.skip_update),
    }
}

/// Mounts of the configuration, and those of a step, which go before them.
pub(super) fn merge_mounts(old: Vec<VolumeMount>, new: &[VolumeMount]) -> Vec<VolumeMount> {
    let kept = old.into_iter().filter(|old| new.iter().all(|new| new.mount_path != old.mount_path));
    kept.chain(new.iter().cloned()).collect()
}

/// Settings of git as variables, which need no file and no home. git takes them as if from its command line.
pub(super) fn settings(entries: &[(&str, String)]) -> Vec<EnvVar> {
    let mut vars = vec![env(COUNT, entries.len().to_string())];
    for (index, (key, value)) in entries.iter().enumerate() {
        vars.push(env(&format!("GIT_CONFIG_KEY_{index}"), *key));
        vars.push(env(&format!("GIT_CONFIG_VALUE_{index}"), value));
    }
    vars
}

/// What keeps git from refusing a checkout that belongs to another user of the pod.
pub(super) fn trust() -> (&'static str, String) {
    ("safe.directory", "*".to_owned())
}

#[cfg(test)]
mod tests;
