//! The artifact exporter of a pod.

use bk_api::exporters::ArtifactExporterDocument;

use super::{ARTIFACT_EXPORTER, ENVIRONMENTS, Exporter, Scene, environments, share_directory};
use crate::{
    exporters::artifacts,
    pod::{RenderError, WORKSPACE, bootstrap, variables::env},
};

const VOLUME: &str = "artifacts";
/// Most of it is for the agent, which uploads.
const MEMORY: u64 = 256 << 20;

/// The artifact exporter, if the job wants one.
pub(super) fn exporter(scene: &Scene<'_>) -> Result<Option<Exporter>, RenderError> {
    let Some(artifacts) = artifacts::offer(&scene.job.spec, scene.settings).granted else { return Ok(None) };
    let mut exporter = Exporter {
        name: ARTIFACT_EXPORTER,
        mounts: vec![environments()],
        memory: MEMORY,
        ..Exporter::default()
    };
    share_directory(&mut exporter, scene, VOLUME, &artifacts.directory, "spec.artifactExporter.path")?;
    // The hook that waits for the exporter finds it by these.
    exporter.variables =
        vec![env("BUILDKITE_SHIM_WORKSPACE", WORKSPACE), env("BUILDKITE_SHIM_RUN", &scene.run.id)];
    let document = ArtifactExporterDocument {
        directory: artifacts.directory,
        job_ended: scene.ends(),
        environments: ENVIRONMENTS.to_owned(),
        drain: scene.at("drain"),
        drained: scene.at("drained"),
        agent: bootstrap::AGENT_BINARY.to_owned(),
        drain_seconds: scene.settings.artifacts.drain_seconds,
        grace_seconds: scene.grace_seconds(),
    };
    exporter.document = serde_json::to_string(&document).expect("text and numbers serialise");
    Ok(Some(exporter))
}
