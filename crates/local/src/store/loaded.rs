//! Builds that were loaded, kept for the next event: a build of thousands of jobs has thousands of events.
//!
//! The rows are the truth. Whoever writes to the tables, by whatever statement, triggers a note here of what
//! has to be read again; a transaction that fails drops everything. Each database has its own thread, so this
//! is the thread's own.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Null;
use uuid::Uuid;

use crate::build::{Job, Steps};
use crate::problem::Problem;

/// The most jobs that are kept, some ten megabytes.
const MAX_JOBS: usize = 20_000;

/// Notes for the connection's life time only: the file itself knows nothing of it.
const TRIGGERS: &str = "
CREATE TEMP TRIGGER job_changed AFTER UPDATE ON main.jobs BEGIN SELECT job_changed(NEW.build, NEW.id); END;
CREATE TEMP TRIGGER job_added AFTER INSERT ON main.jobs BEGIN SELECT build_changed(NEW.build); END;
CREATE TEMP TRIGGER job_removed AFTER DELETE ON main.jobs BEGIN SELECT build_changed(OLD.build); END;
CREATE TEMP TRIGGER step_changed AFTER UPDATE ON main.steps BEGIN SELECT build_changed(NEW.build); END;
CREATE TEMP TRIGGER step_added AFTER INSERT ON main.steps BEGIN SELECT build_changed(NEW.build); END;
CREATE TEMP TRIGGER step_removed AFTER DELETE ON main.steps BEGIN SELECT build_changed(OLD.build); END;
";

/// The steps and jobs of a build.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) steps: Steps,
    pub(super) jobs: Vec<Job>,
}

/// What [`take`] found, and what [`keep`] wants back.
#[derive(Debug)]
pub(super) struct Taken {
    ticket: u64,
    /// The build as it was kept, with the jobs that must be read again.
    pub(super) found: Option<(Parts, HashSet<Uuid>)>,
}

#[derive(Default)]
struct Loaded {
    builds: HashMap<Uuid, Entry>,
    tickets: u64,
}

struct Entry {
    ticket: u64,
    /// Absent while somebody has it.
    parts: Option<Parts>,
    /// The jobs that were written since it was taken.
    stale: HashSet<Uuid>,
}

thread_local! {
    static LOADED: RefCell<Loaded> = RefCell::default();
}

/// Sets up the notes on a connection.
pub(super) fn watch(connection: &Connection) -> Result<(), Problem> {
    let id = |text: String| Uuid::parse_str(&text).unwrap_or_default();
    connection.create_scalar_function("job_changed", 2, FunctionFlags::SQLITE_UTF8, move |context| {
        let (build, job) = (id(context.get(0)?), id(context.get(1)?));
        LOADED.with_borrow_mut(|loaded| {
            if let Some(entry) = loaded.builds.get_mut(&build) {
                entry.stale.insert(job);
            }
        });
        Ok(Null)
    })?;
    connection.create_scalar_function("build_changed", 1, FunctionFlags::SQLITE_UTF8, move |context| {
        let build = id(context.get(0)?);
        LOADED.with_borrow_mut(|loaded| loaded.builds.remove(&build));
        Ok(Null)
    })?;
    connection.execute_batch(TRIGGERS)?;
    Ok(())
}

/// Takes a build out, if it is there. From now on, what is written to it is noted for [`keep`].
pub(super) fn take(build: Uuid) -> Taken {
    LOADED.with_borrow_mut(|loaded| {
        loaded.tickets += 1;
        let ticket = loaded.tickets;
        let entry = Entry { ticket, parts: None, stale: HashSet::new() };
        let found = loaded.builds.insert(build, entry);
        Taken { ticket, found: found.and_then(|entry| Some((entry.parts?, entry.stale))) }
    })
}

/// Puts a build back as it was left by whoever took it; unless somebody else took it since, or the rows
/// changed in ways that must be read anew.
pub(super) fn keep(build: Uuid, taken: &Taken, parts: Parts) {
    LOADED.with_borrow_mut(|loaded| {
        if let Some(entry) = loaded.builds.get_mut(&build).filter(|entry| entry.ticket == taken.ticket) {
            entry.parts = Some(parts);
        }
        let jobs = |entry: &Entry| entry.parts.as_ref().map_or(0, |parts| parts.jobs.len());
        while loaded.builds.values().map(jobs).sum::<usize>() > MAX_JOBS {
            // The one that has not been taken for longest.
            let oldest = loaded.builds.iter().min_by_key(|(_, entry)| entry.ticket).map(|(id, _)| *id);
            oldest.and_then(|id| loaded.builds.remove(&id));
        }
    });
}

/// Forgets everything: what was noted may have been rolled back.
pub(super) fn clear() {
    LOADED.with_borrow_mut(|loaded| loaded.builds.clear());
}

#[cfg(test)]
mod tests;
