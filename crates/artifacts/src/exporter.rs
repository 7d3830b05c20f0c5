//! The exporter as a whole: when it looks, when it uploads, how it ends, and what it reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bk_api::exporters::{ArtifactExporterDocument, ExporterReport, SinkReport};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::Agent,
    command,
    ledger::{Ledger, Look, Moment, Outcome},
    marks::{self, Marks},
    scan::{self, Skip},
    watch::{Event, Watch},
};

/// The name of the only place that artifacts go to.
pub const SINK: &str = "artifacts";
/// How often the directory is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A look takes at most this part of the time.
const SHARE: u32 = 10;
/// What is left of the grace period for the report.
const RESERVE: Duration = Duration::from_secs(1);
/// How long it may take to hear which artifacts there are.
const SEARCH: Duration = Duration::from_secs(10);
/// A call takes longer for large files: this many bytes are a second's work on a slow line.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// Exports until the job has ended and everything is uploaded, or `stop` is cancelled and the grace period is over, or nothing can be
/// uploaded any more.
pub async fn export(document: &ArtifactExporterDocument, stop: CancellationToken) -> ExporterReport {
    let marks = Marks::new(Path::new(&document.drain), Path::new(&document.drained));
    let sign = tokio::spawn(show(marks.clone()));
    let over = CancellationToken::new();
    let grace = Duration::from_secs(document.grace_seconds.into()).saturating_sub(RESERVE);
    let clock = tokio::spawn(end(stop.clone(), grace, over.clone()));
    let mut exporter = Exporter::new(document, stop, over);
    exporter.run(&marks).await;
    sign.abort();
    clock.abort();
    exporter.report()
}

/// Cancels `over` when the grace period is.
async fn end(stop: CancellationToken, grace: Duration, over: CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(grace).await;
    over.cancel();
}

/// Shows, as long as it runs, that the exporter does.
async fn show(marks: Marks) {
    let mut warned = false;
    loop {
        if let Err(error) = marks.show()
            && !std::mem::replace(&mut warned, true)
        {
            tracing::warn!(%error, "containers cannot see that the exporter is there");
        }
        tokio::time::sleep(marks::SIGN).await;
    }
}

struct Exporter<'a> {
    document: &'a ArtifactExporterDocument,
    agent: Agent,
    ledger: Ledger,
    watch: Watch,
    skipped: BTreeMap<PathBuf, Skip>,
    stop: CancellationToken,
    begin: Instant,
    /// Is cancelled when the grace period is over.
    over: CancellationToken,
    /// How long the last look took.
    look: Duration,
    uploaded: u64,
    /// Whether a call has failed of which some files may be artifacts.
    unsure: bool,
    reason: Option<String>,
}

impl<'a> Exporter<'a> {
    fn new(document: &'a ArtifactExporterDocument, stop: CancellationToken, over: CancellationToken) -> Self {
        let agent = Agent {
            program: document.agent.clone().into(),
            environments: document.environments.clone().into(),
            root: document.directory.clone().into(),
        };
        Self {
            document,
            agent,
            ledger: Ledger::default(),
            watch: Watch::new(),
            skipped: BTreeMap::new(),
            stop,
            begin: Instant::now(),
            over,
            look: Duration::ZERO,
            uploaded: 0,
            unsure: false,
            reason: None,
        }
    }

    async fn run(&mut self, marks: &Marks) {
        loop {
            let wishes = marks.open();
            let ended = bk_ops::exporting::has_ended(&self.document.job_ended) || self.stop.is_cancelled();
            self.look();
            if ended || !wishes.is_empty() {
                self.drain().await;
            }
            for container in &wishes {
                if let Err(error) = marks.fulfil(container) {
                    tracing::warn!(%error, ?container, "the container cannot be told that its artifacts are uploaded");
                }
            }
            if ended {
                return;
            }
            let due = self.ledger.due(self.now());
            if !due.is_empty() {
                self.upload(&due).await;
            }
            let pause = LOOK.max(self.look * SHARE);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    fn now(&self) -> Moment {
        self.begin.elapsed()
    }

    /// Looks at the directory. What happened until then is known before, so that a file is in the ledger when it is closed.
    fn look(&mut self) {
        let (began, events) = (Instant::now(), self.watch.events());
        let scan = match scan::scan(&self.agent.root) {
            Ok(scan) => scan,
            Err(error) => {
                self.because(format!("cannot look into {}: {error}", self.agent.root.display()));
                return;
            }
        };
        self.watch.follow(&self.agent.root, &scan.directories);
        self.ledger.seen(self.now(), scan.files);
        for event in events {
            match event {
                Event::Closed(path) => self.ledger.closed(&path),
                Event::Written(path) => self.ledger.written(&path),
                Event::Lost => self.ledger.unsure(),
            }
        }
        for (path, skip) in scan.skipped {
            self.skip(path, skip);
        }
        self.look = began.elapsed();
    }

    fn skip(&mut self, path: PathBuf, skip: Skip) {
        if self.skipped.get(&path) != Some(&skip) {
            tracing::warn!(path = %path.display(), reason = %skip, "no artifact");
            if skip.is_loss() {
                self.because(format!("{}: {skip}", path.display()));
            }
            self.skipped.insert(path, skip);
        }
    }

    /// Remembers a reason unless there is one: what follows is mostly because of it.
    fn because(&mut self, reason: String) {
        if self.reason.is_none() {
            tracing::warn!(reason, "artifacts may be missing");
            self.reason = Some(reason);
        }
    }

    /// Uploads everything that is there now, as the job is about to end: not what is written meanwhile, which might never end.
    async fn drain(&mut self) {
        self.ledger.renew();
        let mut wanted: BTreeSet<PathBuf> = self.ledger.left(self.now()).into_iter().collect();
        let patience = Duration::from_secs(self.document.drain_seconds.into());
        let mut moved = Instant::now();
        while wanted.iter().any(|path| self.ledger.is_waiting(path)) {
            let left = self.ledger.left(self.now());
            let left: Vec<PathBuf> = left.into_iter().filter(|path| wanted.contains(path)).collect();
            if left.is_empty() {
                tokio::time::sleep(LOOK).await;
            } else {
                let uploaded = self.upload(&left).await;
                if !uploaded.is_empty() {
                    moved = Instant::now();
                }
                wanted.retain(|path| !uploaded.contains(path));
                self.look();
            }
            if moved.elapsed() >= patience || self.over.is_cancelled() {
                return;
            }
        }
    }

    /// Makes one call for the first of these files. Returns those that were uploaded.
    async fn upload(&mut self, wanted: &[PathBuf]) -> Vec<PathBuf> {
        self.ask().await;
        let wanted: Vec<PathBuf> =
            wanted.iter().filter(|path| self.ledger.is_waiting(path)).cloned().collect();
        let Some(first) = wanted.first() else { return Vec::new() };
        let failures = self.ledger.failures(first);
        let same = wanted.iter().take_while(|path| self.ledger.failures(path) == failures).count();
        // If one of many fails, nobody knows which: the next calls are smaller.
        let most = match failures {
            0 => command::MOST,
            1 => (same.min(command::MOST) / 8).max(1),
            _ => 1,
        };
        let batch = command::calls(&wanted[..same], most).first().map_or(Vec::new(), |call| call.to_vec());
        let (files, unreadable): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|path| fs::File::open(self.agent.root.join(path)).is_ok());
        for path in unreadable {
            self.unreadable(&path);
        }
        let looks: Vec<(PathBuf, Look)> =
            files.iter().filter_map(|path| Some((path.clone(), self.ledger.look(path)?))).collect();
        if looks.is_empty() {
            return Vec::new();
        }
        let bytes: u64 = looks.iter().map(|(_, look)| look.size).sum();
        let outcome = self.call(&files, bytes).await;
        let now = self.now();
        for (path, look) in looks {
            self.ledger.told(now, &path, look, outcome);
        }
        if outcome == Outcome::Failed {
            return Vec::new();
        }
        self.uploaded += files.len() as u64;
        tracing::info!(files = files.len(), bytes, "uploaded");
        files
    }

    /// Asks which artifacts there are after a call that has failed, so that no file becomes two.
    async fn ask(&mut self) {
        if !std::mem::take(&mut self.unsure) {
            return;
        }
        let uploaded = tokio::select! {
            uploaded = self.agent.uploaded(SEARCH) => uploaded,
            () = self.over.cancelled() => return,
        };
        match uploaded {
            Ok(uploaded) => self.uploaded += self.ledger.found(&uploaded) as u64,
            Err(error) => {
                let reason = bk_ops::report::one_line(&error);
                tracing::warn!(reason, "nobody says which artifacts there are; some may be uploaded twice");
            }
        }
    }

    async fn call(&mut self, files: &[PathBuf], bytes: u64) -> Outcome {
        let patience = Duration::from_secs(self.document.drain_seconds.into());
        let limit = patience + Duration::from_secs(bytes / BYTES_PER_SECOND);
        let result = tokio::select! {
            result = self.agent.upload(files, limit) => result.map_err(|error| bk_ops::report::one_line(&error)),
            () = self.over.cancelled() => {
                self.because("the grace period is over".to_owned());
                return Outcome::Failed;
            }
        };
        match result {
            Ok(()) => Outcome::Uploaded,
            Err(reason) => {
                tracing::warn!(files = files.len(), reason, "not uploaded");
                self.unsure = true;
                self.reason = Some(reason);
                Outcome::Failed
            }
        }
    }

    /// A file that cannot be read, or is gone meanwhile.
    fn unreadable(&mut self, path: &Path) {
        if self.agent.root.join(path).exists() {
            self.skip(path.to_owned(), Skip::Unreadable);
        }
        if let Some(look) = self.ledger.look(path) {
            self.ledger.told(self.now(), path, look, Outcome::Failed);
        }
    }

    fn report(mut self) -> ExporterReport {
        let (waiting, failed) = self.ledger.missing();
        // Files that cannot be read are among those that have failed.
        let refused = |(path, skip): &(&PathBuf, &Skip)| skip.is_loss() && self.ledger.look(path).is_none();
        let lost = (failed + self.skipped.iter().filter(refused).count()) as u64;
        let missing = waiting > 0 || lost > 0;
        let changed = || "it was written to after its upload".to_owned();
        let reason = self.reason.take().or_else(|| missing.then(changed));
        let reason = reason.filter(|_| missing || self.uploaded == 0);
        let sink =
            SinkReport { name: SINK.to_owned(), sent: self.uploaded, waiting: waiting as u64, lost, reason };
        ExporterReport { sinks: vec![sink], ..ExporterReport::default() }
    }
}
