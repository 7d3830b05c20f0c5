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
use tokio::sync::{mpsc, oneshot, watch};

use self::clerk::Clerk;
use crate::{error::Error, settings::Cluster};

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
}

/// The sessions in one Secret.
struct Shelf {
    state: Mutex<State>,
    /// Whether it was looked at, or cannot be.
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
    /// What is over, and still on record: jobs, and their agents.
    over: BTreeMap<String, String>,
}

/// A session that is to be on record, whose, and who waits for it.
type Add = (String, SessionRecord, oneshot::Sender<Result<(), NotKept>>);

enum Order {
    Add(Box<Add>),
    /// Something is over, and may stay on record for so long.
    Remove(Duration),
}

/// How long what is over may stay on record.
const LINGER: Duration = Duration::from_mins(1);

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
        let sessions = Self { shelves: shelves.collect() };
        for (number, (name, orders)) in writers.into_iter().enumerate() {
            let clerk = Clerk::new(cluster.clone(), name, sessions.clone(), number);
            tokio::spawn(clerk.clone().watch());
            tokio::spawn(clerk.write(orders));
        }
        sessions
    }

    /// Waits until it is known what is on record, or that this cannot be read: until then, much would be taken for lost that can be spoken for.
    pub(crate) async fn complete(&self) {
        // Each round of the controller asks; nearly always all of it is known.
        for shelf in self.shelves.iter().filter(|shelf| !*shelf.known.borrow()) {
            let mut known = shelf.known.subscribe();
            // The shelves hold the senders.
            let _never = known.wait_for(|known| *known).await;
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

    /// Forgets the session of a BuildJob's agent, whose job has ended.
    pub(crate) fn remove(&self, job: &str, build_job: &str) {
        self.take_out(job, build_job, LINGER);
    }

    /// Forgets a session that nobody has been told of: its agent may come again, also to another replica.
    pub(crate) fn take_back(&self, job: &str, build_job: &str) {
        self.take_out(job, build_job, Duration::ZERO);
    }

    fn take_out(&self, job: &str, build_job: &str, linger: Duration) {
        let kept_in = self.shelf(job);
        let mut state = kept_in.lock();
        if state.records.get(job).is_none_or(|record| record.build_job != build_job) {
            return;
        }
        if let Some(record) = state.records.remove(job)
            && !state.unwritten.remove(job)
        {
            state.over.insert(job.to_owned(), record.agent);
            // The writer is gone only while the process ends.
            let _ending = kept_in.orders.send(Order::Remove(linger));
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
    /// The version that is known, if any is, as the API server spells it.
    fn label(&self) -> Option<String> {
        (self.version > 0).then(|| self.version.to_string())
    }

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
        self.over.retain(|job, agent| {
            let is_held = held.get(job).is_some_and(|record| record.agent == *agent);
            is_held && held.remove(job).is_some()
        });
        // What has come in by another replica meanwhile is younger.
        self.unwritten.retain(|job| !held.contains_key(job));
        held.extend(self.unwritten.iter().filter_map(|job| self.records.remove_entry(job)));
        self.records = held;
    }
}
