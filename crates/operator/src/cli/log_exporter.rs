//! `buildkite-operator log-exporter`.

use bk_api::exporters::{ExporterReport, LogExporterDocument, NODE_VARIABLE, POD_UID_VARIABLE};
use bk_logs::exporter;
use tokio_util::sync::CancellationToken;

/// Exports logs. What only the kubelet knows of the pod is in variables of its own.
pub(super) async fn export(
    mut document: LogExporterDocument,
    stop: CancellationToken,
) -> anyhow::Result<ExporterReport> {
    let given = |name: &str| std::env::var(name).ok();
    document.origin.node = given(NODE_VARIABLE).unwrap_or(document.origin.node);
    document.origin.pod_uid = given(POD_UID_VARIABLE).unwrap_or(document.origin.pod_uid);
    Ok(exporter::export(&document, stop).await?)
}
