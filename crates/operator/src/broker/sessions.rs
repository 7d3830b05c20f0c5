//! The sessions of agents that have registered, in Secrets of the operator's namespace.
//!
//! A session is on record before its agent hears of it: whatever becomes of the operator afterwards, the job can be ended. Those that come together
//! are written together, a few times in a second at the most. What is over is taken out with the next write, or after a while.
//!
//! - [`clerk`]: reads and writes one of the Secrets
//! - [`edition`]: such a Secret, for whoever knows what is in it

mod clerk;
mod edition;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_plan::broker::session::{SHARDS, SessionRecord, secret_name, shard};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use self::clerk::Clerk;
use crate::{error::Error, settings::Cluster};

/// How long the first look at what is on record may take. Without it, much is taken for lost that can be spoken for.
const FIRST_LOOK: Duration = Duration::from_secs(20);

/// Why a session is not on record.
#[derive(Debug)]
pub(crate) enum NotKept {
    /// One for the same attempt is.
    Used,
    /// The API server does not take it.
    Failed(Error),
}

/// The sessions as this replica knows them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sessions {
    shelves: Arc<[Shelf]>,
    /// Until when the first look may take.
    patience: Instant,
}

/// The sessions in one Secret.
struct Shelf {
    state: Mutex<State>,
    /// Whether it was looked at.
    known: watch::Sender<bool>,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Default)]
struct State {
    /// The version of the Secret that is known.
    version: u64,
    records: BTreeMap<String, SessionRecord>,
    /// Those among them that there was no room for in the Secret.
    unwritten: BTreeSet<String>,
    /// What is over, and still on record: jobs, and of which BuildJob's agent.
    over: BTreeMap<String, String>,
}

/// A session that is to be on record, whose, and who waits for it.
type Add = (String, SessionRecord, oneshot::Sender<Result<(), NotKept>>);

enum Order {
    Add(Box<Add>),
    Remove,
}

impl Sessions {
    /// Keeps sessions in Secrets called after `broker`, for as long as the process lives: agents that are being registered at the shutdown come
    /// on record, too.
    pub(crate) fn start(cluster: &Cluster, broker: &str) -> Self {
        let mut writers = Vec::new();
        let shelves = (0..SHARDS).map(|number| {
            let (orders, receiver) = mpsc::unbounded_channel();
            writers.push((secret_name(broker, number), receiver));
            Shelf { state: Mutex::default(), known: watch::Sender::new(false), orders }
        });
        let sessions = Self { shelves: shelves.collect(), patience: Instant::now() + FIRST_LOOK };
        for (number, (name, orders)) in writers.into_iter().enumerate() {
            let clerk = Clerk::new(cluster.clone(), name, sessions.clone(), number);
            tokio::spawn(clerk.clone().watch());
            tokio::spawn(clerk.write(orders));
        }
        sessions
    }

    /// Waits until it is known what is on record. If that cannot be read, it is not waited for in vain.
    pub(crate) async fn complete(&self) {
        // Each round of the controller asks; nearly always all of it is known.
        for shelf in self.shelves.iter().filter(|shelf| !*shelf.known.borrow()) {
            let mut known = shelf.known.subscribe();
            // It is told of at once where it fails.
            let _late = tokio::time::timeout_at(self.patience, known.wait_for(|known| *known)).await;
        }
    }

    /// The session of a job's agent.
    pub(crate) fn get(&self, job: &str) -> Option<SessionRecord> {
        self.shelf(job).lock().records.get(job).cloned()
    }

    /// All of them, by job.
    pub(crate) fn all(&self) -> Vec<(String, SessionRecord)> {
        let of = |shelf: &Shelf| shelf.lock().records.clone().into_iter();
        self.shelves.iter().flat_map(of).collect()
    }

    /// Puts a session on record; answers when it is.
    pub(crate) async fn add(&self, job: String, record: SessionRecord) -> Result<(), NotKept> {
        let (done, answer) = oneshot::channel();
        let orders = self.shelf(&job).orders.clone();
        let gone = || NotKept::Failed(Error::Setup("the operator is about to stop".to_owned()));
        orders.send(Order::Add(Box::new((job, record, done)))).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Forgets the session of a BuildJob's agent.
    pub(crate) fn remove(&self, job: &str, build_job: &str) {
        let kept_in = self.shelf(job);
        let mut state = kept_in.lock();
        if state.records.get(job).is_some_and(|record| record.build_job == build_job) {
            state.records.remove(job);
            if state.unwritten.remove(job) {
                return;
            }
            state.over.insert(job.to_owned(), build_job.to_owned());
            // The writer is gone only while the process ends.
            let _ending = kept_in.orders.send(Order::Remove);
        }
    }

    fn shelf(&self, job: &str) -> &Shelf {
        &self.shelves[shard(job)]
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes down that a write based on what is known was done, and what it has taken out.
    fn wrote(&mut self, written: Option<u64>, gone: &[String]) {
        if let Some(version) = written.filter(|version| *version > self.version) {
            self.version = version;
            for job in gone {
                self.over.remove(job);
            }
        }
    }

    /// Takes over what a Secret holds, unless a younger version is known.
    fn see(&mut self, secret: &Secret) {
        let Some(version) = edition::version(&secret.metadata).filter(|version| *version > self.version)
        else {
            return;
        };
        self.version = version;
        let held = secret.data.iter().flatten();
        let read = |(job, bytes): (&String, &ByteString)| {
            Some((job.clone(), serde_json::from_slice(&bytes.0).ok()?))
        };
        let mut held: BTreeMap<String, SessionRecord> = held.filter_map(read).collect();
        self.over.retain(|job, build_job| {
            let is_held = held.get(job).is_some_and(|record| record.build_job == *build_job);
            is_held && held.remove(job).is_some()
        });
        // What has come in by another replica meanwhile is younger.
        self.unwritten.retain(|job| !held.contains_key(job));
        held.extend(self.unwritten.iter().filter_map(|job| self.records.remove_entry(job)));
        self.records = held;
    }
}
