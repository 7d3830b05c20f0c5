//! Reads and writes one of the Secrets with sessions.

use std::{
    collections::BTreeSet,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use bk_api::names;
use bk_plan::broker::session::{MAX_RECORDS, SessionRecord};
use futures::StreamExt;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};

use super::{Add, LINGER, NotKept, Order, Sessions, Shelf, State, edition::Edition};
use crate::{
    error::Error,
    settings::{Cluster, patience, watch_one},
};

/// How long after a write the next one may follow.
const PACE: Duration = Duration::from_millis(200);

/// How soon to try again to read what cannot be read.
const RETRY: Duration = Duration::from_secs(1);

/// How often a write is tried that others overtake.
const TRIES: usize = 5;

/// A write to a Secret.
struct Change {
    /// The version that it is based on, if any is known.
    version: Option<String>,
    /// What is taken out.
    gone: Vec<String>,
    /// What is put in, and nothing in the place of what is taken out.
    data: serde_json::Map<String, Value>,
    /// How many of the new sessions there is room for.
    kept: usize,
}

/// Reads and writes one of the Secrets.
#[derive(Clone)]
pub(super) struct Clerk {
    cluster: Cluster,
    name: String,
    sessions: Sessions,
    number: usize,
    /// Held while it writes.
    writing: Arc<Mutex<()>>,
}

impl Clerk {
    pub(super) fn new(cluster: Cluster, name: String, sessions: Sessions, number: usize) -> Self {
        Self { cluster, name, sessions, number, writing: Arc::default() }
    }

    fn shelf(&self) -> &Shelf {
        &self.sessions.shelves[self.number]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shelf().lock()
    }

    fn see(&self, secret: &Secret) {
        self.state().see(secret);
        self.shelf().known.send_replace(true);
    }

    /// Follows what other replicas write. What this one has written itself it is told of without being sent it.
    pub(super) async fn watch(self) {
        let api = Api::<Edition>::namespaced(self.cluster.streams.clone(), &self.cluster.namespace);
        let mut versions = std::pin::pin!(watch_one(api, &self.name));
        while let Some(version) = versions.next().await {
            match version {
                Ok(Some(edition)) => self.catch_up(edition.version()).await,
                Ok(None) => {
                    self.shelf().known.send_replace(true);
                    tracing::error!(
                        namespace = self.cluster.namespace,
                        secret = self.name,
                        "agents cannot register: there is no Secret for their sessions; upgrade the chart, or apply deploy/broker.yaml"
                    );
                }
                Err(error) => {
                    if !passes(&error) {
                        self.shelf().known.send_replace(true);
                    }
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(secret = self.name, error, "cannot watch sessions of agents");
                }
            }
        }
    }

    /// Reads the Secret, unless it is known as it is.
    async fn catch_up(&self, there: Option<u64>) {
        {
            // It may be of a write that is under way, whose answer says so.
            let _writing = self.writing.lock().await;
            if there.is_some_and(|version| version <= self.state().version) {
                return;
            }
        }
        while let Err(error) = self.refresh().await {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(secret = self.name, error, "cannot read sessions of agents");
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Writes down what it is told to, until nobody can tell it anything any more.
    pub(super) async fn write(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut next = Instant::now();
        let mut due: Option<Instant> = None;
        loop {
            let mut batch = Vec::new();
            let late = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let order = tokio::select! {
                order = orders.recv() => match order { Some(order) => Some(order), None => return },
                () = late => None,
            };
            match order {
                Some(Order::Remove(linger)) => {
                    let by = Instant::now() + linger;
                    due = Some(due.map_or(by, |due| due.min(by)));
                    continue;
                }
                Some(Order::Add(add)) => batch.push(*add),
                None => {}
            }
            tokio::time::sleep_until(next).await;
            while let Ok(order) = orders.try_recv() {
                if let Order::Add(add) = order {
                    batch.push(*add);
                }
            }
            let failed = self.flush(batch).await;
            next = Instant::now() + PACE;
            due = failed.then(|| Instant::now() + LINGER);
        }
    }

    /// Writes a batch, and what is over out of the record; says whether that has to be tried again.
    async fn flush(&self, mut adds: Vec<Add>) -> bool {
        if !adds.is_empty() && self.state().version == 0 {
            // Whoever writes without having looked may write over what others have written.
            if let Err(error) = self.refresh().await {
                return fail(adds, &error);
            }
        }
        for _ in 0..TRIES {
            let change;
            (adds, change) = self.prepare(adds);
            let Some(Change { version, gone, data, kept }) = change else {
                self.keep(adds, 0);
                return false;
            };
            let patch = json!({ "metadata": { "resourceVersion": version }, "data": data });
            let api = Api::<Edition>::namespaced(self.cluster.calls.clone(), &self.cluster.namespace);
            let params = PatchParams {
                field_manager: Some(names::FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let _writing = self.writing.lock().await;
            // What is in it then is known: only its version is asked for.
            match api.patch(&self.name, &params, &Patch::Merge(&patch)).await {
                Ok(written) => {
                    self.state().wrote(written.version(), &gone);
                    self.keep(adds, kept);
                    return false;
                }
                // Another replica was quicker.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let mut seen = self.refresh().await;
                    if seen.is_ok() && version == self.state().label() {
                        // It has gone back, as when the cluster was restored: what is there now counts.
                        self.state().version = 0;
                        seen = self.refresh().await;
                    }
                    if let Err(error) = seen {
                        return fail(adds, &error);
                    }
                }
                Err(error) => return self.doubt(adds, &self.failed(error)).await,
            }
        }
        fail(adds, &Error::Setup(format!("Secret {} is written by too many at once", self.name)))
    }

    /// After a write of which nobody knows whether it was done: those that are on record are kept, and the others are not.
    async fn doubt(&self, adds: Vec<Add>, error: &Error) -> bool {
        if adds.is_empty() || self.refresh().await.is_err() {
            return fail(adds, error);
        }
        let (kept, lost): (Vec<_>, Vec<_>) = {
            let state = self.state();
            adds.into_iter().partition(|(job, record, _)| state.records.get(job) == Some(record))
        };
        let all = kept.len();
        self.keep(kept, all);
        fail(lost, error)
    }

    /// Those that may be put on record, and the write that does so. Both go by the same version: what comes in meanwhile makes the write fail.
    fn prepare(&self, adds: Vec<Add>) -> (Vec<Add>, Option<Change>) {
        let state = self.state();
        let adds = refuse_used(&state, adds);
        let change = self.change(&state, &adds);
        (adds, change)
    }

    /// Tells whoever waits that the session is kept. Those that there was no room for, which are the last, are known to this process alone.
    fn keep(&self, adds: Vec<Add>, written: usize) {
        let mut state = self.state();
        for (number, (job, record, done)) in adds.into_iter().enumerate() {
            if number < written {
                // What it has come in place of is not over any more: it is gone.
                state.over.remove(&job);
                state.unwritten.remove(&job);
            } else {
                state.unwritten.insert(job.clone());
            }
            state.records.insert(job, record);
            // Whoever has waited may be gone.
            let _gone = done.send(Ok(()));
        }
    }

    /// What makes the Secret what it should be; nothing if there is nothing to change.
    fn change(&self, state: &State, adds: &[Add]) -> Option<Change> {
        let room = MAX_RECORDS.saturating_sub(state.records.len() - state.unwritten.len());
        if adds.len() > room {
            tracing::error!(
                secret = self.name,
                "there are too many sessions to keep all: some jobs cannot be ended for their agents"
            );
        }
        let entry =
            |record: &SessionRecord| json!(ByteString(serde_json::to_vec(record).unwrap_or_default()));
        let new = adds.iter().take(room).map(|(job, record, _)| (job.clone(), entry(record)));
        let mut data: serde_json::Map<String, Value> = new.collect();
        let gone: Vec<String> = state.over.keys().filter(|job| !data.contains_key(*job)).cloned().collect();
        data.extend(gone.iter().map(|job| (job.clone(), Value::Null)));
        let version = state.label();
        (!data.is_empty()).then_some(Change { version, gone, data, kept: room })
    }

    async fn refresh(&self) -> Result<(), Error> {
        let api = Api::<Secret>::namespaced(self.cluster.calls.clone(), &self.cluster.namespace);
        let this = ListParams::default().fields(&format!("metadata.name={}", self.name));
        let found = api.list(&this).await.map_err(|error| self.failed(error))?;
        found.iter().for_each(|secret| self.see(secret));
        Ok(())
    }

    fn failed(&self, error: kube::Error) -> Error {
        Error::kubernetes(format!("write down sessions of agents in Secret {}", self.name))(error)
    }
}

/// Those of attempts that have no session yet, and no successor; the others hear so. Whoever waits no longer gets none.
fn refuse_used(state: &State, adds: Vec<Add>) -> Vec<Add> {
    let mut seen = BTreeSet::new();
    let waiting = adds.into_iter().filter(|(_, _, done)| !done.is_closed());
    let (used, new): (Vec<_>, Vec<_>) = waiting.partition(|(job, record, _)| {
        let is_late = |other: &SessionRecord| other.bars(&record.build_job, record.attempt);
        state.records.get(job).is_some_and(is_late) || !seen.insert(job.clone())
    });
    for (_, _, done) in used {
        let _gone = done.send(Err(NotKept::Used));
    }
    new
}

/// Whether a watch that fails like this may succeed later without anybody's help.
fn passes(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => patience::is_passing(error),
        _ => true,
    }
}

/// Tells whoever waits that nothing was written.
fn fail(adds: Vec<Add>, error: &Error) -> bool {
    let error = bk_ops::report::one_line(error);
    tracing::warn!(error, agents = adds.len(), "cannot write down sessions of agents");
    for (_, _, done) in adds {
        let _gone = done.send(Err(NotKept::Failed(Error::Setup(error.clone()))));
    }
    true
}
