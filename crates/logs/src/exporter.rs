//! The exporter as a whole: what it is told, how it ends, and what it reports.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bk_api::exporters::{ExporterReport, LogExporterDocument, SinkReport};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    delivery::{Delivery, Tally},
    intake::{Intake, Intaken, Orders},
    press::Press,
    record::Sources,
    sink::Sink,
    spool::Spool,
};

/// How often it is checked whether anything still moves.
const CHECK: Duration = Duration::from_millis(100);

/// What is left of the grace period for the report.
const RESERVE: Duration = Duration::from_secs(1);

/// What keeps an exporter from starting.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// There is no place for the spool.
    #[error("cannot make the spool in {path}")]
    Spool {
        /// The directory.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The rule of joining lines is no regular expression.
    #[error("cannot use the rule for joining lines")]
    Rule(#[from] regex::Error),
    /// There is no thread for the intake.
    #[error("cannot start the intake")]
    Thread(#[source] std::io::Error),
}

/// Exports until the job has ended and everything is delivered, or `stop` is cancelled and the grace period is over, or
/// nothing moves any more.
pub async fn export(
    document: &LogExporterDocument,
    stop: CancellationToken,
) -> Result<ExporterReport, ExporterError> {
    let spool_error = |source| ExporterError::Spool { path: document.spool.clone(), source };
    let spool = Spool::new(Path::new(&document.spool), document.sinks.len(), document.handling.spool_bytes)
        .map_err(spool_error)?;
    let sources = Sources::default();
    let press =
        Press::new(&document.handling, Path::new(&document.environments), sources.clone(), spool.clone())?;
    let intake = Intake::new(document, press, spool.clone());

    let ending = CancellationToken::new();
    let tallies: Vec<Arc<Tally>> = document.sinks.iter().map(|_| Arc::default()).collect();
    let deliveries: Vec<_> = (0..tallies.len())
        .filter_map(|number| delivery(document, number, &sources, &spool, &tallies[number], &ending))
        .collect();

    let orders = Arc::new(Orders::default());
    let told = orders.clone();
    let thread = std::thread::Builder::new()
        .name("intake".to_owned())
        .spawn(move || intake.run(&told))
        .map_err(ExporterError::Thread)?;

    let mut tasks: Vec<_> = deliveries.into_iter().map(|delivery| tokio::spawn(delivery.run())).collect();
    // Lines are counted to the end, also if no sink can be used.
    let counting = spool.clone();
    tasks.push(tokio::spawn(async move { counting.closed().await }));
    let delivered = join_all(tasks.iter_mut());
    tokio::select! {
        _ = delivered => {}
        () = stalled(document, &spool, &tallies, &ending) => tracing::warn!("the sinks take nothing; giving up"),
        () = grace_over(document, &stop, &orders) => tracing::warn!("the grace period is over"),
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    orders.abandon();
    thread.thread().unpark();
    // A file system that hangs must not keep the report.
    let joined = tokio::time::timeout(RESERVE, tokio::task::spawn_blocking(move || thread.join())).await;
    let taken = match joined {
        Ok(Ok(Ok(taken))) => taken,
        _ => Intaken { reason: Some("the intake has failed".to_owned()), ..Intaken::default() },
    };
    Ok(report(document, &spool, &tallies, taken))
}

/// A sink that cannot be used does not keep the others from theirs.
fn delivery(
    document: &LogExporterDocument,
    number: usize,
    sources: &Sources,
    spool: &Arc<Spool>,
    tally: &Arc<Tally>,
    ending: &CancellationToken,
) -> Option<Delivery> {
    let chosen = &document.sinks[number];
    match Sink::new(chosen, &document.origin, sources) {
        Ok(sink) => Some(Delivery {
            name: chosen.name.clone(),
            sink,
            number,
            spool: spool.clone(),
            limits: document.handling.batch,
            tally: tally.clone(),
            ending: ending.clone(),
        }),
        Err(error) => {
            let reason = bk_ops::report::one_line(&error);
            tracing::warn!(sink = chosen.name, reason, "a sink cannot be used");
            tally.because(reason);
            spool.give_up(number);
            None
        }
    }
}

/// Returns when the job has ended and no sink has taken anything for too long.
async fn stalled(
    document: &LogExporterDocument,
    spool: &Spool,
    tallies: &[Arc<Tally>],
    ending: &CancellationToken,
) {
    let patience = Duration::from_secs(document.drain_seconds.into());
    let mut ended: Option<Instant> = None;
    loop {
        tokio::time::sleep(CHECK).await;
        if ended.is_none() && (spool.is_closed() || bk_ops::exporting::has_ended(&document.job_ended)) {
            ended = Some(Instant::now());
            ending.cancel();
        }
        if let Some(ended) = ended {
            let last = tallies.iter().map(|tally| tally.get().progress).fold(ended, Instant::max);
            if last.elapsed() >= patience {
                return;
            }
        }
    }
}

/// Returns when the grace period is over. A part of it is for what is left when the job is not over by itself.
async fn grace_over(document: &LogExporterDocument, stop: &CancellationToken, orders: &Orders) {
    stop.cancelled().await;
    let grace = Duration::from_secs(document.grace_seconds.into()).saturating_sub(RESERVE * 2);
    let deadline = tokio::time::Instant::now() + grace;
    tokio::time::sleep(grace * 2 / 3).await;
    orders.finish();
    tokio::time::sleep_until(deadline).await;
}

fn report(
    document: &LogExporterDocument,
    spool: &Spool,
    tallies: &[Arc<Tally>],
    taken: Intaken,
) -> ExporterReport {
    let sink = |(number, tally): (usize, &Arc<Tally>)| {
        let so_far = tally.get();
        let dropped = spool.lost(number);
        let lost = so_far.lost + dropped;
        let waiting = spool.records().saturating_sub(so_far.sent + lost);
        let reason = match (so_far.reason, dropped) {
            (None, 1..) => Some("the spool was full, and the oldest lines made room".to_owned()),
            (reason, _) if lost + waiting > 0 => reason,
            _ => None,
        };
        SinkReport { name: document.sinks[number].name.clone(), sent: so_far.sent, waiting, lost, reason }
    };
    let sinks = tallies.iter().enumerate().map(sink).collect();
    let Intaken { lost_bytes, reason, unmatched } = taken;
    ExporterReport { sinks, lost_bytes, reason, unmatched }
}
