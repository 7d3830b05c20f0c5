//! The sessions of agents that have registered, in Secrets of the operator's namespace.
//!
//! A session is on record before its agent hears of it: whatever becomes of the operator afterwards, the job can be ended. Those that come together
//! are written together, a few times in a second at the most. What is over is taken out with the next write, or after a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_api::names;
use bk_plan::broker::session::{MAX_RECORDS, SHARDS, SessionRecord, secret_name, shard};
use futures::StreamExt;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    settings::{Cluster, watch_one},
};

/// How long after a write the next one may follow.
const PACE: Duration = Duration::from_millis(200);

/// How long what is over may stay on record.
const LINGER: Duration = Duration::from_mins(1);

/// How long the first look at what is on record may take. Without it, much is taken for lost that can be spoken for.
const FIRST_LOOK: Duration = Duration::from_secs(20);

/// How often a write is tried that others overtake.
const TRIES: usize = 5;

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
    /// What is over, and still on record.
    over: BTreeSet<String>,
}

/// A session that is to be on record, whose, and who waits for it.
type Add = (String, SessionRecord, oneshot::Sender<Result<(), NotKept>>);

enum Order {
    Add(Box<Add>),
    Remove,
}

impl Sessions {
    /// Keeps sessions in Secrets called after `broker`, until the shutdown.
    pub(crate) fn start(cluster: &Cluster, broker: &str, shutdown: &CancellationToken) -> Self {
        let mut writers = Vec::new();
        let shelves = (0..SHARDS).map(|number| {
            let (orders, receiver) = mpsc::unbounded_channel();
            writers.push((secret_name(broker, number), receiver));
            Shelf { state: Mutex::default(), known: watch::Sender::new(false), orders }
        });
        let sessions = Self { shelves: shelves.collect(), patience: Instant::now() + FIRST_LOOK };
        for (number, (name, orders)) in writers.into_iter().enumerate() {
            let clerk = Clerk { cluster: cluster.clone(), name, sessions: sessions.clone(), number };
            let watching = clerk.clone().watch();
            tokio::spawn(shutdown.clone().run_until_cancelled_owned(watching));
            tokio::spawn(shutdown.clone().run_until_cancelled_owned(clerk.write(orders)));
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
            state.over.insert(job.to_owned());
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

fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

impl State {
    /// Takes down that a write based on what is known was done, and what it has taken out.
    fn wrote(&mut self, written: &ObjectMeta, gone: &[String]) {
        if let Some(version) = version(written).filter(|version| *version > self.version) {
            self.version = version;
            for job in gone {
                self.over.remove(job);
            }
        }
    }

    /// Takes over what a Secret holds, unless a younger version is known.
    fn see(&mut self, secret: &Secret) {
        let Some(version) = version(&secret.metadata).filter(|version| *version > self.version) else {
            return;
        };
        self.version = version;
        let held = secret.data.iter().flatten();
        let read = |(job, bytes): (&String, &ByteString)| {
            Some((job.clone(), serde_json::from_slice(&bytes.0).ok()?))
        };
        let mut held: BTreeMap<String, SessionRecord> = held.filter_map(read).collect();
        self.over.retain(|job| held.remove(job).is_some());
        self.records = held;
    }
}

/// A write to a Secret.
struct Change {
    /// The version that it is based on, if any is known.
    version: Option<String>,
    /// What is taken out.
    gone: Vec<String>,
    /// What is put in, and nothing in the place of what is taken out.
    data: serde_json::Map<String, Value>,
}

/// Reads and writes one of the Secrets.
#[derive(Clone)]
struct Clerk {
    cluster: Cluster,
    name: String,
    sessions: Sessions,
    number: usize,
}

impl Clerk {
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

    /// Follows what other replicas write.
    async fn watch(self) {
        let api = Api::<Secret>::namespaced(self.cluster.streams.clone(), &self.cluster.namespace);
        let mut versions = std::pin::pin!(watch_one(api, &self.name));
        while let Some(version) = versions.next().await {
            match version {
                Ok(Some(secret)) => self.see(&secret),
                Ok(None) => {
                    self.shelf().known.send_replace(true);
                    tracing::error!(
                        secret = self.name,
                        "agents cannot register: there is no Secret for their sessions"
                    );
                }
                Err(error) => {
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(secret = self.name, error, "cannot watch sessions of agents");
                }
            }
        }
    }

    async fn write(self, mut orders: mpsc::UnboundedReceiver<Order>) {
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
                Some(Order::Remove) => {
                    due.get_or_insert_with(|| Instant::now() + LINGER);
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
            adds = self.refuse_used(adds);
            self.take_back(&adds);
            let Some(Change { version, gone, data }) = self.change(&adds) else {
                self.keep(adds);
                return false;
            };
            let patch = json!({ "metadata": { "resourceVersion": version }, "data": data });
            let api = Api::<Secret>::namespaced(self.cluster.calls.clone(), &self.cluster.namespace);
            let params = PatchParams {
                field_manager: Some(names::FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            // What is in it then is known: only its version is asked for.
            match api.patch_metadata(&self.name, &params, &Patch::Merge(&patch)).await {
                Ok(written) => {
                    self.state().wrote(&written.metadata, &gone);
                    self.keep(adds);
                    return false;
                }
                // Another replica was quicker.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    if let Err(error) = self.refresh().await {
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
        self.keep(kept);
        fail(lost, error)
    }

    /// What is to be on record is not over any more.
    fn take_back(&self, adds: &[Add]) {
        let mut state = self.state();
        for (job, ..) in adds {
            state.over.remove(job);
        }
    }

    /// Those whose attempt has no session yet; the others hear so.
    fn refuse_used(&self, adds: Vec<Add>) -> Vec<Add> {
        let state = self.state();
        let mut seen = BTreeSet::new();
        let (used, new): (Vec<_>, Vec<_>) = adds.into_iter().partition(|(job, record, _)| {
            let same = |other: &SessionRecord| other.is_of(&record.build_job, record.attempt);
            state.records.get(job).is_some_and(same) || !seen.insert(job.clone())
        });
        for (_, _, done) in used {
            let _gone = done.send(Err(NotKept::Used));
        }
        new
    }

    /// Tells whoever waits that the session is kept. Those that there was no room for are known to this process alone.
    fn keep(&self, adds: Vec<Add>) {
        let mut state = self.state();
        for (job, record, done) in adds {
            state.records.insert(job, record);
            // Whoever has waited may be gone.
            let _gone = done.send(Ok(()));
        }
    }

    /// What makes the Secret what it should be; nothing if there is nothing to change.
    fn change(&self, adds: &[Add]) -> Option<Change> {
        let state = self.state();
        let room = MAX_RECORDS.saturating_sub(state.records.len());
        if adds.len() > room {
            tracing::error!(
                secret = self.name,
                "there are too many sessions to keep all: some jobs cannot be ended for their agents"
            );
        }
        let entry =
            |record: &SessionRecord| json!(ByteString(serde_json::to_vec(record).unwrap_or_default()));
        let gone: Vec<String> = state.over.iter().cloned().collect();
        let removed = gone.iter().map(|job| (job.clone(), Value::Null));
        let new = adds.iter().take(room).map(|(job, record, _)| (job.clone(), entry(record)));
        let data: serde_json::Map<String, Value> = removed.chain(new).collect();
        let version = (state.version > 0).then(|| state.version.to_string());
        (!data.is_empty()).then_some(Change { version, gone, data })
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

/// Tells whoever waits that nothing was written.
fn fail(adds: Vec<Add>, error: &Error) -> bool {
    let error = bk_ops::report::one_line(error);
    tracing::warn!(error, agents = adds.len(), "cannot write down sessions of agents");
    for (_, _, done) in adds {
        let _gone = done.send(Err(NotKept::Failed(Error::Setup(error.clone()))));
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::api_server::{ApiServer, refusal};

    const JOB: &str = "0198f0a0-0000-7000-8000-000000000001";

    fn record(agent: &str, attempt: u32) -> SessionRecord {
        SessionRecord {
            build_job: "b".to_owned(),
            name: None,
            namespace: "ci".to_owned(),
            attempt,
            agent: agent.to_owned(),
            token: "t".to_owned(),
            endpoint: None,
            address: None,
        }
    }

    fn held(version: u64, records: &[(&str, SessionRecord)]) -> Value {
        let entry = |(job, record): &(&str, SessionRecord)| {
            ((*job).to_owned(), json!(ByteString(serde_json::to_vec(record).unwrap())))
        };
        let data: serde_json::Map<String, Value> = records.iter().map(entry).collect();
        json!({ "metadata": { "name": "s", "resourceVersion": version.to_string() }, "data": data })
    }

    fn start(server: &ApiServer) -> Sessions {
        Sessions::start(&server.cluster, "broker", &CancellationToken::new())
    }

    #[tokio::test]
    async fn sessions_that_come_together_are_written_together_and_each_once() {
        let server = ApiServer::start(|call, before| match call.method.as_str() {
            "PATCH" => {
                let mut secret = call.body.clone();
                secret["metadata"]["resourceVersion"] = json!((before + 10).to_string());
                (200, secret)
            }
            _ => listed(1, &[]),
        })
        .await;
        let sessions = start(&server);
        // All of one Secret: their last characters add up to the same.
        let jobs = ["a", "b", "c"].map(|first| format!("{first}{}", &JOB[1..]));
        sessions.add(jobs[0].clone(), record("1", 0)).await.unwrap();
        let (one, two, again) = tokio::join!(
            sessions.add(jobs[1].clone(), record("2", 0)),
            sessions.add(jobs[2].clone(), record("3", 0)),
            sessions.add(jobs[0].clone(), record("4", 0)),
        );
        assert!(one.is_ok() && two.is_ok() && matches!(again, Err(NotKept::Used)));
        let writes = server.calls().into_iter().filter(|call| call.method == "PATCH").count();
        assert_eq!(writes, 2);
        sessions.add(jobs[0].clone(), record("5", 1)).await.unwrap();
        assert_eq!(sessions.get(&jobs[0]).unwrap().agent, "5", "another attempt takes its place");
        sessions.remove(&jobs[0], "another");
        assert!(sessions.get(&jobs[0]).is_some(), "of another BuildJob");
        sessions.remove(&jobs[0], "b");
        assert!(sessions.get(&jobs[0]).is_none());
        sessions.add(jobs[0].clone(), record("6", 2)).await.unwrap();
        let last = server.calls().into_iter().rfind(|call| call.method == "PATCH").unwrap();
        assert!(last.body["data"][&jobs[0]].is_string(), "it is not over any more: {}", last.body);
        assert_eq!(sessions.get(&jobs[0]).unwrap().agent, "6");
    }

    /// What the API server has, in a list.
    fn listed(version: u64, records: &[(&str, SessionRecord)]) -> (u16, Value) {
        let metadata = json!({ "resourceVersion": version.to_string() });
        (200, json!({ "metadata": metadata, "items": [held(version, records)] }))
    }

    /// The API server has done it, and the answer was lost.
    #[tokio::test]
    async fn a_session_that_is_on_record_is_kept_whatever_was_answered() {
        let written = AtomicBool::new(false);
        let server = ApiServer::start(move |call, _| match call.method.as_str() {
            "PATCH" => {
                written.store(true, Ordering::Relaxed);
                refusal(500, "InternalError")
            }
            _ if !written.load(Ordering::Relaxed) => listed(6, &[]),
            _ => listed(7, &[(JOB, record("mine", 0))]),
        })
        .await;
        let sessions = start(&server);
        sessions.add(JOB.to_owned(), record("mine", 0)).await.unwrap();
        assert_eq!(sessions.get(JOB).unwrap().agent, "mine");
    }

    #[tokio::test]
    async fn of_two_replicas_only_one_registers_an_attempt() {
        let server = ApiServer::start(|call, _| match call.method.as_str() {
            "PATCH" => refusal(409, "Conflict"),
            _ => listed(7, &[(JOB, record("other", 0))]),
        })
        .await;
        let sessions = start(&server);
        assert!(matches!(sessions.add(JOB.to_owned(), record("mine", 0)).await, Err(NotKept::Used)));
        assert_eq!(sessions.get(JOB).unwrap().agent, "other");
    }

    #[tokio::test]
    async fn what_cannot_be_written_down_is_not_kept() {
        let server = ApiServer::start(|_, _| refusal(403, "Forbidden")).await;
        let sessions = start(&server);
        assert!(matches!(sessions.add(JOB.to_owned(), record("mine", 0)).await, Err(NotKept::Failed(_))));
        assert!(sessions.get(JOB).is_none());
    }

    #[test]
    fn an_older_version_changes_nothing() {
        let secret =
            |version, records: &[_]| serde_json::from_value::<Secret>(held(version, records)).unwrap();
        let mut state = State::default();
        state.see(&secret(7, &[(JOB, record("new", 1))]));
        state.see(&secret(6, &[(JOB, record("old", 0))]));
        assert_eq!(state.records[JOB].agent, "new");
        state.over.insert(JOB.to_owned());
        state.see(&secret(8, &[(JOB, record("new", 1))]));
        assert!(state.records.is_empty() && state.over.contains(JOB), "it is over, and still on record");
        state.see(&secret(9, &[]));
        assert!(state.over.is_empty());
    }
}
