//! The log exporter of a pod.

use bk_api::{
    config::{LogExporterConfig, LogSink},
    exporters::{ChosenSink, ContainerOutput, LogExporterDocument, LogOrigin},
};
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use serde_json::Value;

use super::{ENVIRONMENTS, Exporter, LOG_EXPORTER, Scene, empty, environments, mount, secret_volume};
use crate::{
    exporters::logs::{self, Logs},
    pod::{RenderError, WORKSPACE, strict},
};

const SPOOL: &str = "/spool";
const SPOOL_VOLUME: &str = "log-exporter-spool";
const FILES_VOLUME: &str = "log-exporter-files";
/// Where sinks have their credentials or their files.
const SINKS: &str = "/etc/buildkite-operator/sinks";
/// Where the source is checked out, and commands run.
const CHECKOUT: &str = "/workspace/build/buildkite";

/// What the exporter needs without any sink.
const MEMORY: u64 = 64 << 20;
/// How many batches of each sink are in memory at most, in one form or another.
const BATCHES: u64 = 8;

/// The log exporter, if the job wants one.
pub(super) fn exporter(scene: &Scene<'_>) -> Result<Option<Exporter>, RenderError> {
    let config = &scene.settings.logs;
    let Some(logs) = logs::offer(&scene.job.spec, scene.settings).granted else { return Ok(None) };
    let paths: Vec<String> = logs.paths.iter().map(|path| absolute(path)).collect();
    let mut exporter = Exporter {
        name: LOG_EXPORTER,
        volumes: vec![empty(SPOOL_VOLUME)],
        mounts: vec![environments(), mount(SPOOL_VOLUME, SPOOL, None)],
        memory: MEMORY + BATCHES * (config.batch.bytes as u64) * (logs.sinks.len() as u64),
        ..Exporter::default()
    };
    for path in &paths {
        see(&mut exporter, scene.managed, fixed_part(path));
    }
    if let Some(directory) = logs.volume.as_deref() {
        let found = see(&mut exporter, scene.managed, directory);
        if !found && !is_below(directory, WORKSPACE) {
            exporter.volumes.push(empty(FILES_VOLUME));
            exporter.mounts.push(mount(FILES_VOLUME, directory, Some(true)));
            exporter.shared.push(mount(FILES_VOLUME, directory, None));
        }
    }
    let sinks = logs.sinks.iter().filter_map(|name| Some((name, config.sinks.get(name)?)));
    let sinks = sinks
        .map(|(name, sink)| attach(&mut exporter, name, sink))
        .collect::<Result<Vec<ChosenSink>, RenderError>>()?;
    let document = document(scene, config, &logs, paths, sinks);
    exporter.document = serde_json::to_string(&document).expect("maps have keys of text");
    Ok(Some(exporter))
}

fn document(
    scene: &Scene<'_>,
    config: &LogExporterConfig,
    logs: &Logs,
    paths: Vec<String>,
    sinks: Vec<ChosenSink>,
) -> LogExporterDocument {
    let output = |container: &Container| ContainerOutput {
        container: container.name.clone(),
        directory: scene.at(&format!("output/{}", container.name)),
        stdout: logs.stdout,
        stderr: logs.stderr,
    };
    let outputs = scene.managed.iter().filter(|_| logs.stdout || logs.stderr).map(output).collect();
    LogExporterDocument {
        origin: origin(scene),
        job_ended: scene.ends(),
        environments: ENVIRONMENTS.to_owned(),
        outputs,
        paths,
        directory: logs.volume.clone(),
        sinks,
        spool: SPOOL.to_owned(),
        handling: config.handling(),
        drain_seconds: config.drain_seconds,
        grace_seconds: scene.grace_seconds(),
    }
}

/// What is known of the job and its pod before it runs.
pub(super) fn origin(scene: &Scene<'_>) -> LogOrigin {
    let metadata = &scene.job.metadata;
    let buildkite = scene.job.spec.buildkite.clone().unwrap_or_default();
    LogOrigin {
        build_job: metadata.name.clone().unwrap_or_default(),
        job: buildkite.job_uuid,
        pipeline: buildkite.pipeline.unwrap_or_default(),
        build: buildkite.build.map(|build| build.to_string()).unwrap_or_default(),
        step: buildkite.step.unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        pod: scene.pod_name.to_owned(),
        ..LogOrigin::default()
    }
}

/// Gives the exporter what a sink needs of the pod.
fn attach(exporter: &mut Exporter, name: &str, sink: &LogSink) -> Result<ChosenSink, RenderError> {
    let (volume, read_only) = match sink {
        LogSink::File(file) => {
            exporter.needs_group = true;
            (Some(file_volume(name, &file.volume)?), None)
        }
        sink => (sink.secret().map(|secret| secret_volume(volume_name(name), secret)), Some(true)),
    };
    let directory = volume.map(|volume| {
        let directory = format!("{SINKS}/{name}");
        exporter.mounts.push(mount(&volume.name, &directory, read_only));
        exporter.volumes.push(volume);
        directory
    });
    Ok(ChosenSink { name: name.to_owned(), sink: sink.clone(), directory })
}

/// Refuses sinks that no pod can have.
pub(super) fn try_out(config: &LogExporterConfig) -> Result<(), RenderError> {
    config.sinks.iter().try_for_each(|(name, sink)| attach(&mut Exporter::default(), name, sink).map(drop))
}

fn volume_name(sink: &str) -> String {
    format!("log-sink-{sink}")
}

fn file_volume(sink: &str, volume: &serde_json::Map<String, Value>) -> Result<Volume, RenderError> {
    let mut volume = volume.clone();
    volume.insert("name".to_owned(), volume_name(sink).into());
    strict::read(&Value::Object(volume), &format!("log_exporter_config.sinks.{sink}.file.volume"))
}

/// Commands run where the source is checked out.
fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{CHECKOUT}/{path}") }
}

/// What comes before the first character of a glob that stands for others.
fn fixed_part(path: &str) -> &str {
    path.find(['*', '?', '[']).map_or(path, |at| &path[..at])
}

/// Lets the exporter see what is mounted where `path` is, in the first of the job's containers that has something there. The
/// workspace it has anyway.
fn see(exporter: &mut Exporter, managed: &[Container], path: &str) -> bool {
    let mounts = managed.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    let over = |mount: &&VolumeMount| is_below(path, &mount.mount_path) && mount.sub_path_expr.is_none();
    let Some(nearest) = mounts.filter(over).max_by_key(|mount| mount.mount_path.len()) else { return false };
    let is_taken = exporter.mounts.iter().any(|own| own.mount_path == nearest.mount_path);
    if nearest.mount_path != WORKSPACE && !is_taken {
        exporter.mounts.push(VolumeMount { read_only: Some(true), ..nearest.clone() });
    }
    true
}

fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
