//! BuildJob → Pod.
//!
//! Every job pod has the same shape. The *managed* containers take turns: `checkout` first, if there is one,
//! then `container-0`, `container-1`, … Each runs the real agent's bootstrap under the shim. The `agent`
//! container talks to Buildkite and starts only when every managed container runs (the start fence), so that
//! an image that cannot be pulled is noticed while the job is merely reserved.
//!
//! A pod is made in three steps:
//!
//! 1. The *draft* has every container under its name, as users of Buildkite's own controller know it.
//! 2. *Patches* change it: the configuration's, the step's `image`, the step's own.
//! 3. It is *finished*: whatever depends on which containers there are, and on their images, is settled now.
//!
//! - [`workload`]: what the author of the job asked for
//! - [`agent`], [`agent_config`], [`tags`]: the container that talks to Buildkite, its settings, what it says about itself
//! - [`registration`]: what its agent registers with, and where
//! - [`holdings`]: volumes of the agent that are not for jobs to write to
//! - [`checkout`], [`git`], [`credentials`]: the container that checks out, how, and with which Secrets
//! - [`mirror`]: checkouts that borrow from mirrors in the cluster
//! - [`extra_containers`]: containers before and beside the job, from BuildEnvironments or inline
//! - [`exporters`]: containers of the operator's own image that carry away what the job leaves
//! - [`workspace`]: the volume that all share
//! - [`identity`], [`security`]: who containers run as, and what they may do
//! - [`delivery`], [`node`], [`shim`]: how shim and agent get into containers on any node, and the command lines of PID 1
//! - [`image_check`], [`resources`], [`equipment`]: what else the operator adds
//! - [`plugin_directories`]: plugins that are none
//! - [`resource_class`]: resources, nodes and priority under one name
//! - [`placement`]: which nodes the pod may go to
//! - [`parts`]: the containers of a draft, by what they do
//! - [`patches`]: what changes a draft
//! - [`bootstrap`]: what a managed container runs, for Buildkite jobs and standalone ones
//! - [`script`]: what `command` and `args` of a container mean
//! - [`metadata`]: labels and annotations
//! - [`images`]: references to images, and when they are pulled
//! - [`references`]: names within the pod
//! - [`secrecy`]: tokens, which are the agent's alone
//! - [`strict`]: reading what people wrote

mod agent;
mod agent_config;
mod bootstrap;
mod checkout;
mod credentials;
mod delivery;
mod equipment;
mod exporters;
mod extra_containers;
mod git;
mod holdings;
mod identity;
mod image_check;
mod images;
mod metadata;
pub(crate) mod mirror;
mod node;
mod parts;
mod patches;
mod placement;
pub(crate) mod plugin_directories;
mod references;
mod registration;
mod resource_class;
mod resources;
mod script;
mod secrecy;
mod security;
mod shim;
pub(crate) mod strict;
mod tags;
mod variables;
mod workload;
mod workspace;

use bk_api::{
    BuildJob, BuildJobSpec,
    build_job::BuildkiteJob,
    config::{
        Architecture, ArtifactExporterConfig, Config, ImageCheck, LogExporterConfig, MetricsExporterConfig,
        MirrorConfig, PodConfig, ResourceClasses,
    },
    names,
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, VolumeMount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use self::{
    delivery::Delivery,
    equipment::Equipment,
    git::Git,
    mirror::Mirrors,
    parts::Parts,
    patches::Late,
    shim::{Run, Supply},
    workload::Workload,
    workspace::Workspace,
};
use crate::{broker::Key, environment, plugin::KubernetesPlugin, surroundings::Surroundings};

/// Where the pod's containers share files.
pub const WORKSPACE: &str = "/workspace";
/// Name of the container that talks to Buildkite.
pub const AGENT_CONTAINER: &str = "agent";
/// Name of the container that checks out the source, where it has one of its own.
pub const CHECKOUT_CONTAINER: &str = "checkout";

/// The pod's restart policy: a container that is started again would run the command again.
const NEVER: &str = "Never";

/// What a pod needs beyond its BuildJob.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSettings {
    /// What pods look like.
    pub config: PodConfig,
    /// Resource classes by name.
    pub resource_classes: ResourceClasses,
    /// Where mirrors of git repositories are.
    pub mirrors: MirrorConfig,
    /// The Agent API as seen from pods.
    pub endpoint: String,
    /// How agents register by way of the operator; without it they have the agent token.
    pub broker: Option<BrokerAccess>,
    /// The ConfigMap in the job namespace with the shim.
    pub shim_config_map: String,
    /// The architecture of that shim.
    pub architecture: Architecture,
    /// The queue whose jobs the operator takes.
    pub queue: String,
    /// Which files of jobs become artifacts.
    pub artifacts: ArtifactExporterConfig,
    /// Where logs of jobs go.
    pub logs: LogExporterConfig,
    /// How metrics of jobs leave their pods.
    pub metrics: MetricsExporterConfig,
    /// The Secret with the token for Buildkite's API, which no pod may refer to.
    pub api_token_secret: String,
    /// Secrets with the broker's keys and the sessions of agents, which no pod may refer to, whether agents register there or not. They are in the
    /// job namespace if the operator is.
    pub broker_secrets: Vec<String>,
    /// The operator's own service account, if it is in the job namespace: no pod may run as it.
    pub own_account: Option<String>,
}

/// How agents in pods register by way of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerAccess {
    /// Where.
    pub url: String,
    /// What its Secrets, and the ConfigMap in the job namespace with its authority, are called.
    pub name: String,
    /// Whether pods have to trust that authority.
    pub has_authority: bool,
    /// What one-time tokens are sealed with; nothing where pods are only looked at.
    pub key: Option<Key>,
}

impl PodSettings {
    /// What the configuration says about pods, for jobs of this Agent API, with this shim of the program's own architecture.
    pub fn of(config: &Config, endpoint: &str, shim_config_map: String) -> Self {
        Self {
            config: config.pods.clone(),
            resource_classes: config.resource_classes.clone(),
            mirrors: config.mirrors.clone(),
            endpoint: endpoint.to_owned(),
            broker: None,
            shim_config_map,
            architecture: Architecture::OWN,
            queue: config.spawner.main_queue().key,
            artifacts: config.artifacts.clone(),
            logs: config.logs.clone(),
            metrics: config.metrics.clone(),
            api_token_secret: config.spawner.api_token_secret.clone(),
            broker_secrets: Vec::new(),
            own_account: None,
        }
    }
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
    surroundings: &Surroundings,
    settings: &PodSettings,
) -> Result<Pod, RenderError> {
    let job_name = job.metadata.name.clone().unwrap_or_default();
    let pod_name = names::pod(&job_name, attempt);
    let plugin = KubernetesPlugin::of(job, settings)?;
    metadata::check(&plugin, settings)?;
    let mut draft = draft(job, attempt, &plugin, surroundings, settings)?;
    patches::apply(&mut draft, job, &plugin, settings)?;
    let (spec, passwd) = finish(job, &pod_name, &plugin, draft, run_id(job, attempt, &pod_name), settings)?;
    let mut annotations = metadata::annotations(job, attempt, &plugin, settings);
    annotations.extend(passwd.map(|entries| (names::ANNOTATION_PASSWD.to_owned(), entries)));
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(pod_name),
            namespace: job.metadata.namespace.clone(),
            labels: Some(metadata::labels(job, &plugin, settings)),
            annotations: Some(annotations),
            owner_references: job.owner_reference().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// Refuses settings with which no pod can be made, whatever the job: with a checkout in the command's container, with one
/// of its own, and in each resource class.
pub fn try_out(settings: &PodSettings) -> Result<(), RenderError> {
    exporters::try_out(settings)?;
    let classes = settings.resource_classes.keys().map(|class| (None, Some(class.clone())));
    let images = [(None, None), (Some("image".to_owned()), None)];
    for (image, resource_class) in images.into_iter().chain(classes) {
        let buildkite = Some(BuildkiteJob { job_uuid: uuid_of_nobody(), ..BuildkiteJob::default() });
        let spec = BuildJobSpec { buildkite, image, resource_class, ..BuildJobSpec::default() };
        render(&BuildJob::new("trial", spec), 0, &Surroundings::default(), settings)?;
    }
    Ok(())
}

fn uuid_of_nobody() -> String {
    "00000000-0000-0000-0000-000000000000".to_owned()
}

/// A pod as patches see it.
struct Draft {
    spec: PodSpec,
    /// Names of the containers that run a command, in the order of their turns.
    commands: Vec<String>,
    /// The checkout, if there is one.
    checkout: Option<Container>,
    /// What containers run that have no command of their own.
    script: Option<String>,
    /// How the source is checked out.
    git: Git,
    /// What all containers share.
    workspace: Workspace,
    /// Patches of containers that are not there yet.
    late: Vec<Late>,
}

/// The pod before patches: commands, agent, checkout, in the order that users of Buildkite's own controller know.
fn draft(
    job: &BuildJob,
    attempt: u32,
    plugin: &KubernetesPlugin,
    surroundings: &Surroundings,
    settings: &PodSettings,
) -> Result<Draft, RenderError> {
    let environment = environment::resolve(job, surroundings)?;
    let Workload { pod_spec: mut spec, mut commands, is_made } =
        workload::of(job, plugin, &environment.primary, surroundings, settings)?;
    resource_class::apply(job, &mut spec, &mut commands, settings)?;
    // Patches may not change it.
    spec.restart_policy = Some(NEVER.to_owned());
    let names: Vec<String> = commands.iter().map(|container| container.name.clone()).collect();
    let git = Git::of(plugin, environment.primary.git_credentials.as_ref(), settings);
    let workspace = Workspace::of(job, &spec, settings)?;
    spec.containers = commands;
    spec.containers.push(agent::container(job, attempt, &git, settings));
    spec.containers.extend(checkout::container(job, &git, settings));
    share_workspace(&mut spec, &workspace, plugin);
    let mirrors = Mirrors::of(job, &git, settings);
    equipment::equip_draft(&mut spec, job, &names, &git, mirrors.as_ref(), settings);
    equipment::restrict_draft(&mut spec, &names, is_made, settings);
    extra_containers::add(&mut spec, &environment, |container| workspace.share(container))?;
    placement::apply(&mut spec, &environment.needs);
    // A patch that took one of two away could put the author's in the place of the agent's.
    references::volumes(&spec)?;
    let checkout = spec.containers.iter().find(|container| container.name == CHECKOUT_CONTAINER).cloned();
    let script = workload::script(job, &environment.primary)?;
    Ok(Draft { spec, commands: names, checkout, script, git, workspace, late: Vec::new() })
}

/// Settles what depends on the pod's containers, once patches are applied. Also returns what its users are called.
fn finish(
    job: &BuildJob,
    pod_name: &str,
    plugin: &KubernetesPlugin,
    draft: Draft,
    run_id: String,
    settings: &PodSettings,
) -> Result<(PodSpec, Option<String>), RenderError> {
    let Draft { mut spec, commands, checkout: drafted, script, git, workspace, late } = draft;
    let mut parts = Parts::of(std::mem::take(&mut spec.containers), &commands)?;
    let checkout = checkout::settle(job, &git, &parts.commands, drafted.as_ref(), parts.checkout, settings);
    let interposer = workload::interposer(plugin, settings);
    let commands = parts
        .commands
        .into_iter()
        .map(|container| workload::with_script(container, script.as_deref(), interposer))
        .collect::<Result<Vec<_>, _>>()?;
    workload::check_scripts(job, &commands)?;
    let turns = bootstrap::turns(commands, checkout);
    placement::finish(&mut spec, &settings.config);
    let delivery = Delivery::of(&spec, settings)?;
    let plugins_path = agent_config::plugins_path(&settings.config);
    let wanted = exporters::Wanted::of(job, settings);
    let mut beside: Vec<&mut Container> = parts.others.iter_mut().collect();
    beside.extend(spec.init_containers.iter_mut().flatten().filter(|container| is_sidecar(container)));
    let has_company = !beside.is_empty();
    for container in beside {
        extra_containers::tell(container, &run_id);
    }
    let is_agents = |turn: &bootstrap::Turn| turn.container.image == parts.agent.image;
    // Others may run the agent, too, and have other images.
    let is_alone = !wanted.any && !has_company && spec.init_containers.as_ref().is_none_or(Vec::is_empty);
    let can_link = delivery == Delivery::Shim && is_alone && turns.iter().all(is_agents);
    let run = Run {
        id: run_id,
        names: turns.iter().map(|turn| turn.container.name.clone()).collect(),
        binary: delivery.binary(),
        fenced: settings.config.image_check != ImageCheck::None,
        supply: if can_link { Supply::Link } else { Supply::Copy },
        directories: plugin_directories::of(job, &plugins_path, pod_name),
        shared: identity::differ(turns.iter().map(|turn| &turn.container), &spec),
        standalone: job.spec.buildkite.is_none(),
        last: turns.last().filter(|_| wanted.any || has_company).map(|turn| turn.container.name.clone()),
        kept: wanted.kept(),
    };

    spec.termination_grace_period_seconds.get_or_insert(settings.config.termination_grace_period_seconds);
    let mut agent = parts.agent;
    agent::finish(&mut agent, job, &spec, &run, settings);
    let mut managed = bootstrap::containers(job, turns, &run, &git, settings);
    let checkout = managed.iter().position(|c| c.name == CHECKOUT_CONTAINER).map(|at| managed.remove(at));
    spec.containers = managed;
    spec.containers.push(agent);
    spec.containers.extend(checkout);
    spec.containers.extend(parts.others);
    images::settle(&mut spec, settings)?;
    let mirrors = Mirrors::of(job, &git, settings);
    let passwd = equipment::complete(
        &mut spec,
        &Equipment { workspace: &workspace, delivery, run: &run, git: &git, mirrors: mirrors.as_ref() },
        settings,
    )?;
    name_service_account(&mut spec);
    exporters::add(&mut spec, job, pod_name, &run, &workspace, delivery, settings)?;
    patches::apply_late(&mut spec, &late, job, &workspace, settings)?;
    registration::hide_token(&mut spec);
    references::settle_mounts(&mut spec)?;
    references::check(&spec)?;
    secrecy::check(&spec, job, settings)?;
    Ok((spec, passwd))
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

/// The containers of a rendered pod that carry away what the job leaves.
pub(crate) fn exporter_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().filter(|container| exporters::is_exporter(container))
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

/// Gives every container of a draft the workspace, and all but the agent's the mounts that the step wants everywhere.
fn share_workspace(spec: &mut PodSpec, workspace: &Workspace, plugin: &KubernetesPlugin) {
    workspace.add_volume(spec);
    for container in &mut spec.containers {
        container.working_dir.get_or_insert_with(|| WORKSPACE.to_owned());
    }
    let sidecars = spec.init_containers.iter_mut().flatten().filter(|container| is_sidecar(container));
    for container in spec.containers.iter_mut().chain(sidecars) {
        workspace.share(container);
        // Files of the author's in the agent's container could be programs of the author's with the agent's token.
        if container.name != AGENT_CONTAINER {
            mount_besides(container, &plugin.extra_volume_mounts);
        }
    }
}

/// Whether an init container runs beside the others, rather than before them.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub(crate) use exporters::ARTIFACT_EXPORTER;
pub use registration::{AUDIENCE, AUTHORITY_FILE};
pub(crate) use variables::{literal, plain};

/// A program and its arguments as a script that runs exactly them.
pub(crate) fn command_line(words: &[String]) -> String {
    script::quoted(words.iter())
}

/// Where a container of a pod is, in errors about what several hands made of it.
fn container_path(name: &str) -> String {
    format!("pod.spec.containers[{name}]")
}

/// Adds to a list that may be absent, and stays so if there is nothing to add.
fn append<'a, T: Clone + 'a>(list: &mut Option<Vec<T>>, more: impl IntoIterator<Item = &'a T>) {
    let mut more = more.into_iter().peekable();
    if more.peek().is_some() {
        list.get_or_insert_default().extend(more.cloned());
    }
}

/// Gives a container mounts that several get, unless it has something else of its own there.
fn mount_besides(container: &mut Container, mounts: &[VolumeMount]) {
    let own = container.volume_mounts.clone().unwrap_or_default();
    let is_free = |mount: &&VolumeMount| own.iter().all(|own| own.mount_path != mount.mount_path);
    append(&mut container.volume_mounts, mounts.iter().filter(is_free));
}

fn mount(volume: &str, path: &str, read_only: Option<bool>) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), read_only, ..VolumeMount::default() }
}
