//! What all exporters of a job pod have in common as programs.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use bk_api::exporters::{DOCUMENT_VARIABLE, ExporterReport};
use bk_ops::logging::LogArgs;
use clap::Args;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Options of every exporter.
#[derive(Debug, Args)]
pub(super) struct ExporterArgs {
    /// Where to leave the report
    #[arg(long, default_value = "/dev/termination-log", value_name = "FILE")]
    termination_log: PathBuf,

    #[command(flatten)]
    log: LogArgs,
}

/// Succeeds whatever happens, as a job must not fail because something cannot be exported: the report says what came of it.
pub(super) fn run<D: DeserializeOwned>(
    args: &ExporterArgs,
    export: impl AsyncFnOnce(D, CancellationToken) -> anyhow::Result<ExporterReport>,
) -> ExitCode {
    bk_ops::logging::init(&args.log);
    let report = told(export).unwrap_or_else(|error| {
        let reason = bk_ops::report::one_line(error.as_ref());
        tracing::error!(reason, "nothing is exported");
        ExporterReport { reason: Some(reason), ..ExporterReport::default() }
    });
    leave(&report, &args.termination_log);
    ExitCode::SUCCESS
}

/// Exports as the environment tells.
fn told<D: DeserializeOwned>(
    export: impl AsyncFnOnce(D, CancellationToken) -> anyhow::Result<ExporterReport>,
) -> anyhow::Result<ExporterReport> {
    let document = document().with_context(|| format!("cannot use what {DOCUMENT_VARIABLE} says"))?;
    // One thread: the exporter has to live beside the job with little.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let stop = bk_ops::shutdown::on_signal()?;
        export(document, stop).await
    });
    // A volume that hangs must not keep the process.
    runtime.shutdown_background();
    report
}

fn document<D: DeserializeOwned>() -> anyhow::Result<D> {
    Ok(serde_json::from_str(&std::env::var(DOCUMENT_VARIABLE)?)?)
}

/// Leaves the report where Kubernetes looks for it, and in the log.
fn leave(report: &ExporterReport, termination: &Path) {
    let message = report.message();
    tracing::info!(report = message, "done");
    let written = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(termination)
        .and_then(|mut file| file.write_all(message.as_bytes()));
    if let Err(error) = written {
        tracing::warn!(%error, path = %termination.display(), "the report cannot be left as termination message");
    }
}
