//! The database: one thread owns the connection, every request is one transaction.
//!
//! What was answered with success is committed. Reads go the same way, so each sees a state between two
//! changes and never half of one.

pub(crate) mod agents;
pub(crate) mod artifacts;
pub(crate) mod builds;
pub(crate) mod cache;
pub(crate) mod data;
pub(crate) mod dispatch;
pub(crate) mod facts;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod listing;
mod loaded;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod pipelines;
pub(crate) mod prune;
pub(crate) mod repositories;
mod row;
mod schema;
pub(crate) mod stacks;
pub(crate) mod steps;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use jiff::Timestamp;
use rusqlite::{Connection, Transaction};
use tokio::sync::{oneshot, watch};

use crate::problem::Problem;

thread_local! {
    /// The rows that the present transaction changed without anybody having to be told.
    static QUIET: Cell<u64> = const { Cell::new(0) };
}

/// Notes that so many of the rows that were changed show nothing new to anybody: signs of life, above all. There
/// are many of them, and every page would ask for its view again.
fn quietly(rows: usize) {
    QUIET.set(QUIET.get() + rows as u64);
}

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

/// A handle to the database thread; clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    work: mpsc::Sender<Work>,
    deadline: watch::Receiver<Option<Timestamp>>,
    revision: watch::Sender<u64>,
}

impl Store {
    /// Opens the database file, or one in memory, and starts its thread.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Problem> {
        let connection = match path {
            Some(path) => Connection::open(path)?,
            None => Connection::open_in_memory()?,
        };
        schema::prepare(&connection)?;
        let (work, inbox) = mpsc::channel::<Work>();
        let (deadline_changed, deadline) = watch::channel(schema::next_deadline(&connection)?);
        thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || serve(connection, &inbox, &deadline_changed))
            .map_err(|error| Problem::Refused(format!("cannot start the database thread: {error}")))?;
        Ok(Self { work, deadline, revision: watch::Sender::new(0) })
    }

    /// Runs `with` in a transaction that is committed when it succeeds and rolled back when it fails.
    pub(crate) async fn transact<T, F>(&self, with: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Problem> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let revision = self.revision.clone();
        let work: Work = Box::new(move |connection| {
            let before = connection.total_changes();
            QUIET.set(0);
            let result = connection.transaction().map_err(Problem::from).and_then(|transaction| {
                let value = with(&transaction)?;
                transaction.commit()?;
                Ok(value)
            });
            let changes = connection.total_changes() - before;
            match &result {
                Err(_) if changes > 0 => loaded::clear(),
                Ok(_) if changes > QUIET.get() => revision.send_modify(|revision| *revision += 1),
                _ => {}
            }
            // The caller may have gone away; the change stands all the same.
            let _gone = answer.send(result);
        });
        self.work.send(work).map_err(|_| Problem::Stopping)?;
        answered.await.map_err(|_| Problem::Broken)?
    }

    /// The next time at which the server must act by itself; changes as jobs and agents do.
    pub(crate) fn deadline(&self) -> watch::Receiver<Option<Timestamp>> {
        self.deadline.clone()
    }

    /// A number that grows with every transaction that changed something to see, before its caller is answered.
    /// Whoever shows the state follows it; several changes may be seen as one.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }
}

fn serve(
    mut connection: Connection,
    inbox: &mpsc::Receiver<Work>,
    deadline_changed: &watch::Sender<Option<Timestamp>>,
) {
    while let Ok(work) = inbox.recv() {
        let before = connection.total_changes();
        // One request that goes wrong must not take the others with it. Its transaction is rolled back as it
        // is dropped, so nothing is left half-done.
        if catch_unwind(AssertUnwindSafe(|| work(&mut connection))).is_err() {
            loaded::clear();
            tracing::error!("a request broke off; its changes were rolled back");
        }
        if connection.total_changes() == before {
            continue;
        }
        match schema::next_deadline(&connection) {
            Ok(next) => {
                deadline_changed.send_if_modified(|current| std::mem::replace(current, next) != next);
            }
            Err(error) => tracing::error!(%error, "cannot read the next deadline"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_breaks_off_leaves_nothing_and_harms_nobody() {
        let store = Store::open(None).unwrap();
        let broken = store
            .transact(|transaction| -> Result<(), Problem> {
                pipelines::create_queue(transaction, "half-done")?;
                panic!("as a bug would")
            })
            .await;
        assert!(matches!(broken, Err(Problem::Broken)), "{broken:?}");
        let queues: i64 = store
            .transact(|transaction| {
                let count = "SELECT count(*) FROM queues WHERE key = 'half-done'";
                Ok(transaction.query_row(count, [], |row| row.get(0))?)
            })
            .await
            .unwrap();
        assert_eq!(queues, 0);
    }

    #[tokio::test]
    async fn a_database_has_one_server_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let store = Store::open(Some(&path)).unwrap();
        store.transact(|transaction| pipelines::create_queue(transaction, "one")).await.unwrap();
        let second = Store::open(Some(&path)).map(|_| ()).unwrap_err();
        assert!(second.to_string().contains("another server"), "{second}");
    }

    #[tokio::test]
    async fn changes_are_noticed_and_reads_and_failures_are_not() {
        let store = Store::open(None).unwrap();
        let mut changes = store.changes();
        let create =
            |key: &'static str| store.transact(move |transaction| pipelines::create_queue(transaction, key));
        create("one").await.unwrap();
        assert!(changes.has_changed().unwrap());
        assert_eq!(*changes.borrow_and_update(), 1);
        create("one").await.unwrap();
        store.transact(|transaction| pipelines::queue(transaction, "one")).await.unwrap();
        let failed = store.transact(|transaction| -> Result<(), Problem> {
            pipelines::create_queue(transaction, "two")?;
            Err(Problem::Stopping)
        });
        failed.await.unwrap_err();
        assert!(!changes.has_changed().unwrap());
        create("two").await.unwrap();
        assert_eq!(*changes.borrow_and_update(), 2);
    }
}
