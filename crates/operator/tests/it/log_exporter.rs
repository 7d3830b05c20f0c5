//! The log exporter as the process that runs in a pod.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bk_api::{
    config::{Config, FileSink, LogExporterConfig, LogHandling, LogSink, StdoutSink, unknown_field},
    exporters::{
        ChosenSink, DOCUMENT_VARIABLE, ExporterReport, LogExporter, LogExporterDocument, LogOrigin,
        NODE_VARIABLE, POD_UID_VARIABLE,
    },
};
use serde_json::{Value, json};

use crate::documents::{blocks, yaml};

const LOGS: &str = include_str!("../../../../docs/logs.md");

fn document(directory: &Path) -> LogExporterDocument {
    let at = |name: &str| directory.join(name).display().to_string();
    let sink = LogSink::Stdout(StdoutSink {});
    LogExporterDocument {
        origin: LogOrigin { pod: "pod-1".to_owned(), ..LogOrigin::default() },
        job_ended: vec![at("agent-ended"), at("job-ended")],
        environments: at("environments"),
        outputs: vec![],
        paths: vec![at("*.log")],
        directory: None,
        sinks: vec![ChosenSink { name: "console".to_owned(), sink, directory: None }],
        spool: at("spool"),
        handling: LogHandling::default(),
        drain_seconds: 5,
        grace_seconds: 5,
    }
}

fn start(directory: &Path, document: &str) -> Child {
    let program = Command::new(env!("CARGO_BIN_EXE_buildkite-operator"));
    start_by(program, directory, document, Stdio::piped())
}

/// Starts it with this command, and with something else as its standard output.
fn start_by(mut command: Command, directory: &Path, document: &str, output: Stdio) -> Child {
    command
        .args(["log-exporter", "--termination-log"])
        .arg(directory.join("termination-log"))
        .env_clear()
        .env(DOCUMENT_VARIABLE, document)
        .env(NODE_VARIABLE, "node-1")
        .env(POD_UID_VARIABLE, "uid-1")
        .stdout(output)
        .spawn()
        .expect("it starts")
}

/// A job that has written so many lines and ended, and what its exporter is told.
fn ended_job(directory: &Path, lines: usize) -> LogExporterDocument {
    let text: Vec<String> = (0..lines).map(|number| format!("line {number}\n")).collect();
    fs::write(directory.join("a.log"), text.concat()).expect("its log");
    fs::write(directory.join("job-ended"), "0").expect("its end");
    LogExporterDocument { drain_seconds: 1, ..document(directory) }
}

/// What it printed and reported. It always succeeds.
fn end(child: Child, directory: &Path) -> (Vec<Value>, ExporterReport) {
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("text");
    let report = fs::read_to_string(directory.join("termination-log")).expect("a report");
    (
        lines.lines().map(|line| serde_json::from_str(line).expect("a document")).collect(),
        serde_json::from_str(&report).expect("a report"),
    )
}

#[test]
fn it_ends_with_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let child = start(directory.path(), &serde_json::to_string(&document(directory.path())).unwrap());
    fs::write(directory.path().join("a.log"), "one\ntwo\nnot ended").unwrap();
    fs::write(directory.path().join("job-ended"), "1").unwrap();
    let (lines, report) = end(child, directory.path());
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["one", "two", "not ended"]);
    assert_eq!(
        (&lines[0]["kubernetes"]["node"], &lines[0]["kubernetes"]["pod_uid"]),
        (&"node-1".into(), &"uid-1".into())
    );
    assert_eq!(
        (report.sinks[0].name.as_str(), report.sinks[0].sent, report.sinks[0].waiting),
        ("console", 3, 0)
    );
}

#[test]
fn it_ends_within_its_grace_period_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let child = start(directory.path(), &serde_json::to_string(&document(directory.path())).unwrap());
    fs::write(directory.path().join("a.log"), "one\n").unwrap();
    let began = Instant::now();
    while !directory.path().join("spool/0").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = Instant::now();
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let (lines, report) = end(child, directory.path());
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    assert_eq!((lines.len(), report.sinks[0].sent), (1, 1));
}

#[test]
fn standard_output_that_is_full_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let document = serde_json::to_string(&ended_job(directory.path(), 10)).unwrap();
    let program = Command::new(env!("CARGO_BIN_EXE_buildkite-operator"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (_, report) = end(start_by(program, directory.path(), &document, full.into()), directory.path());
    assert_eq!((report.sinks[0].sent, report.sinks[0].waiting), (0, 10), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.contains("No space left on device"), "{reason}");
}

#[test]
fn standard_output_that_nobody_reads_any_more_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let document = serde_json::to_string(&ended_job(directory.path(), 10_000)).unwrap();
    let mut child = start(directory.path(), &document);
    drop(child.stdout.take());
    let (_, report) = end(child, directory.path());
    assert_eq!(report.sinks[0].sent + report.sinks[0].waiting, 10_000, "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.contains("Broken pipe"), "{reason}");
}

#[test]
fn standard_output_that_is_read_late_has_everything() {
    let directory = tempfile::tempdir().unwrap();
    let document = LogExporterDocument { drain_seconds: 60, ..ended_job(directory.path(), 10_000) };
    let child = start(directory.path(), &serde_json::to_string(&document).unwrap());
    let began = Instant::now();
    // A pipe holds much less than all of it.
    while fs::metadata(directory.path().join("spool/0")).map_or(0, |data| data.len()) < 300_000 {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not take everything in");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (lines, report) = end(child, directory.path());
    assert_eq!((report.sinks[0].sent, report.sinks[0].waiting), (10_000, 0), "{report:?}");
    let messages = lines.iter().map(|line| line["message"].as_str().unwrap().to_owned());
    assert!(messages.eq((0..10_000).map(|number| format!("line {number}"))));
}

/// The kernel takes a part of a write, and refuses the rest.
#[test]
fn a_file_that_takes_a_part_of_a_batch_has_whole_batches() {
    let directory = tempfile::tempdir().unwrap();
    let mut document = ended_job(directory.path(), 100);
    document.handling.batch.lines = 10;
    let at = directory.path().display().to_string();
    let sink = LogSink::File(FileSink::default());
    document.sinks = vec![ChosenSink { name: "volume".to_owned(), sink, directory: Some(at) }];
    let mut shell = Command::new("/bin/sh");
    // No file beyond 16 KiB: more than the spool needs, and less than the documents do.
    let limited = "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\"";
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_buildkite-operator")]);
    let document = serde_json::to_string(&document).unwrap();
    let (_, report) = end(start_by(shell, directory.path(), &document, Stdio::piped()), directory.path());
    let sink = &report.sinks[0];
    assert!((1..100).contains(&sink.sent) && sink.sent + sink.waiting == 100, "{report:?}");
    assert!(sink.reason.as_ref().is_some_and(|reason| reason.contains("File too large")), "{report:?}");
    let written = fs::read_to_string(directory.path().join("pod-1.ndjson")).unwrap();
    let messages =
        written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["message"].clone());
    assert!(messages.eq((0..sink.sent).map(|number| Value::from(format!("line {number}")))), "{written}");
}

#[test]
fn what_it_does_not_understand_is_in_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let (lines, report) = end(start(directory.path(), "{}"), directory.path());
    assert_eq!(lines, [""; 0]);
    let reason = report.reason.unwrap();
    assert!(
        reason.starts_with("cannot use what BUILDKITE_OPERATOR_EXPORTER says: missing field `origin`"),
        "{reason}"
    );
}

#[test]
fn the_page_shows_what_is_understood() {
    let [start, configuration, job] = &blocks(LOGS, "yaml")[..] else {
        panic!("two configurations and a job")
    };
    let [start, config] = [start, configuration].map(|configuration| {
        let data = serde_json::from_value(yaml(configuration)).unwrap();
        Config::from_data(&data).unwrap_or_else(|error| panic!("{error}")).logs
    });
    assert_eq!((start.enabled, start.default_sinks()), (true, vec!["loki".to_owned()]));
    assert_eq!((config.sinks.len(), config.default_sinks()), (6, vec!["search".to_owned()]));

    let job = &yaml(job)["logExporter"];
    let understood: LogExporter = serde_json::from_value(job.clone()).unwrap();
    assert_eq!(unknown_field(job, &understood), None);
    assert!(understood.sinks.iter().all(|sink| config.sinks.contains_key(sink)), "{understood:?}");
    let report = &blocks(LOGS, "json")[0];
    let report: ExporterReport = serde_json::from_str(report).unwrap();
    assert_eq!((report.sinks[0].lost, report.unmatched.len()), (200, 1));
}

#[test]
fn the_page_has_every_field_and_its_default() {
    let defaults = serde_json::to_value(LogExporterConfig::default()).unwrap();
    let mut fields = defaults.as_object().unwrap().clone();
    fields
        .extend([("defaultSinks".to_owned(), json!("every sink")), ("multiline".to_owned(), json!("none"))]);
    assert_eq!(fields.len(), 9);
    for (field, value) in fields {
        let row = LOGS.lines().find(|line| line.starts_with(&format!("| `{field}` |"))).expect(&field);
        let default = row.split('|').nth(2).unwrap().trim().trim_matches('`');
        let shown = if default == "none" && field == "sinks" { json!({}) } else { yaml(default) };
        assert_eq!(shown, value, "{field}");
    }
}
