//! What a job leaves for its exporter.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::bail;
use bk_api::{
    config::{ElasticsearchSink, FileSink, LogHandling, LogSink, LokiSink, OtlpSink},
    exporters::{ChosenSink, ContainerOutput, LogExporterDocument, LogOrigin},
};

/// How many lines a container writes in a tenth of a second.
const LINES_AT_ONCE: u32 = 2500;

/// How large a segment of output gets.
const SEGMENT: usize = 8 << 20;

/// The longest record of output.
const RECORD: usize = 64 << 10;

/// What comes before the number in each line.
pub(crate) const MARK: &str = "INFO step ";

fn line(number: u32, out: &mut impl Write) -> std::io::Result<()> {
    let secret = if number.is_multiple_of(100) { "with topsecret-token" } else { "and nothing else" };
    writeln!(out, "2026-11-16T10:00:00Z {MARK}{number}: compiled package number {number} of many {secret}")
}

/// Makes what is there when a job starts.
pub(crate) fn prepare(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory.join("environments"))?;
    fs::create_dir_all(directory.join("output"))?;
    let environment = "BUILDKITE_REDACTED_VARS=*_TOKEN\0A_TOKEN=topsecret-token\0";
    fs::write(directory.join("environments/container-0"), environment)
}

/// Writes lines into a file.
pub(crate) fn write_file(directory: &Path, lines: u32) -> std::io::Result<()> {
    prepare(directory)?;
    let mut log = BufWriter::new(File::create(directory.join("a.log"))?);
    for number in 0..lines {
        line(number, &mut log)?;
    }
    log.flush()
}

/// Writes lines as the shim keeps a container's output, so many at a time.
pub(crate) fn write_output(directory: &Path, lines: u32) -> std::io::Result<()> {
    let (mut segment, mut size, mut number) = (None, 0, 0);
    let began = Instant::now();
    for (round, first) in (0..lines).step_by(LINES_AT_ONCE as usize).enumerate() {
        let due = Duration::from_millis(100) * u32::try_from(round).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_sub(began.elapsed()));
        let mut text = Vec::new();
        for number in first..lines.min(first + LINES_AT_ONCE) {
            line(number, &mut text)?;
        }
        for bytes in text.chunks(RECORD) {
            let file = match &mut segment {
                Some(file) if size < SEGMENT => file,
                _ => {
                    let file = File::create(directory.join(format!("output/{number}")))?;
                    (number, size) = (number + 1, 0);
                    segment.insert(file)
                }
            };
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = u64::try_from(since.as_nanos()).unwrap_or_default();
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            file.write_all(&[&time.to_le_bytes()[..], &length.to_le_bytes(), &[1, 0, 0, 0], bytes].concat())?;
            size += bytes.len();
        }
    }
    Ok(())
}

/// Leaves what the shim leaves when the job has ended.
pub(crate) fn end(directory: &Path) -> std::io::Result<()> {
    fs::write(directory.join("job-ended"), "0")
}

/// What the exporter is told.
pub(crate) fn document(kind: &str, directory: &Path, address: &str) -> anyhow::Result<LogExporterDocument> {
    let at = |name: &str| directory.join(name).display().to_string();
    let url = format!("http://{address}");
    let data_stream = Some("logs-ci".to_owned());
    let sink = match kind {
        "elasticsearch" => {
            LogSink::Elasticsearch(ElasticsearchSink { url, data_stream, ..ElasticsearchSink::default() })
        }
        "loki" => LogSink::Loki(LokiSink { url, ..LokiSink::default() }),
        "otlp" => LogSink::Otlp(OtlpSink { url, ..OtlpSink::default() }),
        "file" => LogSink::File(FileSink::default()),
        _ => bail!("there is no kind of sink called {kind}"),
    };
    let origin = LogOrigin {
        job: "0190a0b1-7c1d-4e5f-8a9b-0c1d2e3f4a5b".to_owned(),
        pipeline: "deploy".to_owned(),
        build: "42".to_owned(),
        step: "compile".to_owned(),
        namespace: "buildkite".to_owned(),
        pod: "buildkite-0190a0b1-7c1d-4e5f-8a9b-0c1d2e3f4a5b".to_owned(),
        pod_uid: "5a4b3c2d-1e0f-4a9b-8c7d-6e5f4a3b2c1d".to_owned(),
        node: "node-1".to_owned(),
        ..LogOrigin::default()
    };
    let output = ContainerOutput {
        container: "container-0".to_owned(),
        directory: at("output"),
        stdout: true,
        stderr: true,
    };
    Ok(LogExporterDocument {
        origin,
        job_ended: vec![at("agent-ended"), at("job-ended")],
        environments: at("environments"),
        outputs: vec![output],
        paths: vec![at("a.log")],
        directory: None,
        sinks: vec![ChosenSink { name: kind.to_owned(), sink, directory: Some(at("")) }],
        spool: at("spool"),
        handling: LogHandling::default(),
        drain_seconds: 60,
        grace_seconds: 60,
    })
}
