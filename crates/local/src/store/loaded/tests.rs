use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rusqlite::Transaction;

use super::*;
use crate::build::job::Ending;
use crate::build::{Event, Policy};
use crate::store::{builds, jobs, pipelines, schema};

const POLICY: Policy = Policy {
    start_within: SignedDuration::from_mins(1),
    stop_within: SignedDuration::from_mins(1),
    expire_after: SignedDuration::from_hours(1),
};

const PIPELINE: &str = "
steps:
  - {key: a, command: x, parallelism: 3, retry: {automatic: [{exit_status: 7, limit: 2}]}}
  - wait
  - {key: b, command: x, soft_fail: true}
  - {key: c, command: x, depends_on: a, allow_dependency_failure: true}
";

/// A database with one build.
fn database() -> (Connection, Uuid) {
    let mut connection = Connection::open_in_memory().unwrap();
    schema::prepare(&connection).unwrap();
    let transaction = connection.transaction().unwrap();
    let now = Timestamp::now();
    let pipeline = pipelines::PipelineRow {
        id: Uuid::now_v7(),
        slug: "demo".into(),
        name: "demo".into(),
        repository: "https://git.local/demo.git".into(),
        configuration: PIPELINE.into(),
        default_branch: "main".into(),
        created_at: now,
    };
    pipelines::save(&transaction, &pipeline).unwrap();
    let new = builds::NewBuild::default();
    let build = builds::create(&transaction, &pipeline, &new, &POLICY, now).unwrap().id;
    transaction.commit().unwrap();
    (connection, build)
}

/// Something that happens to a build, by whatever way.
#[derive(Debug, Clone)]
enum Happening {
    Started(prop::sample::Index),
    Finished(prop::sample::Index, i64),
    Canceled(prop::sample::Index),
    Retried(prop::sample::Index),
    WrittenDirectly(prop::sample::Index, i64),
    Removed(prop::sample::Index),
    StepMoved,
    Read,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{Canceled, Finished, Read, Removed, Retried, Started, StepMoved, WrittenDirectly};
    let job = any::<prop::sample::Index>;
    prop_oneof![
        6 => job().prop_map(Started),
        6 => (job(), prop::sample::select(vec![0, 1, 7])).prop_map(|(job, exit)| Finished(job, exit)),
        1 => job().prop_map(Canceled),
        2 => job().prop_map(Retried),
        1 => (job(), 0i64..9).prop_map(|(job, priority)| WrittenDirectly(job, priority)),
        1 => job().prop_map(Removed),
        1 => Just(StepMoved),
        2 => Just(Read),
    ]
}

fn happen(transaction: &Transaction<'_>, build: Uuid, what: &Happening) -> Result<(), Problem> {
    let now = Timestamp::now();
    let all = jobs::of_build(transaction, build)?;
    let apply = |event| builds::apply(transaction, build, &event, &POLICY, now);
    match what {
        Happening::Started(job) => {
            let mut job = job.get(&all).clone();
            job.acquire(Uuid::now_v7(), "token".into(), now)?;
            job.start(now)?;
            jobs::save(transaction, build, &job, &POLICY)
        }
        Happening::Finished(job, exit_status) => {
            let ending = Ending { exit_status: *exit_status, ..Ending::default() };
            apply(Event::Finished { job: job.get(&all).id, ending, at: now })
        }
        Happening::Canceled(job) => apply(Event::CancelJob { job: job.get(&all).id }),
        Happening::Retried(job) => apply(Event::Retry { job: job.get(&all).id }),
        Happening::WrittenDirectly(job, priority) => {
            let sql = "UPDATE jobs SET priority = ?2 WHERE id = ?1";
            transaction.execute(sql, (job.get(&all).id.to_string(), priority))?;
            Ok(())
        }
        Happening::Removed(job) => {
            transaction.execute("DELETE FROM jobs WHERE id = ?1", [job.get(&all).id.to_string()])?;
            Ok(())
        }
        Happening::StepMoved => {
            transaction.execute("UPDATE steps SET position = 3 - position", [])?;
            Ok(())
        }
        Happening::Read => builds::load(transaction, &builds::get(transaction, build)?).map(drop),
    }
}

fn shown(transaction: &Transaction<'_>, build: Uuid) -> String {
    let row = builds::get(transaction, build).unwrap();
    format!("{:#?}", builds::load(transaction, &row).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever was written and by whom, kept or rolled back: what was loaded is what the rows hold.
    #[test]
    fn what_is_kept_is_what_the_rows_hold(
        happenings in prop::collection::vec((happening(), prop::bool::weighted(0.15)), 1..40),
    ) {
        let (mut connection, build) = database();
        for (what, rolled_back) in &happenings {
            let transaction = connection.transaction().unwrap();
            let jobs: i64 = transaction.query_row("SELECT COUNT(*) FROM jobs", [], |row| row.get(0)).unwrap();
            prop_assume!(jobs > 1);
            if happen(&transaction, build, what).is_err() || *rolled_back {
                // As the store does.
                transaction.rollback().unwrap();
                clear();
            } else {
                transaction.commit().unwrap();
            }
            let transaction = connection.transaction().unwrap();
            let kept = shown(&transaction, build);
            clear();
            prop_assert_eq!(kept, shown(&transaction, build));
        }
    }
}

#[test]
fn a_build_is_kept_for_the_next_event() {
    let (mut connection, build) = database();
    let transaction = connection.transaction().unwrap();
    shown(&transaction, build);
    assert!(take(build).found.is_some(), "kept after it was loaded");
    assert!(take(build).found.is_none(), "somebody has it");
}

#[test]
fn who_took_it_first_cannot_put_it_back_over_a_later_one() {
    let build = Uuid::now_v7();
    let first = take(build);
    let second = take(build);
    let parts = || Parts { steps: Steps::default(), jobs: Vec::new() };
    keep(build, &second, parts());
    assert!(take(build).found.is_some());
    keep(build, &first, parts());
    assert!(take(build).found.is_none());
}
