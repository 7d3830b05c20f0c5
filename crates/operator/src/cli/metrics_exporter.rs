//! `buildkite-operator metrics-exporter`.

use bk_api::exporters::{ExporterReport, MetricsExporterDocument};
use tokio_util::sync::CancellationToken;

/// Serves or sends metrics.
pub(super) async fn export(
    document: MetricsExporterDocument,
    stop: CancellationToken,
) -> anyhow::Result<ExporterReport> {
    Ok(bk_metrics::exporter::export(&document, stop).await?)
}
