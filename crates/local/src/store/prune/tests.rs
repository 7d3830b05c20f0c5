use jiff::SignedDuration;
use rusqlite::Connection;

use super::*;
use crate::build::job::Ending;
use crate::build::{Event, Policy};
use crate::log::Chunk;
use crate::store::{builds, data, jobs, logs, pipelines, schema};

const POLICY: Policy = Policy {
    start_within: SignedDuration::from_mins(1),
    stop_within: SignedDuration::from_mins(1),
    expire_after: SignedDuration::from_hours(1),
};

/// What a build brings rows into.
const TABLES: [&str; 7] = ["builds", "steps", "jobs", "job_events", "logs", "log_chunks", "meta_data"];

fn database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    schema::prepare(&connection).unwrap();
    connection
}

fn pipeline(transaction: &Transaction<'_>, slug: &str) -> pipelines::PipelineRow {
    let pipeline = pipelines::PipelineRow {
        id: Uuid::now_v7(),
        slug: slug.into(),
        name: slug.into(),
        repository: "https://git.local/demo.git".into(),
        configuration: "steps: [{command: x, parallelism: 3}]".into(),
        default_branch: "main".into(),
        created_at: Timestamp::now(),
    };
    pipelines::save(transaction, &pipeline).unwrap();
    pipeline
}

/// A build with some of everything; finished at `end`, if any.
fn build(
    transaction: &Transaction<'_>,
    pipeline: &pipelines::PipelineRow,
    end: Option<Timestamp>,
) -> (i64, Uuid) {
    let now = end.unwrap_or_else(Timestamp::now);
    let row = builds::create(transaction, pipeline, &builds::NewBuild::default(), &POLICY, now).unwrap();
    data::set(transaction, row.id, "key", "value").unwrap();
    for mut job in jobs::of_build(transaction, row.id).unwrap() {
        job.acquire(Uuid::now_v7(), job.id.to_string(), now).unwrap();
        job.start(now).unwrap();
        jobs::save(transaction, row.id, &job, &POLICY).unwrap();
        jobs::add_event(transaction, job.id, now, "notification", "hello").unwrap();
        for sequence in 0..150 {
            let chunk = Chunk { offset: sequence, size: 1, gzip: vec![1; 10] };
            logs::add(transaction, job.id, sequence, &chunk, i64::MAX).unwrap();
        }
        if end.is_some() {
            let event = Event::Finished { job: job.id, ending: Ending::default(), at: now };
            builds::apply(transaction, row.id, &event, &POLICY, now).unwrap();
        }
    }
    (row.number, row.id)
}

/// Removes all that need not be kept. Returns how many transactions that took.
fn prune(connection: &mut Connection, keep: Keep) -> usize {
    let mut parts = 0;
    loop {
        let transaction = connection.transaction().unwrap();
        let Some(build) = next_build(&transaction, keep).unwrap() else { return parts };
        let before = transaction.total_changes();
        remove_some(&transaction, build).unwrap();
        let changes = transaction.total_changes() - before;
        assert!(changes < 500, "{changes} rows at once");
        transaction.commit().unwrap();
        parts += 1;
    }
}

fn numbers(connection: &Connection, pipeline: Uuid) -> Vec<i64> {
    let mut statement =
        connection.prepare("SELECT number FROM builds WHERE pipeline = ?1 ORDER BY number").unwrap();
    statement.query_map([pipeline.to_string()], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_newest_finished_builds_of_each_pipeline_stay() {
    let mut connection = database();
    let now = Timestamp::now();
    let transaction = connection.transaction().unwrap();
    let (one, other) = (pipeline(&transaction, "one"), pipeline(&transaction, "other"));
    for end in [None, Some(now), Some(now), None, Some(now), Some(now)] {
        build(&transaction, &one, end);
    }
    build(&transaction, &other, Some(now));
    transaction.commit().unwrap();
    assert_eq!(prune(&mut connection, Keep { builds: None, since: None }), 0);
    assert!(prune(&mut connection, Keep { builds: Some(2), since: None }) > 4, "in small parts");
    assert_eq!(numbers(&connection, one.id), [1, 4, 5, 6], "what runs stays, however old");
    assert_eq!(numbers(&connection, other.id), [1]);
    prune(&mut connection, Keep { builds: Some(0), since: None });
    assert_eq!(numbers(&connection, one.id), [1, 4]);
}

#[test]
fn old_builds_go_with_all_that_belongs_to_them_and_their_space_is_used_again() {
    let mut connection = database();
    let transaction = connection.transaction().unwrap();
    let now = Timestamp::now();
    let pipeline = pipeline(&transaction, "one");
    build(&transaction, &pipeline, Some(now - SignedDuration::from_hours(30)));
    build(&transaction, &pipeline, Some(now - SignedDuration::from_hours(10)));
    transaction.commit().unwrap();
    let count = |connection: &Connection, what: &str| -> i64 {
        connection.query_row(&format!("SELECT COUNT(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    };
    let before = TABLES.map(|table| count(&connection, table));
    let day = now - SignedDuration::from_hours(24);
    prune(&mut connection, Keep { builds: None, since: Some(day) });
    assert_eq!(numbers(&connection, pipeline.id), [2]);
    assert_eq!(TABLES.map(|table| count(&connection, table)), before.map(|rows| rows / 2));
    assert_eq!(count(&connection, "pragma_foreign_key_check"), 0);
    let pages = |connection: &Connection| -> i64 {
        connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    };
    let size = pages(&connection);
    let transaction = connection.transaction().unwrap();
    build(&transaction, &pipeline, Some(now));
    transaction.commit().unwrap();
    let grown = pages(&connection) - size;
    assert!(grown * 10 < size, "{grown} pages more than {size}: a new build fits where the old one was");
}

#[test]
fn a_build_that_another_started_stays_as_long_as_it() {
    let mut connection = database();
    let transaction = connection.transaction().unwrap();
    let (outer, inner) = (pipeline(&transaction, "outer"), pipeline(&transaction, "inner"));
    let (_, parent) = build(&transaction, &outer, None);
    let (_, child) = build(&transaction, &inner, Some(Timestamp::now()));
    let sql = "UPDATE jobs SET child = ?2 WHERE build = ?1";
    transaction.execute(sql, [parent.to_string(), child.to_string()]).unwrap();
    transaction.commit().unwrap();
    let nothing = Keep { builds: Some(0), since: None };
    assert_eq!(prune(&mut connection, nothing), 0);
    connection.execute("UPDATE builds SET finished_at = 1", []).unwrap();
    prune(&mut connection, nothing);
    assert_eq!((numbers(&connection, outer.id).len(), numbers(&connection, inner.id).len()), (0, 0));
}

#[test]
fn who_left_long_ago_is_forgotten_unless_a_job_tells_of_it() {
    let mut connection = database();
    let transaction = connection.transaction().unwrap();
    let now = Timestamp::now();
    let pipeline = pipeline(&transaction, "one");
    let (_, build) = build(&transaction, &pipeline, Some(now));
    let known = jobs::of_build(&transaction, build).unwrap()[0].agent.unwrap();
    let old = millis(now - SignedDuration::from_hours(48));
    for (id, state, seen) in [
        (known, "disconnected", old),
        (Uuid::now_v7(), "lost", old),
        (Uuid::now_v7(), "connected", old),
        (Uuid::now_v7(), "disconnected", millis(now)),
    ] {
        let sql = "INSERT INTO agents (id, name, access_token, hostname, version, tags, queue, ignored, state, created_at, last_seen)
                   VALUES (?1, ?1, ?1, '', '', '[]', 'default', 0, ?2, 0, ?3)";
        transaction.execute(sql, (id.to_string(), state, seen)).unwrap();
        let sql = "INSERT INTO stacks (id, key, type, queue, metadata, registered, last_seen) VALUES (?1, ?1, '', '', '{}', ?2, ?3)";
        transaction.execute(sql, (id.to_string(), state == "connected", seen)).unwrap();
    }
    let then = now - SignedDuration::from_hours(24);
    assert_eq!(remove_gone(&transaction, then).unwrap(), 3, "one agent, two stacks");
    assert_eq!(remove_gone(&transaction, then).unwrap(), 0);
}
