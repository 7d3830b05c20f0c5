//! Exporters: containers of the operator's own image, at the end of the pod's list, that carry away what a job leaves. No container
//! of the job waits for them.
//!
//! - [`artifacts`]: the artifact exporter
//! - [`logs`]: the log exporter
//! - [`metrics`]: the metrics exporter

mod artifacts;
mod logs;
mod metrics;

use std::collections::BTreeMap;

use bk_api::{
    BuildJob,
    config::check_directory,
    exporters::{DOCUMENT_VARIABLE, MetricsMode, NODE_VARIABLE, POD_UID_VARIABLE},
};
use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, HTTPGetAction, PodSpec, Probe,
        ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};

use super::{
    AGENT_CONTAINER, PodSettings, RenderError, WORKSPACE,
    agent::from_field,
    agent_config, append,
    delivery::Delivery,
    identity, images, mount, resources,
    shim::Run,
    variables::{env, literal},
    workspace::Workspace,
};

/// The operator's program in its image.
pub(super) const PROGRAM: &str = "/usr/local/bin/buildkite-operator";

/// The log exporter's container.
pub(super) const LOG_EXPORTER: &str = "log-exporter";

/// The artifact exporter's container.
pub(crate) const ARTIFACT_EXPORTER: &str = "artifact-exporter";

/// The metrics exporter's container.
const METRICS_EXPORTER: &str = "metrics-exporter";

/// What the port with metrics is called.
const METRICS_PORT: &str = "job-metrics";

/// Every exporter there is: the container's name, which is that of the program's subcommand, too.
pub(super) const NAMES: [&str; 3] = [LOG_EXPORTER, ARTIFACT_EXPORTER, METRICS_EXPORTER];

/// The user of exporters where the job's own is not known or root: `nonroot` in the operator's image.
const USER: i64 = 65532;

/// Where the environments of the job's containers are.
const ENVIRONMENTS: &str = "/buildkite/environments";
const ENVIRONMENTS_VOLUME: &str = "buildkite-environments";
/// The most that they may hold.
const ENVIRONMENTS_SIZE: &str = "16Mi";

/// Where the token of a service account is, unless something else is there.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const NO_TOKEN_VOLUME: &str = "buildkite-no-token";

/// What an exporter of a pod has of its own. The rest is the same for all.
#[derive(Debug, Default, PartialEq)]
struct Exporter {
    /// The container's name and the subcommand.
    name: &'static str,
    /// What it is told, as JSON.
    document: String,
    /// Volumes of the pod that are there for it.
    volumes: Vec<Volume>,
    /// What of them it sees.
    mounts: Vec<VolumeMount>,
    /// What of them the containers that run commands see.
    shared: Vec<VolumeMount>,
    /// Variables that the containers that run commands have because of it.
    variables: Vec<EnvVar>,
    /// The port on which it answers, if it does.
    port: Option<u16>,
    /// The memory that it may use.
    memory: u64,
    /// Whether it writes to volumes that belong to root.
    needs_group: bool,
}

/// The pod as exporters find it.
struct Scene<'a> {
    job: &'a BuildJob,
    settings: &'a PodSettings,
    pod_name: &'a str,
    /// The containers that take turns.
    managed: &'a [Container],
    run: &'a Run,
    grace: i64,
}

impl Scene<'_> {
    /// A path in the directory of the pod's run.
    fn at(&self, path: &str) -> String {
        format!("{WORKSPACE}/.buildkite-operator/{}/{path}", self.run.id)
    }

    /// The marks of which one is there when the job has ended: its own, and that of the agent, which ends after it.
    fn ends(&self) -> Vec<String> {
        vec![self.at("job-ended"), self.at(&format!("ended/{AGENT_CONTAINER}"))]
    }

    /// The pod's grace period.
    fn grace_seconds(&self) -> u32 {
        u32::try_from(self.grace.max(0)).unwrap_or(u32::MAX)
    }
}

/// What exporters want of the shims of the job's containers, before there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Whether there is an exporter at all.
    pub(super) any: bool,
    /// Whether standard output is kept.
    pub(super) stdout: bool,
    /// Whether standard error is kept.
    pub(super) stderr: bool,
}

impl Wanted {
    /// What the exporters of a job want.
    pub(super) fn of(job: &BuildJob, settings: &PodSettings) -> Self {
        let logs = crate::exporters::logs::offer(&job.spec, settings).granted;
        let artifacts = crate::exporters::artifacts::offer(&job.spec, settings).granted;
        let metrics = crate::exporters::metrics::offer(&job.spec, settings).granted;
        Self {
            any: logs.is_some() || artifacts.is_some() || metrics.is_some(),
            stdout: logs.as_ref().is_some_and(|logs| logs.stdout),
            stderr: logs.as_ref().is_some_and(|logs| logs.stderr),
        }
    }

    /// The value of the shim's `--keep`, if anything is kept.
    pub(super) fn kept(self) -> Option<&'static str> {
        match (self.stdout, self.stderr) {
            (true, true) => Some("stdout,stderr"),
            (true, false) => Some("stdout"),
            (false, true) => Some("stderr"),
            (false, false) => None,
        }
    }
}

/// Gives a finished pod the exporters that its job wants.
pub(super) fn add(
    spec: &mut PodSpec,
    job: &BuildJob,
    pod_name: &str,
    run: &Run,
    workspace: &Workspace,
    delivery: Delivery,
    settings: &PodSettings,
) -> Result<(), RenderError> {
    let managed: Vec<Container> = super::managed_containers(spec).cloned().collect();
    let grace =
        spec.termination_grace_period_seconds.unwrap_or(settings.config.termination_grace_period_seconds);
    let scene = Scene { job, settings, pod_name, managed: &managed, run, grace };
    let exporters = [logs::exporter(&scene)?, artifacts::exporter(&scene)?, metrics::exporter(&scene)?];
    let exporters: Vec<Exporter> = exporters.into_iter().flatten().collect();
    check_shared(&exporters)?;
    if exporters.is_empty() {
        return Ok(());
    }
    let user = managed.iter().find_map(|container| identity::user(container, spec)).filter(|user| *user != 0);
    let user = user.unwrap_or(USER);
    let (hooks_volume, hooks_mount) = delivery.hooks_volume(settings).unzip();
    let mut volumes: Vec<Volume> = [environments_volume()].into_iter().chain(hooks_volume).collect();
    let has_token = spec.automount_service_account_token != Some(false);
    volumes.extend(has_token.then(|| empty(NO_TOKEN_VOLUME)));
    for container in &mut spec.containers {
        let is_managed = managed.iter().any(|managed| managed.name == container.name);
        if is_managed {
            append(&mut container.volume_mounts, &hooks_mount);
            share(container, &exporters);
        }
        // Without Buildkite, nobody but the containers themselves can tell their bootstrap.
        let is_told = if run.standalone { is_managed } else { container.name == AGENT_CONTAINER };
        if is_told {
            agent_config::add_hooks_path(container.env.get_or_insert_default(), delivery.hooks());
        }
    }
    for exporter in &exporters {
        let mut container = container(exporter, user, has_token, settings);
        if spec.host_network == Some(true) {
            // It would be a port of the node, and keep other such pods off it.
            container.ports = None;
        }
        workspace.share(&mut container);
        images::settle_one(&mut container, settings)?;
        spec.containers.push(container);
        if exporter.needs_group {
            let context = spec.security_context.get_or_insert_default();
            context.fs_group.get_or_insert(user);
            context.fs_group_change_policy.get_or_insert_with(|| "OnRootMismatch".to_owned());
        }
    }
    volumes.extend(exporters.into_iter().flat_map(|exporter| exporter.volumes));
    append(&mut spec.volumes, &volumes);
    Ok(())
}

/// Gives a container that takes turns what exporters have in common with it.
fn share(container: &mut Container, exporters: &[Exporter]) {
    append(&mut container.volume_mounts, &[mount(ENVIRONMENTS_VOLUME, ENVIRONMENTS, None)]);
    for exporter in exporters {
        append(&mut container.volume_mounts, &exporter.shared);
    }
    let name = container.name.clone();
    let vars = container.env.get_or_insert_default();
    vars.push(env("BUILDKITE_SHIM_ENVIRONMENTS", ENVIRONMENTS));
    vars.push(env("BUILDKITE_SHIM_NAME", name));
    vars.extend(exporters.iter().flat_map(|exporter| exporter.variables.clone()));
}

/// Lets an exporter read a directory that the job writes to: a volume that is mounted there already, or one of its own.
fn share_directory(
    exporter: &mut Exporter,
    scene: &Scene<'_>,
    volume: &str,
    directory: &str,
    field: &str,
) -> Result<(), RenderError> {
    check_directory(directory).map_err(|problem| RenderError { path: field.to_owned(), problem })?;
    let mut mounts = scene.managed.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    if let Some(own) = mounts.find(|mount| mount.mount_path.trim_end_matches('/') == directory) {
        exporter.mounts.push(VolumeMount { read_only: Some(true), ..own.clone() });
    } else {
        let volume = format!("{volume}-exporter-files");
        exporter.mounts.push(mount(&volume, directory, Some(true)));
        exporter.shared.push(mount(&volume, directory, None));
        exporter.volumes.push(empty(&volume));
    }
    Ok(())
}

/// Refuses exporters that want the same directory for themselves: a file there would be two things at once.
fn check_shared(exporters: &[Exporter]) -> Result<(), RenderError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for exporter in exporters {
        for mount in &exporter.shared {
            if let Some(other) = seen.insert(&mount.mount_path, exporter.name) {
                let problem = format!("{} and {other} cannot share {}", exporter.name, mount.mount_path);
                return Err(RenderError { path: "spec".to_owned(), problem });
            }
        }
    }
    Ok(())
}

fn container(exporter: &Exporter, user: i64, has_token: bool, settings: &PodSettings) -> Container {
    let mut mounts = exporter.mounts.clone();
    if has_token {
        mounts.push(mount(NO_TOKEN_VOLUME, TOKEN, Some(true)));
    }
    Container {
        name: exporter.name.to_owned(),
        image: settings.config.operator_image.clone(),
        command: Some(vec![PROGRAM.to_owned(), exporter.name.to_owned()]),
        env: Some(vec![
            env(DOCUMENT_VARIABLE, literal(&exporter.document)),
            from_field(NODE_VARIABLE, "spec.nodeName"),
            from_field(POD_UID_VARIABLE, "metadata.uid"),
        ]),
        resources: Some(requirements(exporter, settings)),
        security_context: Some(SecurityContext {
            run_as_user: Some(user),
            run_as_non_root: Some(true),
            read_only_root_filesystem: Some(true),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts),
        ports: exporter.port.map(|port| vec![metrics_port(port)]),
        readiness_probe: exporter.port.map(readiness),
        ..Container::default()
    }
}

fn metrics_port(port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(METRICS_PORT.to_owned()),
        container_port: port.into(),
        ..ContainerPort::default()
    }
}

/// The pod is ready when there is something to scrape.
fn readiness(port: u16) -> Probe {
    let http_get = HTTPGetAction {
        path: Some("/ready".to_owned()),
        port: IntOrString::Int(port.into()),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(http_get), period_seconds: Some(5), ..Probe::default() }
}

fn requirements(exporter: &Exporter, settings: &PodSettings) -> ResourceRequirements {
    let configured = settings.config.resources.exporter.as_ref();
    let mut requirements = resources::or_small(configured, resources::EXPORTER);
    if configured.is_none() {
        let memory = Quantity(format!("{}Mi", exporter.memory.div_ceil(1 << 20)));
        requirements.limits = Some(BTreeMap::from([("memory".to_owned(), memory)]));
    }
    requirements
}

/// Where an exporter that needs them sees the environments of the job's containers, secrets included.
fn environments() -> VolumeMount {
    mount(ENVIRONMENTS_VOLUME, ENVIRONMENTS, Some(true))
}

/// In memory: there are secrets among the variables, and the workspace may outlive the pod.
fn environments_volume() -> Volume {
    Volume {
        name: ENVIRONMENTS_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(ENVIRONMENTS_SIZE.to_owned())),
        }),
        ..Volume::default()
    }
}

/// A Secret that is not there must not keep the pod from starting: the server says what it thinks of requests without.
fn secret_volume(name: String, secret: &str) -> Volume {
    Volume {
        name,
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            optional: Some(true),
            default_mode: Some(0o444),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn empty(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

/// By which scrapers find the pod, if it has something for them.
pub(super) fn annotations(job: &BuildJob, settings: &PodSettings) -> Vec<(String, String)> {
    let metrics = crate::exporters::metrics::offer(&job.spec, settings).granted;
    if metrics.is_none_or(|metrics| metrics.mode != MetricsMode::Scrape) {
        return Vec::new();
    }
    let port = settings.metrics.port.to_string();
    [("scrape", "true"), ("port", &port), ("path", "/metrics")]
        .map(|(key, value)| (format!("prometheus.io/{key}"), value.to_owned()))
        .to_vec()
}

/// Refuses settings with which exporters of some job could not be made.
pub(super) fn try_out(settings: &PodSettings) -> Result<(), RenderError> {
    logs::try_out(&settings.logs)
}

/// Whether a container of a pod is an exporter.
pub(super) fn is_exporter(container: &Container) -> bool {
    let runs = container.command.as_ref().and_then(|line| line.first()).is_some_and(|first| first == PROGRAM);
    runs && NAMES.contains(&container.name.as_str())
}
