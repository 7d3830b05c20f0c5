//! `buildkite-operator artifact-exporter`.

use bk_api::exporters::{ArtifactExporterDocument, ExporterReport};
use tokio_util::sync::CancellationToken;

/// Uploads artifacts.
pub(super) async fn export(
    document: ArtifactExporterDocument,
    stop: CancellationToken,
) -> anyhow::Result<ExporterReport> {
    Ok(bk_artifacts::exporter::export(&document, stop).await)
}
