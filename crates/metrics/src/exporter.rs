//! The exporter as a whole: how metrics leave, how it ends, and what it reports.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bk_api::exporters::{ExporterReport, MetricsDelivery, MetricsExporterDocument, SinkReport};
use bk_ops::exporting::{has_ended, nanoseconds};
use tokio_util::sync::CancellationToken;

use crate::{
    family::Labels,
    page::{Page, Reader},
    receiver::{Receiver, ReceiverError, Taken},
    server::{self, Served},
};

/// How often it is checked whether the job has ended.
const CHECK: Duration = Duration::from_millis(200);
/// What is left of the grace period for the report.
const RESERVE: Duration = Duration::from_secs(1);
/// The pause after the first failure; it doubles with each.
const PAUSE: Duration = Duration::from_millis(500);

/// What keeps an exporter from starting.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The port is taken.
    #[error("cannot listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no way to the receiver.
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
}

/// Where metrics come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    root: PathBuf,
    labels: Labels,
    reader: Arc<Reader>,
}

impl Source {
    /// What the job's files say now.
    pub(crate) fn page(&self) -> Page {
        self.reader.read(&self.root, &self.labels)
    }
}

/// Exports until the job has ended and its last values have left, or `stop` is cancelled and the grace period is over, or nobody takes
/// them for too long.
pub async fn export(
    document: &MetricsExporterDocument,
    stop: CancellationToken,
) -> Result<ExporterReport, ExporterError> {
    let labels = Labels::from_iter(document.labels.clone());
    let source =
        Source { root: document.directory.clone().into(), labels: labels.clone(), reader: Arc::default() };
    let ending = Ending { document, stop };
    match &document.delivery {
        MetricsDelivery::Scrape { port } => serve(&ending, source, *port).await,
        delivery => {
            let receiver = Receiver::of(delivery, nanoseconds(), &labels)?;
            let name = if matches!(delivery, MetricsDelivery::Push { .. }) { "push" } else { "otlp" };
            match receiver {
                Some(receiver) => Ok(send(&ending, &source, &receiver, name).await),
                None => Ok(ExporterReport::default()),
            }
        }
    }
}

/// When an exporter has to end.
struct Ending<'a> {
    document: &'a MetricsExporterDocument,
    stop: CancellationToken,
}

impl Ending<'_> {
    /// Waits for the end of the job, or for the pod's.
    async fn wait(&self) {
        let ended = || has_ended(&self.document.job_ended);
        while !ended() && !self.stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Waits until nobody may try any longer, from the end on.
    async fn over(&self) {
        let patience = Duration::from_secs(self.document.drain_seconds.into());
        let grace = Duration::from_secs(self.document.grace_seconds.into()).saturating_sub(RESERVE);
        tokio::select! {
            () = tokio::time::sleep(patience) => {}
            () = async { self.stop.cancelled().await; tokio::time::sleep(grace).await } => {}
        }
    }
}

/// What a receiver has.
#[derive(Default)]
struct Sent {
    page: Page,
    taken: Taken,
}

impl Sent {
    /// Sends what the files say, if that is something else than what the receiver has. Whether it was.
    async fn renew(&mut self, source: &Source, receiver: &Receiver) -> Result<bool, ReceiverError> {
        let page = source.page();
        if page.families == self.page.families {
            return Ok(false);
        }
        let taken = receiver.send(&page.families, nanoseconds()).await?;
        if let Some(reason) = &taken.reason {
            tracing::warn!(values = taken.lost, reason, "not all values have left");
        }
        *self = Self { page, taken };
        Ok(true)
    }
}

/// Serves metrics. After the job's end somebody is to have its last values.
async fn serve(ending: &Ending<'_>, source: Source, port: u16) -> Result<ExporterReport, ExporterError> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener,
        // A node without IPv6.
        Err(_) => tokio::net::TcpListener::bind(("0.0.0.0", port))
            .await
            .map_err(|source| ExporterError::Listen { port, source })?,
    };
    let served = Served::new(source.clone());
    let port_task = tokio::spawn(axum::serve(listener, server::routes(served.clone())).into_future());
    tracing::info!(port, "metrics are served");
    ending.wait().await;
    let page = source.page();
    served.end();
    if page.files > 0 {
        tokio::select! {
            () = served.told.notified() => {}
            () = ending.over() => {}
        }
        // The answer is on its way.
        tokio::time::sleep(CHECK).await;
    }
    port_task.abort();
    let delivered = if served.is_taken() {
        Ok(Taken::default())
    } else {
        Err("nobody has scraped the last values".to_owned())
    };
    Ok(report("scrape", &source.page(), delivered))
}

/// Sends metrics whenever they have changed, once in an interval at most.
async fn send(ending: &Ending<'_>, source: &Source, receiver: &Receiver, name: &str) -> ExporterReport {
    let interval = Duration::from_secs(ending.document.interval_seconds.into());
    let mut sent = Sent::default();
    {
        let wait = ending.wait();
        tokio::pin!(wait);
        let mut pause = PAUSE;
        loop {
            let next = match sent.renew(source, receiver).await {
                Ok(false) => interval.min(CHECK * 5),
                Ok(true) => {
                    pause = PAUSE;
                    interval
                }
                Err(error) => {
                    tracing::warn!(reason = bk_ops::report::one_line(&error), "metrics are not sent");
                    pause = (pause * 2).min(interval.max(PAUSE));
                    pause
                }
            };
            tokio::select! {
                () = &mut wait => break,
                () = tokio::time::sleep(next) => {}
            }
        }
    }
    last(ending, source, receiver, sent, name).await
}

/// Sends the last values, and deletes them if that is wanted, until nobody may try any longer.
async fn last(
    ending: &Ending<'_>,
    source: &Source,
    receiver: &Receiver,
    mut sent: Sent,
    name: &str,
) -> ExporterReport {
    let mut outcome = Err("there was no time to send the last values".to_owned());
    let over = ending.over();
    tokio::pin!(over);
    let mut pause = PAUSE;
    loop {
        let result = tokio::select! {
            result = finish(source, receiver, &mut sent) => result,
            () = &mut over => break,
        };
        outcome = result.map_err(|error| bk_ops::report::one_line(&error));
        if outcome.is_ok() {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause *= 2,
            () = &mut over => break,
        }
    }
    report(name, &source.page(), outcome)
}

async fn finish(source: &Source, receiver: &Receiver, sent: &mut Sent) -> Result<Taken, ReceiverError> {
    sent.renew(source, receiver).await?;
    receiver.clean_up().await?;
    Ok(sent.taken.clone())
}

fn report(name: &str, page: &Page, delivered: Result<Taken, String>) -> ExporterReport {
    let files = page.files as u64;
    let (sent, waiting) = if delivered.is_ok() || files == 0 { (files, 0) } else { (0, files) };
    let refused = page.refused.iter().next().map(|(file, reason)| format!("{file}: {reason}"));
    let (taken, failure) = match delivered {
        Ok(taken) => (taken, None),
        Err(reason) => (Taken::default(), Some(reason)),
    };
    let reason = failure.filter(|_| files > 0).or(refused).or(taken.reason);
    let lost = page.refused.len() as u64 + taken.lost;
    let sink = SinkReport { name: name.to_owned(), sent, waiting, lost, reason };
    ExporterReport { sinks: vec![sink], ..ExporterReport::default() }
}
