//! A job's directories, and an exporter for them.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
    time::{Duration, Instant},
};

use bk_api::{
    config::{ElasticsearchSink, LogBatch, LogHandling, LogSink, LokiSink, OtlpEncoding, OtlpSink},
    exporters::{ChosenSink, ContainerOutput, ExporterReport, LogExporterDocument, LogOrigin},
};
use bk_logs::exporter;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::receiver::Receiver;

/// Long enough for anything that is not broken.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) document: LogExporterDocument,
    pub(crate) stop: CancellationToken,
}

/// A sink of a test.
pub(crate) fn chosen(name: &str, sink: LogSink) -> ChosenSink {
    ChosenSink { name: name.to_owned(), sink, directory: None }
}

/// Elasticsearch, as the receiver plays it.
pub(crate) fn search(receiver: &Receiver) -> ChosenSink {
    let data_stream = Some("logs-ci".to_owned());
    let sink = ElasticsearchSink { url: receiver.url(), data_stream, ..ElasticsearchSink::default() };
    chosen("search", LogSink::Elasticsearch(sink))
}

/// Loki, as the receiver plays it.
pub(crate) fn loki(receiver: &Receiver) -> ChosenSink {
    chosen("loki", LogSink::Loki(LokiSink { url: receiver.url(), ..LokiSink::default() }))
}

/// A receiver of OTLP, as the receiver plays it.
pub(crate) fn otlp(receiver: &Receiver) -> ChosenSink {
    let sink = OtlpSink { url: receiver.url(), encoding: OtlpEncoding::Json, ..OtlpSink::default() };
    chosen("otlp", LogSink::Otlp(sink))
}

impl World {
    /// A job that writes `*.log` to its directory, with these sinks.
    pub(crate) fn new(sinks: Vec<ChosenSink>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let output = |container: &str| ContainerOutput {
            container: container.to_owned(),
            directory: at(&format!("output/{container}")),
            stdout: true,
            stderr: true,
        };
        let batch = LogBatch { lines: 100, bytes: 64 << 10, milliseconds: 50 };
        let document = LogExporterDocument {
            origin: LogOrigin {
                job: "job-1".to_owned(),
                pipeline: "deploy".to_owned(),
                pod: "pod-1".to_owned(),
                pod_uid: "uid-1".to_owned(),
                node: "node-1".to_owned(),
                ..LogOrigin::default()
            },
            job_ended: vec![at("agent-ended"), at("job-ended")],
            environments: at("environments"),
            outputs: vec![output("container-0")],
            paths: vec![at("*.log")],
            directory: None,
            sinks,
            spool: at("spool"),
            handling: LogHandling { batch, ..LogHandling::default() },
            drain_seconds: 20,
            grace_seconds: 30,
        };
        Self { directory, document, stop: CancellationToken::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Numbered lines, and what they are.
    pub(crate) fn write_lines(&self, name: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
        let lines: Vec<String> = numbers.map(|number| format!("line {number}")).collect();
        self.append(name, &(lines.join("\n") + "\n"));
        lines
    }

    /// Leaves what the shim leaves of a container's environment.
    pub(crate) fn write_environment(&self, container: &str, entries: &str) {
        let draft = self.path(&format!("environments/.{container}"));
        fs::write(&draft, entries).unwrap();
        fs::rename(draft, self.path(&format!("environments/{container}"))).unwrap();
    }

    /// Leaves what the shim leaves when the job has ended.
    pub(crate) fn end_job(&self) {
        fs::write(self.path("job-ended"), "0").unwrap();
    }

    /// Starts the exporter.
    pub(crate) fn export(&self) -> JoinHandle<ExporterReport> {
        let (document, stop) = (self.document.clone(), self.stop.clone());
        tokio::spawn(async move { exporter::export(&document, stop).await.unwrap() })
    }

    /// Ends the job, and waits for what the exporter of it reports.
    pub(crate) async fn finish(&self, exporter: JoinHandle<ExporterReport>) -> ExporterReport {
        self.end_job();
        tokio::time::timeout(PATIENCE, exporter).await.expect("it ends").unwrap()
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What the only sink took, what waited and what it lost.
pub(crate) fn numbers(report: &ExporterReport) -> (u64, u64, u64) {
    let [sink] = &report.sinks[..] else { panic!("one sink: {report:?}") };
    (sink.sent, sink.waiting, sink.lost)
}
