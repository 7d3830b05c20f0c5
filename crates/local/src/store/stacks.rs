//! Stacks as rows, and what they list.

use std::collections::BTreeMap;

use bk_buildkite::stacks::{BuildRef, PipelineRef, ScheduledJob, StepRef};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, Transaction};
use uuid::Uuid;

use super::quietly;
use super::row::{Columns, json, millis};
use crate::build::JobState;
use crate::build::job::may_reserve;
use crate::problem::Problem;

/// A stack.
#[derive(Debug, Clone)]
pub(crate) struct StackRow {
    pub(crate) id: Uuid,
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// It has registered and has not left.
    pub(crate) registered: bool,
    /// When it registered or listed jobs.
    pub(crate) last_seen: Timestamp,
}

/// A stack that has not listed jobs for so long is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// For so long a sign of life need not be written down again.
const FRESH: SignedDuration = SignedDuration::from_secs(5);

impl StackRow {
    /// `connected`, `disconnected` or `lost`.
    pub(crate) fn state(&self, now: Timestamp) -> &'static str {
        match () {
            () if !self.registered => "disconnected",
            () if now.duration_since(self.last_seen) > LOST_AFTER => "lost",
            () => "connected",
        }
    }
}

/// A stack from its row.
pub(super) fn read(row: &Row<'_>) -> Result<StackRow, Problem> {
    Ok(StackRow {
        id: row.id("id")?,
        key: row.column("key")?,
        kind: row.column("type")?,
        queue: row.column("queue")?,
        metadata: row.json("metadata")?,
        registered: row.column("registered")?,
        last_seen: row.at("last_seen")?,
    })
}

/// The stack with this key, connected or not.
pub(crate) fn get(transaction: &Transaction<'_>, key: &str) -> Result<Option<StackRow>, Problem> {
    transaction
        .prepare_cached("SELECT * FROM stacks WHERE key = ?1")?
        .query_row([key], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

/// Writes a stack, new or changed.
pub(crate) fn save(transaction: &Transaction<'_>, stack: &StackRow) -> Result<(), Problem> {
    transaction
        .prepare_cached(
            "INSERT INTO stacks (id, key, type, queue, metadata, registered, last_seen) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (key) DO UPDATE SET type = ?3, queue = ?4, metadata = ?5, registered = ?6, last_seen = ?7",
        )?
        .execute((
            stack.id.to_string(),
            &stack.key,
            &stack.kind,
            &stack.queue,
            json(&stack.metadata)?,
            stack.registered,
            millis(stack.last_seen),
        ))?;
    Ok(())
}

/// The stack has been heard of. Stacks call every second; not every call needs to be written down.
pub(crate) fn seen(transaction: &Transaction<'_>, stack: &StackRow, now: Timestamp) -> Result<(), Problem> {
    let here = stack.state(now) == "connected";
    if here && now.duration_since(stack.last_seen) < FRESH {
        return Ok(());
    }
    let written = transaction
        .prepare_cached("UPDATE stacks SET last_seen = ?2 WHERE id = ?1")?
        .execute((stack.id.to_string(), millis(now)))?;
    if here {
        quietly(written);
    }
    Ok(())
}

/// A place in the listing: the last job before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    scheduled_at: i64,
    seq: i64,
}

impl Cursor {
    /// Reads what [`Self::to_text`] wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheduled_at, seq) = text.split_once('-')?;
        Some(Self { scheduled_at: scheduled_at.parse().ok()?, seq: seq.parse().ok()? })
    }

    /// The cursor as clients carry it.
    pub(crate) fn to_text(self) -> String {
        format!("{}-{}", self.scheduled_at, self.seq)
    }
}

/// A page of scheduled jobs: those of `queue` after `after`, oldest first, and where the next page begins.
pub(crate) fn scheduled(
    transaction: &Transaction<'_>,
    queue: &str,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<ScheduledJob>, Option<Cursor>), Problem> {
    let sql = "
SELECT jobs.seq, jobs.id, jobs.priority, jobs.rules, jobs.scheduled_at, steps.key AS step_key,
    builds.id AS build_id, builds.number, builds.branch, pipelines.id AS pipeline_id, pipelines.slug
FROM jobs JOIN builds ON builds.id = jobs.build JOIN pipelines ON pipelines.id = builds.pipeline
    JOIN steps ON steps.id = jobs.step
WHERE jobs.state = 'scheduled' AND jobs.queue = ?1 AND (jobs.scheduled_at, jobs.seq) > (?2, ?3)
ORDER BY jobs.scheduled_at, jobs.seq LIMIT ?4";
    let after = after.unwrap_or(Cursor { scheduled_at: i64::MIN, seq: i64::MIN });
    // One more than asked for tells whether another page follows.
    let asked = i64::try_from(limit + 1).expect("the limit is small");
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query((queue, after.scheduled_at, after.seq, asked))?;
    let mut jobs = Vec::new();
    let mut last = None;
    while let Some(row) = rows.next()? {
        if jobs.len() == limit {
            return Ok((jobs, last));
        }
        last = Some(Cursor { scheduled_at: row.column("scheduled_at")?, seq: row.column("seq")? });
        jobs.push(ScheduledJob {
            id: row.id("id")?,
            priority: row.column("priority")?,
            agent_query_rules: row.json("rules")?,
            scheduled_at: row.at("scheduled_at")?,
            pipeline: PipelineRef { slug: row.column("slug")?, uuid: row.column("pipeline_id")? },
            build: BuildRef {
                uuid: row.column("build_id")?,
                number: row.column("number")?,
                branch: row.column("branch")?,
            },
            step: StepRef { key: row.column("step_key")? },
        });
    }
    Ok((jobs, None))
}

/// Reserves a job for a stack, or extends its reservation. Says whether the stack has it now.
///
/// A stack asks for a thousand at once, so this reads and writes no more than it must.
pub(crate) fn reserve(
    transaction: &Transaction<'_>,
    job: Uuid,
    stack: Uuid,
    until: Timestamp,
) -> Result<bool, Problem> {
    let mut statement = transaction.prepare_cached("SELECT seq, state, stack FROM jobs WHERE id = ?1")?;
    let mut rows = statement.query([job.to_string()])?;
    let Some(row) = rows.next()? else { return Ok(false) };
    let seq: i64 = row.column("seq")?;
    let state: JobState = row.column::<String>("state")?.parse()?;
    if !may_reserve(state, row.maybe_id("stack")?, stack) {
        return Ok(false);
    }
    // The deadline of a reserved job is the end of its reservation.
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = 'reserved', stack = ?2, reserved_until = ?3, deadline = ?3 WHERE seq = ?1",
        )?
        .execute((seq, stack.to_string(), millis(until)))?;
    Ok(true)
}

/// The states of jobs; unknown ones are left out.
pub(crate) fn states(transaction: &Transaction<'_>, ids: &[Uuid]) -> Result<BTreeMap<Uuid, String>, Problem> {
    let mut statement = transaction.prepare_cached("SELECT state FROM jobs WHERE id = ?1")?;
    let mut states = BTreeMap::new();
    for id in ids {
        if let Some(state) = statement.query_row([id.to_string()], |row| row.get(0)).optional()? {
            states.insert(*id, state);
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::just_now(true, 0, "connected")]
    #[case::a_while_ago(true, 299, "connected")]
    #[case::too_long_ago(true, 301, "lost")]
    #[case::gone(false, 0, "disconnected")]
    #[case::gone_long_ago(false, 301, "disconnected")]
    fn states_follow_from_the_last_sign_of_life(
        #[case] registered: bool,
        #[case] ago: i64,
        #[case] state: &str,
    ) {
        let now = Timestamp::now();
        let last_seen = now - SignedDuration::from_secs(ago);
        let stack = StackRow {
            id: Uuid::nil(),
            key: "mine".into(),
            kind: "custom".into(),
            queue: "default".into(),
            metadata: BTreeMap::new(),
            registered,
            last_seen,
        };
        assert_eq!(stack.state(now), state);
    }

    proptest! {
        #[test]
        fn cursors_are_read_back(scheduled_at in 0..i64::MAX, seq in 0..i64::MAX) {
            let cursor = Cursor { scheduled_at, seq };
            prop_assert_eq!(Cursor::parse(&cursor.to_text()), Some(cursor));
        }

        #[test]
        fn any_text_is_a_cursor_or_none(text in ".*") {
            let _read = Cursor::parse(&text);
        }
    }
}
