//! Measures the log exporter: lines for each second of processor time, the most memory it had, and what a sink that goes away
//! costs.
//!
//! ```sh
//! cargo run --release -p bk-logs --example throughput -- elasticsearch 1000000
//! cargo run --release -p bk-logs --example throughput -- elasticsearch 1000000 outage 268435456
//! ```
//!
//! Kinds of sinks are `elasticsearch`, `loki`, `otlp` and `file`. The exporter and the receiver are processes of their own, and
//! every hundredth line has a secret in it.
//!
//! The first form has all lines in a file before the exporter starts, so that it is as busy as it can be. In the second they are a
//! container's output, 25,000 a second; when a third has arrived the receiver is killed, and 30 seconds later it is started again. The
//! number is that of `spoolBytes`. What has arrived is then compared with what was written and with what the exporter reports.
//!
//! Both fail if the exporter needs more than its budget: 50,000 lines for each second of processor time, and 50 MB.

mod job;
mod receiver;

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bk_api::exporters::{ExporterReport, LogExporterDocument};
use bk_logs::exporter;
use receiver::Receiver;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// How long the receiver is away.
const OUTAGE: Duration = Duration::from_secs(30);

/// The fewest lines for each second of processor time.
const SLOWEST: f64 = 50_000.0;
/// The most memory, in MB.
const LARGEST: f64 = 50.0;

/// What the exporter's process says of itself.
#[derive(Serialize, Deserialize)]
struct Exported {
    report: ExporterReport,
    /// Processor time in hundredths of a second, as the kernel counts it.
    ticks: u32,
    /// The most memory, in KiB.
    peak: u64,
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address, record] => receiver::serve(address, Path::new(record)),
        ["export", document] => export(document),
        [kind, lines] => whole_file(kind, lines.parse().context("the number of lines")?),
        ["elasticsearch", lines, "outage", spool] => {
            outage(lines.parse().context("the number of lines")?, spool.parse().context("the spool's bytes")?)
        }
        _ => bail!("say which kind of sink, and how many lines"),
    }
}

/// As many lines as it takes, all there at the start.
fn whole_file(kind: &str, lines: u32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    job::write_file(directory.path(), lines)?;
    job::end(directory.path())?;
    let receiver = Receiver::start(directory.path())?;
    let document = job::document(kind, directory.path(), &receiver.address)?;
    let began = Instant::now();
    let exported = start(&document)?.wait_with_output()?;
    let wall = began.elapsed();
    let exported = read(&exported.stdout)?;
    drop(receiver);
    let sent = exported.report.sinks[0].sent;
    ensure!(sent == u64::from(lines), "{sent} of {lines} lines were sent: {:?}", exported.report);
    show(kind, lines, wall, &exported)
}

/// Lines that come while the receiver goes away and comes back.
#[allow(clippy::print_stdout, reason = "what the program is for")]
fn outage(lines: u32, spool: u64) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    job::prepare(directory.path())?;
    let mut receiver = Receiver::start(directory.path())?;
    let mut document = job::document("elasticsearch", directory.path(), &receiver.address)?;
    document.handling.spool_bytes = spool;
    let began = Instant::now();
    let process = start(&document)?;
    let writing = thread::spawn({
        let directory = directory.path().to_owned();
        move || job::write_output(&directory, lines)
    });
    while receiver.count()? < u64::from(lines) / 3 {
        ensure!(!writing.is_finished(), "all lines were written before a third had arrived");
        thread::sleep(Duration::from_millis(10));
    }
    receiver.kill()?;
    let before = receiver.count()?;
    thread::sleep(OUTAGE);
    receiver.resume()?;
    writing.join().ok().context("the writer has failed")??;
    job::end(directory.path())?;
    let exported = read(&process.wait_with_output()?.stdout)?;
    let wall = began.elapsed();

    let mut found = receiver.received()?;
    found.sort_unstable();
    ensure!(found.windows(2).all(|pair| pair[0].number < pair[1].number), "a line has arrived twice");
    ensure!(
        found.windows(2).all(|pair| pair[0].sequence < pair[1].sequence),
        "lines are numbered in another order than they were written in"
    );
    let (report, found) = (&exported.report, found.len() as u64);
    let sink = &report.sinks[0];
    println!(
        "{lines} lines, the receiver killed after {before} and started again after {OUTAGE:?}: {found} found, each once and in order; \
         reported: {} sent, {} waiting, {} lost",
        sink.sent, sink.waiting, sink.lost
    );
    ensure!(
        (sink.sent, sink.waiting, sink.lost, report.lost_bytes) == (found, 0, u64::from(lines) - found, 0),
        "the report says something else than what was found: {report:?}"
    );
    show("elasticsearch with an outage", lines, wall, &exported)
}

/// Says what it cost, and fails if that is more than it may.
#[allow(clippy::print_stdout, reason = "what the program is for")]
fn show(what: &str, lines: u32, wall: Duration, exported: &Exported) -> anyhow::Result<()> {
    let processor = f64::from(exported.ticks) / 100.0;
    let speed = f64::from(lines) / processor;
    let memory = u32::try_from(exported.peak).map_or(f64::MAX, f64::from) * 1024.0 / 1e6;
    println!(
        "{what}: {lines} lines in {:.1} s; processor time {processor:.2} s, {:.2} s per million lines, {speed:.0} lines/s of one core; memory {memory:.1} MB at most",
        wall.as_secs_f64(),
        processor * 1e6 / f64::from(lines),
    );
    ensure!(speed >= SLOWEST, "it is slower than {SLOWEST:.0} lines/s of one core");
    ensure!(memory <= LARGEST, "it takes more than {LARGEST:.0} MB");
    Ok(())
}

fn start(document: &LogExporterDocument) -> anyhow::Result<std::process::Child> {
    let document = serde_json::to_string(document)?;
    Ok(Command::new(env::current_exe()?).args(["export", &document]).stdout(Stdio::piped()).spawn()?)
}

fn read(output: &[u8]) -> anyhow::Result<Exported> {
    serde_json::from_slice(output).context("the exporter failed")
}

/// Exports, and prints what came of it and what it cost.
#[allow(clippy::print_stdout, reason = "what the program is for")]
fn export(document: &str) -> anyhow::Result<()> {
    let document: LogExporterDocument = serde_json::from_str(document)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(exporter::export(&document, CancellationToken::new()))?;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        stat.rsplit(") ").next().context("the fields after the name")?.split(' ').collect();
    let ticks = fields[11].parse::<u32>()? + fields[12].parse::<u32>()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the most memory")?;
    let peak = peak.trim().trim_end_matches(" kB").parse()?;
    println!("{}", serde_json::to_string(&Exported { report, ticks, peak })?);
    Ok(())
}
