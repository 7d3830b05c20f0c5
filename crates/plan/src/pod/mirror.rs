//! Mirrors of git repositories: the volume that checkouts borrow from, and the init container that prepares them.
//!
//! A checkout that borrows refers to the mirror by its path. So whoever runs git in the job has it at the same path.

use bk_api::{
    BuildJob, BuildJobSpec,
    build_job::Source,
    config::{MirrorConfig, MirrorLayout},
};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, HostPathVolumeSource, PersistentVolumeClaimVolumeSource, PodSpec,
    SeccompProfile, SecurityContext, Volume, VolumeMount,
};

use super::{
    AGENT_CONTAINER, CHECKOUT_CONTAINER, PodSettings, WORKSPACE, agent_config, append, bootstrap,
    exporters::PROGRAM,
    git::Git,
    identity, mount, security,
    shim::Run,
    variables::{env, literal},
};

/// The init container that prepares checkouts.
pub(super) const REPO_MIRROR: &str = "repo-mirror";
const VOLUME: &str = "buildkite-repo-mirrors";

/// Where the agent finds the hook that says in the job's log what was done, one directory for each run.
const HOOKS: &str = "/workspace/.repo-mirror";

/// What a job has of mirrors.
pub(super) struct Mirrors<'a> {
    config: &'a MirrorConfig,
    layout: MirrorLayout,
    image: &'a str,
    source: Option<&'a Source>,
    extra_repos: &'a [String],
}

/// Whether a job uses mirrors, where there are any: as it says itself, or else as the configuration does.
pub(crate) fn is_wanted(spec: &BuildJobSpec, config: &MirrorConfig) -> bool {
    spec.repo_mirror.as_ref().map_or(config.enabled, |own| own.enabled)
}

impl<'a> Mirrors<'a> {
    /// None if the job wants none, or has nothing that could be borrowed, or the operator has no mirrors or no image for the program
    /// that prepares checkouts. Where the agent keeps mirrors of its own, the checkout is left to it.
    pub(super) fn of(job: &'a BuildJob, git: &Git, settings: &'a PodSettings) -> Option<Self> {
        let config = &settings.mirrors;
        let layout = config.layout.filter(|_| is_wanted(&job.spec, config))?;
        let image = settings.config.operator_image.as_deref()?;
        let is_ours = !git.is_skipped() && !git.has_mirrors();
        let source = job.spec.source.as_ref().filter(|source| is_ours && !source.repo.is_empty());
        let extra_repos = job.spec.repo_mirror.as_ref().map_or(&[][..], |own| &own.extra_repos);
        let is_used = source.is_some() || !extra_repos.is_empty();
        is_used.then_some(Self { config, layout, image, source, extra_repos })
    }

    /// The volume with all mirrors. A directory that a node does not have yet is made, and has none.
    pub(super) fn volume(&self) -> Volume {
        let claim = |claim_name: &String| PersistentVolumeClaimVolumeSource {
            claim_name: claim_name.clone(),
            ..PersistentVolumeClaimVolumeSource::default()
        };
        let directory = |path: &String| HostPathVolumeSource {
            path: path.clone(),
            type_: Some("DirectoryOrCreate".to_owned()),
        };
        let is_shared = self.layout == MirrorLayout::Shared;
        Volume {
            name: VOLUME.to_owned(),
            persistent_volume_claim: self.config.claim_name.as_ref().filter(|_| is_shared).map(claim),
            host_path: self.config.host_path.as_ref().filter(|_| !is_shared).map(directory),
            ..Volume::default()
        }
    }

    /// Where whoever runs git has it.
    pub(super) fn mount(&self) -> VolumeMount {
        mount(VOLUME, &self.config.path, Some(true))
    }

    /// The init container, for the finished containers of a pod.
    pub(super) fn init_container(
        &self,
        containers: &[Container],
        spec: &PodSpec,
        git: &Git,
        run: &Run,
    ) -> Container {
        let checkout = containers.iter().find(|container| bootstrap::checks_out(container));
        let user = checkout.and_then(|checkout| identity::user(checkout, spec));
        let mut container = Container {
            name: REPO_MIRROR.to_owned(),
            image: Some(self.image.to_owned()),
            command: Some(self.command(git, run, run.shared || user.is_none())),
            env: Some(self.environment(checkout.is_some(), git)),
            security_context: Some(context(checkout, user, spec)),
            volume_mounts: Some(vec![self.mount()]),
            ..Container::default()
        };
        if let Some(checkout) = checkout.filter(|checkout| self.is_credulous(checkout)) {
            let mounts = checkout.volume_mounts.iter().flatten();
            append(&mut container.volume_mounts, mounts.filter(|mount| mount.name != VOLUME));
            append(&mut container.env_from, checkout.env_from.iter().flatten());
        }
        container
    }

    /// Whether the init container gets the credentials of the one that checks out: a further repository without a mirror is cloned
    /// from its server.
    fn is_credulous(&self, checkout: &Container) -> bool {
        !self.extra_repos.is_empty() && checkout.name == CHECKOUT_CONTAINER
    }

    /// `shared` says that others than the one who runs it may have to write to what it makes.
    fn command(&self, git: &Git, run: &Run, shared: bool) -> Vec<String> {
        let MirrorConfig { path, borrow_timeout_seconds, stale_seconds, .. } = self.config;
        let mut line = vec![
            PROGRAM.to_owned(),
            REPO_MIRROR.to_owned(),
            format!("--mirrors={}", literal(path)),
            format!("--timeout={borrow_timeout_seconds}"),
            format!("--stale={stale_seconds}"),
            format!("--hooks={}", hooks(run)),
        ];
        if shared {
            line.push("--shared".to_owned());
        }
        if !self.extra_repos.is_empty() {
            let copies = git.credentials().private_files().into_iter();
            line.extend(copies.map(|(from, to)| format!("--private={from}={to}")));
        }
        line.extend(self.extra_repos.iter().map(|url| format!("--extra-repo={}", literal(url))));
        line
    }

    /// What the agent will be told, so far as it is known before. An address may have a password in it, and so is no argument.
    fn environment(&self, checks_out: bool, git: &Git) -> Vec<EnvVar> {
        let mut vars = Vec::new();
        if !self.extra_repos.is_empty() {
            vars.extend(git.credentials().env());
        }
        if let Some(source) = self.source.filter(|_| checks_out) {
            vars.extend([
                env("BUILDKITE_REPO", literal(&source.repo)),
                env("BUILDKITE_COMMIT", literal(&source.commit)),
                env("BUILDKITE_BUILD_CHECKOUT_PATH", format!("{WORKSPACE}/build/buildkite")),
            ]);
            vars.extend(git.clone_flags().map(|flags| env("BUILDKITE_GIT_CLONE_FLAGS", literal(flags))));
        }
        vars
    }
}

/// Lets the finished containers of a pod find the hook: the agent tells the others, where there is one.
pub(super) fn add_hook(containers: &mut [Container], run: &Run) {
    let told = containers.iter_mut().filter(|container| {
        if run.standalone { bootstrap::checks_out(container) } else { container.name == AGENT_CONTAINER }
    });
    for container in told {
        agent_config::add_hooks_path(container.env.get_or_insert_default(), &hooks(run));
    }
}

fn hooks(run: &Run) -> String {
    format!("{HOOKS}/{}", run.id)
}

/// Who prepares a checkout: whoever checks out, as git does not trust what belongs to others. Where only the image knows that, it is
/// root, as in the agent's image.
fn context(checkout: Option<&Container>, user: Option<i64>, spec: &PodSpec) -> SecurityContext {
    let own = checkout.and_then(|checkout| checkout.security_context.as_ref());
    let of_pod = spec.security_context.as_ref();
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or_else(|| of_pod.and_then(|pod| pod.run_as_non_root))
        .unwrap_or(false);
    let unknown = if non_root { security::USER } else { 0 };
    SecurityContext {
        run_as_user: Some(user.unwrap_or(unknown)),
        run_as_group: own.and_then(|own| own.run_as_group),
        run_as_non_root: non_root.then_some(true),
        se_linux_options: own.and_then(|own| own.se_linux_options.clone()),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}
