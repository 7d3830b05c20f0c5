//! The loop around all mirrors: starts what is due, a few at once, and tells what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bk_api::credentials::GitCredentials;
use futures::FutureExt;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    access::{Access, Entries},
    address::Address,
    metrics::Metrics,
    mirror::{self, Order, Outcome, Rules},
    place::{Place, Record},
    schedule::Schedule,
};

/// How many questions may wait to be heard.
const ASKS: usize = 64;
/// How many callers may wait for one mirror.
const WAITING: usize = 64;
/// How long the loop sleeps if nothing is due.
const IDLE: Duration = Duration::from_hours(1);

/// A mirror that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The RepoMirror's name.
    pub name: String,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The repository.
    pub address: Address,
    /// Which references.
    pub refs: Vec<String>,
    /// Whether files of Git LFS are fetched too.
    pub lfs: bool,
    /// How often.
    pub interval: Duration,
    /// With which Secrets.
    pub credentials: Option<GitCredentials>,
    /// The last request to fetch it at once that somebody has written down; another one is heard.
    pub requested: Option<String>,
}

/// What came of a fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which mirror.
    pub wanted: Wanted,
    /// When it began.
    pub at: Timestamp,
    /// What came of it.
    pub result: Result<Outcome, String>,
    /// The mirror as borrowers find it, if they do.
    pub record: Option<Record>,
}

/// What the syncer needs of the world around it.
pub trait World: Send + Sync + 'static {
    /// The entries of a Secret.
    fn secret(&self, name: &str) -> impl Future<Output = Result<Entries, String>> + Send;
    /// Takes note of what came of a fetch.
    fn report(&self, report: &Report) -> impl Future<Output = ()> + Send;
    /// Passes on to others that somebody wants a RepoMirror's mirror to be fetched at once.
    fn pass_on(&self, mirror: &str) -> impl Future<Output = ()> + Send;
}

/// Where mirrors are and how they are kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of all mirrors.
    pub root: PathBuf,
    /// The directory for private files.
    pub private: PathBuf,
    /// How many are fetched at once.
    pub parallelism: usize,
    /// How each of them is kept.
    pub rules: Rules,
}

/// Why a question is not answered with a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// There is no mirror of that repository.
    Unknown,
    /// Too many wait already.
    Busy,
}

/// What comes of a fetch that somebody waits for.
pub type Awaited = oneshot::Receiver<Result<(), String>>;

struct Ask {
    directory: String,
    answer: oneshot::Sender<Result<Awaited, Declined>>,
}

/// Tells the syncer what is wanted. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    wanted: mpsc::Sender<Vec<Wanted>>,
    asks: mpsc::Sender<Ask>,
}

impl Handle {
    /// These mirrors are wanted, and no others.
    pub async fn want(&self, mirrors: Vec<Wanted>) {
        // The syncer is gone only while the process ends.
        let _ending = self.wanted.send(mirrors).await;
    }

    /// A mirror is to be fetched at once. Those who ask for the same at the same time share a fetch.
    pub async fn ask(&self, address: &Address) -> Result<Awaited, Declined> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { directory: address.directory(), answer };
        self.asks.try_send(ask).map_err(|_| Declined::Busy)?;
        answered.await.unwrap_or(Err(Declined::Busy))
    }
}

/// The loop.
pub struct Syncer<W> {
    settings: Settings,
    world: Arc<W>,
    metrics: Metrics,
    schedule: Schedule,
    mirrors: BTreeMap<String, Wanted>,
    /// Those who wait for the next run of a mirror, and those who wait for the one that runs.
    waiting: BTreeMap<String, Vec<oneshot::Sender<Result<(), String>>>>,
    served: BTreeMap<String, Vec<oneshot::Sender<Result<(), String>>>>,
    /// Mirrors whose next run others have been told of.
    passed_on: BTreeSet<String>,
    wanted: mpsc::Receiver<Vec<Wanted>>,
    asks: mpsc::Receiver<Ask>,
}

impl<W: World> Syncer<W> {
    /// A syncer without mirrors, and what tells it of some.
    pub fn new(settings: Settings, world: W, metrics: Metrics) -> (Self, Handle) {
        let (want, wanted) = mpsc::channel(1);
        let (ask, asks) = mpsc::channel(ASKS);
        let syncer = Self {
            schedule: Schedule::new(settings.parallelism),
            settings,
            world: Arc::new(world),
            metrics,
            mirrors: BTreeMap::new(),
            waiting: BTreeMap::new(),
            served: BTreeMap::new(),
            passed_on: BTreeSet::new(),
            wanted,
            asks,
        };
        (syncer, Handle { wanted: want, asks: ask })
    }

    /// Keeps mirrors until `stop`. What is under way then is ended; git leaves nothing that the next start does not clear away.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        loop {
            for directory in self.schedule.start(Timestamp::now()) {
                self.begin(&mut running, directory);
            }
            let pause = self.schedule.wait(Timestamp::now()).unwrap_or(IDLE);
            // With all hands busy, only an end makes room.
            let pause = if running.len() >= self.settings.parallelism { IDLE } else { pause };
            tokio::select! {
                () = stop.cancelled() => break,
                Some(mirrors) = self.wanted.recv() => self.set(mirrors),
                Some(ask) = self.asks.recv() => self.hear(ask),
                Some(ended) = running.join_next(), if !running.is_empty() => {
                    // It has caught its own panics, and nobody cancels it before the end.
                    if let Ok((directory, result)) = ended {
                        self.end(&directory, &result);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        running.shutdown().await;
    }

    fn set(&mut self, mirrors: Vec<Wanted>) {
        let new: BTreeMap<String, Wanted> =
            mirrors.into_iter().map(|wanted| (wanted.address.directory(), wanted)).collect();
        let names = |mirrors: &BTreeMap<String, Wanted>| {
            mirrors.values().map(|wanted| wanted.name.clone()).collect::<Vec<_>>()
        };
        let kept = names(&new);
        for gone in names(&self.mirrors).iter().filter(|name| !kept.contains(name)) {
            self.metrics.forget(gone);
        }
        let now = Timestamp::now();
        let intervals = new.iter().map(|(directory, wanted)| (directory.clone(), wanted.interval)).collect();
        self.schedule.set(&intervals, now);
        // A changed spec shows at once, and what is asked for by way of another syncer is done here too.
        let is_news = |old: &Wanted, wanted: &Wanted| {
            let is_asked_for = wanted.requested.is_some() && old.requested != wanted.requested;
            old.generation != wanted.generation || is_asked_for
        };
        for (directory, wanted) in &new {
            if self.mirrors.get(directory).is_some_and(|old| is_news(old, wanted)) {
                self.schedule.ask(directory, now);
            }
        }
        self.mirrors = new;
    }

    fn hear(&mut self, Ask { directory, answer }: Ask) {
        let waiting = self.waiting.entry(directory.clone()).or_default();
        waiting.retain(|waiter| !waiter.is_closed());
        let heard = if waiting.len() >= WAITING {
            Err(Declined::Busy)
        } else if self.mirrors.contains_key(&directory) && self.schedule.ask(&directory, Timestamp::now()) {
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            Ok(receiver)
        } else {
            self.waiting.remove(&directory);
            Err(Declined::Unknown)
        };
        let is_heard = heard.is_ok();
        // Whoever asked may have gone.
        let _gone = answer.send(heard);
        if let Some(wanted) = self.mirrors.get(&directory).filter(|_| is_heard)
            && self.passed_on.insert(directory)
        {
            let (world, name) = (self.world.clone(), wanted.name.clone());
            tokio::spawn(async move { world.pass_on(&name).await });
        }
    }

    fn begin(&mut self, running: &mut JoinSet<(String, Result<(), String>)>, directory: String) {
        let Some(wanted) = self.mirrors.get(&directory).cloned() else {
            self.schedule.ended(&directory, true, Timestamp::now(), 0.5);
            return;
        };
        let waiting = self.waiting.remove(&directory).unwrap_or_default();
        self.passed_on.remove(&directory);
        self.served.entry(directory.clone()).or_default().extend(waiting);
        let (settings, world, metrics) = (self.settings.clone(), self.world.clone(), self.metrics.clone());
        running.spawn(async move {
            let fetching = AssertUnwindSafe(one(&settings, world.as_ref(), &metrics, wanted));
            // Its place must become free whatever happens, or nobody would ever fetch this mirror again.
            let result = fetching.catch_unwind().await;
            (directory, result.unwrap_or_else(|_| Err("the syncer failed; its log says why".to_owned())))
        });
    }

    fn end(&mut self, directory: &str, result: &Result<(), String>) {
        self.schedule.ended(directory, result.is_ok(), Timestamp::now(), bk_ops::jitter::fraction());
        for waiter in self.served.remove(directory).unwrap_or_default() {
            let _gone = waiter.send(result.clone());
        }
    }
}

/// Fetches one mirror and reports what came of it.
async fn one<W: World>(
    settings: &Settings,
    world: &W,
    metrics: &Metrics,
    wanted: Wanted,
) -> Result<(), String> {
    let at = Timestamp::now();
    let began = tokio::time::Instant::now();
    let result = fetch(settings, world, &wanted, at).await.map_err(|error| bk_ops::report::one_line(&error));
    let (name, took) = (wanted.name.as_str(), began.elapsed());
    match &result {
        Ok(outcome) => {
            let rebuilt = outcome.rebuilt.is_some();
            metrics.synced(name, at, outcome.size_bytes, outcome.packs, took, rebuilt);
            tracing::debug!(mirror = name, ?took, size = outcome.size_bytes, "fetched");
        }
        Err(error) => {
            metrics.failed(name, took);
            tracing::warn!(mirror = name, repository = %wanted.address, error, "the mirror could not be fetched");
        }
    }
    let ended = result.as_ref().map(|_| ()).map_err(Clone::clone);
    let record = Place::of(&settings.root, &wanted.address).read().ok().flatten();
    world.report(&Report { wanted, at, result, record }).await;
    ended
}

async fn fetch<W: World>(
    settings: &Settings,
    world: &W,
    wanted: &Wanted,
    at: Timestamp,
) -> Result<Outcome, Error> {
    let secret = async |name: Option<&String>| match name {
        Some(name) => world.secret(name).await.map(Some).map_err(Error::Credentials),
        None => Ok(None),
    };
    let credentials = wanted.credentials.clone().unwrap_or_default();
    let ssh = secret(credentials.ssh_secret.as_ref()).await?;
    let https = secret(credentials.https_secret.as_ref()).await?;
    let access = Access::new(&wanted.address, ssh.as_ref(), https.as_ref(), &settings.private)?;
    let order = Order { address: wanted.address.clone(), refs: wanted.refs.clone(), lfs: wanted.lfs, access };
    mirror::sync(&settings.root, &order, settings.rules, at).await
}
