//! Tables, and how the database is opened.

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use uuid::Uuid;

use super::{loaded, row};
use crate::problem::Problem;

/// Marks a database as one of this program.
const APPLICATION: i64 = 0x424b_4c4f;

/// Raised with every change to the tables.
const VERSION: i64 = 2;

const TABLES: &str = "
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE keys (name TEXT PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE queues (
    id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, paused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE pipelines (
    id TEXT PRIMARY KEY, slug TEXT NOT NULL UNIQUE, name TEXT NOT NULL, repository TEXT NOT NULL,
    configuration TEXT NOT NULL, default_branch TEXT NOT NULL, builds INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE builds (
    id TEXT PRIMARY KEY, pipeline TEXT NOT NULL REFERENCES pipelines(id) ON DELETE CASCADE,
    number INTEGER NOT NULL, state TEXT NOT NULL, cancel_requested INTEGER NOT NULL DEFAULT 0,
    branch TEXT NOT NULL, commit_sha TEXT NOT NULL, message TEXT NOT NULL, source TEXT NOT NULL, author TEXT,
    tag TEXT, pull_request TEXT, triggered_from TEXT, root TEXT, rebuilt_from TEXT,
    pipeline_env TEXT NOT NULL, env TEXT NOT NULL, notify TEXT NOT NULL DEFAULT '[]',
    created_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER,
    UNIQUE (pipeline, number)
) WITHOUT ROWID;
CREATE INDEX builds_root ON builds (root) WHERE root IS NOT NULL;

CREATE TABLE steps (
    id TEXT PRIMARY KEY, build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE,
    position INTEGER NOT NULL, step_group TEXT, uploader TEXT, key TEXT, definition TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX steps_of_build ON steps (build, position);

CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE, step TEXT NOT NULL REFERENCES steps(id),
    kind TEXT NOT NULL, state TEXT NOT NULL, priority INTEGER NOT NULL, queue TEXT NOT NULL, rules TEXT NOT NULL,
    parallel_index INTEGER, parallel_count INTEGER,
    matrix TEXT, concurrency_group TEXT, concurrency TEXT, child TEXT, retry_count INTEGER NOT NULL, rule_uses TEXT NOT NULL,
    retried_in TEXT, timeout_in_minutes INTEGER, exit_status INTEGER, signal TEXT, signal_reason TEXT,
    soft_failed INTEGER NOT NULL, stack TEXT, reserved_until INTEGER, agent TEXT, token TEXT,
    created_at INTEGER NOT NULL, scheduled_at INTEGER NOT NULL, runnable_at INTEGER, assigned_at INTEGER,
    accepted_at INTEGER, started_at INTEGER, stopping_at INTEGER, stop_by INTEGER, promised_exit INTEGER,
    finished_at INTEGER, deadline INTEGER
);
CREATE INDEX jobs_of_build ON jobs (build);
CREATE INDEX jobs_of_step ON jobs (step);
CREATE INDEX jobs_child ON jobs (child) WHERE child IS NOT NULL;
CREATE INDEX jobs_scheduled ON jobs (queue, scheduled_at, seq) WHERE state = 'scheduled';
CREATE INDEX jobs_dispatch ON jobs (queue, rules, priority DESC, scheduled_at, seq) WHERE state = 'scheduled';
CREATE INDEX jobs_unfinished ON jobs (queue, state) WHERE finished_at IS NULL AND kind = 'script';
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX jobs_concurrency ON jobs (concurrency_group, scheduled_at, seq) WHERE concurrency_group IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_token ON jobs (token) WHERE token IS NOT NULL;
CREATE INDEX jobs_agent ON jobs (agent) WHERE agent IS NOT NULL;

CREATE TABLE job_events (
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    at INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX events_of_job ON job_events (job);

CREATE TABLE agents (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, access_token TEXT NOT NULL UNIQUE, hostname TEXT NOT NULL,
    version TEXT NOT NULL, tags TEXT NOT NULL, queue TEXT NOT NULL, ignored INTEGER NOT NULL,
    state TEXT NOT NULL, stopping INTEGER NOT NULL DEFAULT 0, paused_until INTEGER,
    pause_note TEXT NOT NULL DEFAULT '', lost_at INTEGER, created_at INTEGER NOT NULL, last_seen INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX agents_lost ON agents (lost_at) WHERE lost_at IS NOT NULL;

CREATE TABLE stacks (
    id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, type TEXT NOT NULL, queue TEXT NOT NULL,
    metadata TEXT NOT NULL, registered INTEGER NOT NULL, last_seen INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE logs (
    job TEXT PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE, length INTEGER NOT NULL, stored INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE log_chunks (
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL, gzip BLOB NOT NULL,
    UNIQUE (job, sequence)
);
CREATE INDEX log_chunks_by_offset ON log_chunks (job, offset, size DESC);

CREATE TABLE meta_data (
    build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (build, key)
) WITHOUT ROWID;

CREATE TABLE annotations (
    build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE, scope TEXT NOT NULL, job TEXT NOT NULL,
    context TEXT NOT NULL, style TEXT NOT NULL, priority INTEGER NOT NULL, body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (build, scope, job, context)
) WITHOUT ROWID;

CREATE TABLE artifacts (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE,
    job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, batch TEXT NOT NULL,
    path TEXT NOT NULL, absolute_path TEXT NOT NULL, glob_path TEXT NOT NULL, file_size INTEGER NOT NULL,
    sha1sum TEXT NOT NULL, sha256sum TEXT NOT NULL, content_type TEXT NOT NULL, url TEXT NOT NULL,
    upload_destination TEXT NOT NULL, parts INTEGER, state TEXT NOT NULL, created_at INTEGER NOT NULL
);
CREATE INDEX artifacts_of_build ON artifacts (build);
CREATE INDEX artifacts_of_batch ON artifacts (job, batch);

CREATE TABLE artifact_parts (
    artifact TEXT NOT NULL REFERENCES artifacts(id) ON DELETE CASCADE, part INTEGER NOT NULL,
    etag TEXT NOT NULL, PRIMARY KEY (artifact, part)
) WITHOUT ROWID;

CREATE TABLE step_updates (
    build TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE, uuid TEXT NOT NULL, PRIMARY KEY (build, uuid)
) WITHOUT ROWID;

CREATE TABLE cache_entries (
    id TEXT PRIMARY KEY, target_paths TEXT NOT NULL, cache_key TEXT NOT NULL, blobs TEXT NOT NULL,
    platform TEXT NOT NULL, committed INTEGER NOT NULL, expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cache_entries_found ON cache_entries (target_paths) WHERE committed;

CREATE TABLE uploads (
    job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, uuid TEXT NOT NULL, PRIMARY KEY (job, uuid)
) WITHOUT ROWID;

CREATE TABLE repositories (key TEXT PRIMARY KEY, path TEXT NOT NULL UNIQUE) WITHOUT ROWID;
";

/// Sets the connection up and creates the tables of a new database.
pub(super) fn prepare(connection: &Connection) -> Result<(), Problem> {
    // One server at a time: what another one writes, this one would not notice. One that is just ending is
    // waited for.
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Nothing has been read yet, so this is where a file shows that it is something else.
    connection.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(|error| {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Problem::Refused(format!(
                "it is no database, or it is damaged ({error}); restore it, or use a new file"
            )),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Problem::Refused("another server uses it; stop that one, or use another file".to_owned())
            }
            _ => error.into(),
        }
    })?;
    let is_new = is_new(connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // With a write-ahead log, a killed process loses nothing that was committed.
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    if is_new {
        connection.execute_batch(&format!(
            "BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        ))?;
    }
    loaded::watch(connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Keeps a name of this server's for the work that is done without a request.
pub(super) fn remember(connection: &Connection, name: &str, value: &str) -> Result<(), Problem> {
    connection.execute("INSERT OR REPLACE INTO identity (name, value) VALUES (?1, ?2)", [name, value])?;
    Ok(())
}

/// The value kept under `name`; empty when there is none.
pub(super) fn remembered(connection: &Connection, name: &str) -> Result<String, Problem> {
    let sql = "SELECT value FROM identity WHERE name = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// Says whether the database is new, and refuses one that this program did not make.
fn is_new(connection: &Connection) -> Result<bool, Problem> {
    let number = |sql: &str| -> Result<i64, Problem> { Ok(connection.query_row(sql, [], |row| row.get(0))?) };
    let tables = number("SELECT COUNT(*) FROM sqlite_master")?;
    match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, other) => Err(Problem::Refused(format!(
            "it has layout {other}, and this program knows {VERSION}; use a new file"
        ))),
        (0, 0) if tables == 0 => Ok(true),
        _ => Err(Problem::Refused("it belongs to another program; use a new file".to_owned())),
    }
}

/// The id kept under `name`; made up when the database is new, and the same ever after.
pub(crate) fn identity(connection: &Connection, name: &str) -> Result<Uuid, Problem> {
    let found: Option<String> = connection
        .query_row("SELECT value FROM identity WHERE name = ?1", [name], |row| row.get(0))
        .optional()?;
    if let Some(text) = found {
        return Uuid::parse_str(&text).map_err(|error| Problem::Corrupt(error.to_string()));
    }
    let id = Uuid::now_v7();
    connection.execute("INSERT INTO identity (name, value) VALUES (?1, ?2)", [name, &id.to_string()])?;
    Ok(id)
}

/// The earliest time at which a job or an agent runs out of time.
pub(super) fn next_deadline(connection: &Connection) -> Result<Option<Timestamp>, Problem> {
    let earliest = |sql: &str| -> Result<Option<i64>, Problem> {
        Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    };
    let job = earliest("SELECT MIN(deadline) FROM jobs WHERE deadline IS NOT NULL")?;
    let agent = earliest("SELECT MIN(lost_at) FROM agents WHERE lost_at IS NOT NULL")?;
    Ok([job, agent].into_iter().flatten().min().map(row::time))
}
