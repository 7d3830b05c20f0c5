//! Logs of jobs in systems other than Buildkite.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use anyhow::{Context, Result};
use bk_api::exporters::{ExporterStatus, SinkReport};
use bk_e2e::{
    World,
    elasticsearch::Elasticsearch,
    eventually, eventually_for,
    guide::setting,
    log_sink::{Line, LogSink},
    run::Run,
    scenario,
};
use serde_json::Value;

const GUIDE: &str = include_str!("../../../../docs/logs.md");

/// Many lines on standard output and in a file of the checkout, some on standard error, and a secret in a file.
const STEP: &str = r#"{
  command: 'seq 1 3000 | sed "s/^/line /"; seq 1 2000 | sed "s/^/entry /" > run.log; echo trouble >&2; printenv A_TOKEN > token.log; cat hello.txt',
  env: {A_TOKEN: topsecretvalue, BK_OPERATOR_LOG_PATHS: '*.log', BK_OPERATOR_LOG_STDOUT: 'true', BK_OPERATOR_LOG_STDERR: 'true'}
}"#;

/// The BuildJob stays for longer than any exporter works here, so that its status can be looked at.
const STAYS: (&str, &str) = ("pod_config", "succeededTtlSeconds: 3600");

/// Lines that begin with `word`, in the order of their numbers.
fn about(lines: &[Line], word: &str) -> Vec<String> {
    lines.iter().map(|line| line.message.clone()).filter(|message| message.starts_with(word)).collect()
}

fn numbered(word: &str, last: usize) -> Vec<String> {
    (1..=last).map(|number| format!("{word} {number}")).collect()
}

fn assert_whole(lines: &[Line]) {
    let numbers: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "each line is there once");
    assert_eq!(about(lines, "line "), numbered("line", 3000));
    assert_eq!(about(lines, "entry "), numbered("entry", 2000));
    let of = |message: &str| {
        lines.iter().find(|line| line.message == message).unwrap_or_else(|| panic!("no line {message:?}"))
    };
    assert_eq!((of("line 1").container.as_str(), of("line 1").stream.as_str()), ("container-0", "stdout"));
    assert_eq!(of("entry 1").file, "/workspace/build/buildkite/run.log");
    assert_eq!(of("[REDACTED]").file, "/workspace/build/buildkite/token.log");
    assert!(lines.iter().all(|line| !line.message.contains("topsecretvalue")), "secrets stay in the pod");
}

/// What the file sink has written.
fn archived(directory: &Path) -> Result<Vec<Line>> {
    let file = fs::read_dir(directory)?.next().context("no file")??.path();
    let document = |line: &str| -> Result<Line> {
        let document: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Line {
            sequence: document["event"]["sequence"].as_u64().context("no number")?,
            container: text(&document["container"]["name"]),
            stream: text(&document["stream"]),
            file: text(&document["log"]["file"]["path"]),
            message: text(&document["message"]),
        })
    };
    fs::read_to_string(file)?.lines().map(document).collect()
}

async fn reported(run: &Run<'_>) -> Result<ExporterStatus> {
    let status = run.status("told what came of its logs", |status| !status.exporters.is_empty()).await?;
    assert!(status.phase.is_terminal(), "{status:?}");
    Ok(status.exporters[0].clone())
}

async fn set_up(world: &World, sinks: &str) -> Result<()> {
    world.cluster.configure_all([STAYS, ("log_exporter_config", sinks)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn output_and_files_of_a_job_arrive_complete_and_in_order() {
    scenario(async |world| {
        let sink = LogSink::serve(world.environment.host).await?;
        let archive = world.directory().join("archive");
        fs::create_dir(&archive)?;
        fs::set_permissions(&archive, fs::Permissions::from_mode(0o777))?;
        let (url, path) = (&sink.url, archive.display());
        let sinks = format!(
            "sinks: {{loki: {{loki: {{url: '{url}', secret: absent}}}}, collector: {{otlp: {{url: '{url}', encoding: json}}}}, \
             archive: {{file: {{volume: {{hostPath: {{path: '{path}'}}}}}}}}}}"
        );
        set_up(world, &sinks).await?;
        let _operator = world.operator().await?;
        let run = world.submit(STEP).await?;
        let exporter = reported(&run).await?;
        let lines = sink.by_loki();
        let lost: Vec<_> = exporter.report.sinks.iter().map(|sink| (sink.waiting, sink.lost)).collect();
        assert_eq!((lost, exporter.report.lost_bytes), (vec![(0, 0); 3], 0), "{exporter:?}");
        assert!(exporter.report.sinks.iter().all(|sink| sink.sent == lines.len() as u64), "{exporter:?}");
        for lines in [lines, sink.by_otlp(), archived(&archive)?] {
            assert_whole(&lines);
        }
        let end = run.end().await?;
        end.assert_exit_status(0);
        assert!(!end.detail.contains("exported"), "nothing was lost: {}", end.detail);
        Ok(())
    })
    .await;
}

/// As the guide begins, with the address of a server that is there.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_sink_of_the_guide_takes_what_every_job_prints() {
    scenario(async |world| {
        let sink = LogSink::serve(world.environment.host).await?;
        let printed = setting(GUIDE, "log_exporter_config")?;
        set_up(world, &printed.replace("http://loki-gateway.logging", &sink.url)).await?;
        let _operator = world.operator().await?;
        let run = world.submit("{command: 'echo it works'}").await?;
        let report = reported(&run).await?.report;
        let lines = sink.by_loki();
        assert!(lines.iter().any(|line| line.message == "it works" && line.stream == "stdout"), "{lines:?}");
        assert_eq!(report.sinks[0].sent, lines.len() as u64, "{report:?}");
        run.end().await?.assert_exit_status(0);
        Ok(())
    })
    .await;
}

/// What the exporter may not read, and what it does read.
const PRIVATE: &str = r"{
  command: 'echo hello; echo hidden > private.log; chmod 0 private.log',
  env: {BK_OPERATOR_LOG_PATHS: '*.log', BK_OPERATOR_LOG_STDOUT: 'true'}
}";

/// Nobody is there to take the logs: the job ends as it would have, and its author hears that its logs were not exported, and that some could
/// not even be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_away_neither_fails_nor_holds_a_job() {
    scenario(async |world| {
        let gone = LogSink::serve(world.environment.host).await?.url.clone();
        let sinks = format!("enabled: true\ndrainSeconds: 3\nsinks: {{away: {{loki: {{url: '{gone}'}}}}}}");
        set_up(world, &sinks).await?;
        let _operator = world.operator().await?;
        let run = world.submit(PRIVATE).await?;
        let job = world.buildkite.ended(run.id).await?;
        assert_eq!((job.job_state.as_str(), job.exit_status), ("finished", Some(0)), "{job:?}");
        let exporter = reported(&run).await?;
        let SinkReport { name, sent, waiting, lost, reason } = &exporter.report.sinks[0];
        assert_eq!((name.as_str(), *sent, *lost), ("away", 0, 0), "{exporter:?}");
        assert!(*waiting > 0 && reason.is_some(), "{exporter:?}");
        assert_eq!(exporter.report.lost_bytes, 7, "{exporter:?}");
        let unread = exporter.report.reason.as_deref().unwrap_or_default();
        assert!(unread.starts_with("cannot read /workspace/build/buildkite/private.log: "), "{exporter:?}");
        let words = "Not everything that the job left was exported: log-exporter: `away` lacks";
        eventually("Buildkite is told", async || {
            let job = world.buildkite.job(run.id).await?;
            let mut details = job.events.iter().filter_map(|event| event.detail.as_deref());
            Ok(details.any(|detail| detail.contains(words)).then_some(()))
        })
        .await?;
        run.end().await?.assert_exit_status(0);
        Ok(())
    })
    .await;
}

/// `cargo xtask test --only e2e --ignored --filter million`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a real Elasticsearch, a million lines, and thirty seconds without it"]
async fn a_million_lines_are_in_elasticsearch_once_although_it_was_away() {
    const LINES: usize = 1_000_000;
    const INDEX: &str = "logs-buildkite-default";
    scenario(async |world| {
        let home = world.directory().join("elasticsearch");
        let http = world.buildkite.http();
        let mut server = Elasticsearch::start(world.environment.host, &home, http).await?;
        let sinks = format!(
            "drainSeconds: 600\nsinks: {{search: {{elasticsearch: {{url: '{}', dataStream: {INDEX}}}}}}}",
            server.url
        );
        set_up(world, &sinks).await?;
        let _operator = world.operator().await?;
        let command = format!("seq 1 {LINES} | sed \"s/^/line /\" > run.log");
        let run = world
            .submit(&format!("{{command: '{command}', env: {{BK_OPERATOR_LOG_PATHS: run.log}}}}"))
            .await?;
        eventually_for(1000, "a part has arrived", async || {
            Ok((server.count(INDEX).await? > 0).then_some(()))
        })
        .await?;
        server.kill()?;
        // How long it is away, not something that is waited for.
        tokio::time::sleep(Duration::from_secs(30)).await;
        server.revive().await?;
        assert!(server.count(INDEX).await? < LINES as u64, "it was there when the last line came");
        let status = eventually_for(1000, "the exporter has drained", async || {
            Ok(run.build_job().and_then(|job| job.status?.exporters.into_iter().next()))
        });
        let report = status.await?.report;
        let SinkReport { sent, waiting, lost, .. } = &report.sinks[0];
        assert_eq!((*sent, *waiting, *lost), (LINES as u64, 0, 0), "{report:?}");
        let messages = server.messages(INDEX).await?;
        assert_eq!(messages.len(), LINES);
        assert!(messages == numbered("line", LINES), "in order, and once");
        run.end().await?.assert_exit_status(0);
        Ok(())
    })
    .await;
}
