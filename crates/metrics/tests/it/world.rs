//! A job's directory, and an exporter beside it.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use bk_api::exporters::{ExporterReport, MetricsDelivery, MetricsExporterDocument};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take.
const LONGEST: Duration = Duration::from_secs(30);

/// A job with an exporter.
pub(crate) struct World {
    directory: TempDir,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<ExporterReport>,
}

impl World {
    /// An exporter that delivers like this, and tries on for a second after the end.
    pub(crate) fn new(delivery: MetricsDelivery) -> Self {
        Self::patient(delivery, 1)
    }

    /// The same, trying on for longer.
    pub(crate) fn patient(delivery: MetricsDelivery, drain_seconds: u32) -> Self {
        bk_ops::http::install_crypto_provider();
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("metrics")).unwrap();
        let document = MetricsExporterDocument {
            directory: directory.path().join("metrics").display().to_string(),
            labels: BTreeMap::from([("step".to_owned(), "test".to_owned())]),
            job_ended: vec![directory.path().join("job-ended").display().to_string()],
            delivery,
            interval_seconds: 1,
            drain_seconds,
            grace_seconds: 2,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task =
            tokio::spawn(
                async move { bk_metrics::exporter::export(&document, token).await.expect("it starts") },
            );
        Self { directory, stop, task }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The job writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("metrics/.draft"), text).unwrap();
        fs::rename(self.path("metrics/.draft"), self.path("metrics").join(name)).unwrap();
    }

    /// The job ends.
    pub(crate) fn end(&self) {
        fs::write(self.path("job-ended"), "0").unwrap();
    }

    /// What the exporter reports in the end.
    pub(crate) async fn report(self) -> ExporterReport {
        tokio::time::timeout(LONGEST, self.task).await.expect("it ends").unwrap()
    }
}

/// Waits until something is there.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONGEST, wait).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}
