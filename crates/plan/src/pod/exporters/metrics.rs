//! The metrics exporter of a pod.

use std::collections::BTreeMap;

use bk_api::{
    config::{JobLabel, MetricsExporterConfig},
    exporters::{MetricsDelivery, MetricsExporterDocument, MetricsMode},
};

use super::{Exporter, METRICS_EXPORTER, Scene, logs::origin, mount, secret_volume, share_directory};
use crate::{exporters::metrics, pod::RenderError};

const VOLUME: &str = "metrics";
const SECRET_VOLUME: &str = "metrics-receiver";
const SECRET: &str = "/etc/buildkite-operator/metrics";
/// A scrape holds all files in memory, in several forms.
const MEMORY: u64 = 96 << 20;

/// The metrics exporter, if the job wants one.
pub(super) fn exporter(scene: &Scene<'_>) -> Result<Option<Exporter>, RenderError> {
    let config = &scene.settings.metrics;
    let Some(metrics) = metrics::offer(&scene.job.spec, scene.settings).granted else { return Ok(None) };
    let mut exporter = Exporter { name: METRICS_EXPORTER, memory: MEMORY, ..Exporter::default() };
    share_directory(&mut exporter, scene, VOLUME, &metrics.directory, "spec.metricsExporter.path")?;
    let Some(delivery) = delivery(&mut exporter, scene, config, metrics.mode) else { return Ok(None) };
    let mut labels = labels(scene, &config.labels);
    labels.extend(config.extra_labels.clone());
    let document = MetricsExporterDocument {
        directory: metrics.directory,
        labels,
        job_ended: scene.ends(),
        delivery,
        interval_seconds: config.interval_seconds,
        drain_seconds: config.drain_seconds,
        grace_seconds: scene.grace_seconds(),
    };
    exporter.document = serde_json::to_string(&document).expect("maps have keys of text");
    Ok(Some(exporter))
}

/// How metrics leave the pod, and what the exporter needs for it; none if the configuration lacks it.
fn delivery(
    exporter: &mut Exporter,
    scene: &Scene<'_>,
    config: &MetricsExporterConfig,
    mode: MetricsMode,
) -> Option<MetricsDelivery> {
    let delivery = match mode {
        MetricsMode::Scrape => {
            exporter.port = Some(config.port);
            MetricsDelivery::Scrape { port: config.port }
        }
        MetricsMode::Push => {
            let push = config.push.as_ref()?;
            MetricsDelivery::Push {
                url: push.url.clone(),
                job: push.job.clone(),
                grouping: labels(scene, &push.grouping),
                at_end: push.at_end,
                credentials: credentials(exporter, push.secret.as_deref()),
            }
        }
        MetricsMode::Otlp => {
            let otlp = config.otlp.as_ref()?;
            let credentials = credentials(exporter, otlp.secret.as_deref());
            MetricsDelivery::Otlp { url: otlp.url.clone(), credentials }
        }
    };
    Some(delivery)
}

fn credentials(exporter: &mut Exporter, secret: Option<&str>) -> Option<String> {
    let secret = secret?;
    exporter.volumes.push(secret_volume(SECRET_VOLUME.to_owned(), secret));
    exporter.mounts.push(mount(SECRET_VOLUME, SECRET, Some(true)));
    Some(SECRET.to_owned())
}

/// What the job has of these labels.
fn labels(scene: &Scene<'_>, wanted: &[JobLabel]) -> BTreeMap<String, String> {
    let origin = origin(scene);
    let value = |label: JobLabel| match label {
        JobLabel::BuildJob => &origin.build_job,
        JobLabel::Pipeline => &origin.pipeline,
        JobLabel::Build => &origin.build,
        JobLabel::Step => &origin.step,
        JobLabel::JobUuid => &origin.job,
        JobLabel::Namespace => &origin.namespace,
        JobLabel::Pod => &origin.pod,
    };
    let labels = wanted.iter().map(|label| (label.name().to_owned(), value(*label).clone()));
    labels.filter(|(_, value)| !value.is_empty()).collect()
}
