//! What a RepoMirror's status says, and when it is worth writing.

use bk_api::{
    RepoMirror, RepoMirrorStatus,
    repo_mirror::{CONDITION_READY, CONDITION_SYNCED, NodeMirror},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};

use crate::syncer::Report;

/// How old what was written may get if nothing but time has passed: on one node, and on many.
const RENEWAL: i64 = 60;
const RENEWAL_ON_NODES: i64 = 300;
/// A node that has said nothing for so long, and two intervals more, is left out.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(24);

/// The part of a status that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    generation: Option<i64>,
    commit: Option<String>,
    error: Option<String>,
    ready: bool,
    rebuilt_at: Option<Timestamp>,
    at: Timestamp,
}

impl Written {
    /// What a report says.
    pub(super) fn of(report: &Report) -> Self {
        let record = report.record.as_ref();
        Self {
            generation: report.wanted.generation,
            commit: record.and_then(|record| Some(record.head.as_ref()?.commit.clone())),
            error: report.result.as_ref().err().cloned(),
            ready: record.is_some_and(|record| record.damage.is_none()),
            rebuilt_at: record.map(|record| record.built_at),
            at: report.at,
        }
    }

    /// Whether anybody learns anything from it.
    pub(super) fn is_worth_writing(&self, before: Option<&Self>, many_nodes: bool) -> bool {
        let Some(before) = before else { return true };
        let renewal = if many_nodes { RENEWAL_ON_NODES } else { RENEWAL };
        let age = self.at.duration_since(before.at).as_secs();
        age >= renewal || Self { at: before.at, ..self.clone() } != *before
    }
}

/// What is merged into the status after a fetch. `before` is the status so far.
pub(super) fn patch(report: &Report, node: Option<&str>, before: &RepoMirrorStatus) -> Value {
    let Report { wanted, at, result, record } = report;
    let error = result.as_ref().err().cloned();
    let warning = result.as_ref().ok().and_then(|outcome| outcome.warning.clone());
    let told = Telling { generation: wanted.generation, now: seconds(*at), before: &before.conditions };
    let ready = match record.as_ref().map(|record| record.damage.as_deref()) {
        None => told.condition(CONDITION_READY, false, "NoMirrorYet", "there is nothing to borrow from yet"),
        Some(Some(damage)) => told.condition(CONDITION_READY, false, "Damaged", damage),
        Some(None) => told.condition(CONDITION_READY, true, "Borrowable", "jobs can borrow from it"),
    };
    let synced = match (&error, &warning) {
        (Some(error), _) => told.condition(CONDITION_SYNCED, false, "FetchFailed", error),
        (None, Some(warning)) => told.condition(CONDITION_SYNCED, true, "FetchedInPart", warning),
        (None, None) => told.condition(CONDITION_SYNCED, true, "Fetched", "the last fetch went well"),
    };
    let mut status = json!({
        "observedGeneration": wanted.generation,
        "directory": wanted.address.directory(),
        "lastAttempt": seconds(*at),
        "error": error,
        "conditions": [ready, synced],
    });
    if let Some(record) = record {
        status["lastSync"] = json!(seconds(record.last_sync));
        status["rebuiltAt"] = json!(seconds(record.built_at));
        status["head"] = json!(record.head);
    }
    if let Ok(outcome) = result {
        status["sizeBytes"] = json!(i64::try_from(outcome.size_bytes).unwrap_or(i64::MAX));
    }
    let forgotten = before.nodes.iter().filter(|(_, mirror)| is_forgotten(mirror, report));
    let mut nodes: Map<String, Value> = forgotten.map(|(name, _)| (name.clone(), Value::Null)).collect();
    if let Some(node) = node {
        let last_sync = record.as_ref().map(|record| seconds(record.last_sync));
        let commit = record.as_ref().and_then(|record| Some(record.head.as_ref()?.commit.clone()));
        let own =
            json!({ "lastSync": last_sync, "lastAttempt": seconds(*at), "commit": commit, "error": error });
        nodes.insert(node.to_owned(), own);
    }
    if !nodes.is_empty() {
        status["nodes"] = Value::Object(nodes);
    }
    json!({ "status": status })
}

/// Whether nobody keeps this mirror any more: the node is gone, or has no syncer. One that is there has said something since.
fn is_forgotten(mirror: &NodeMirror, report: &Report) -> bool {
    let last = mirror.last_attempt.as_ref().or(mirror.last_sync.as_ref());
    let patience =
        FORGOTTEN.saturating_add(SignedDuration::try_from(report.wanted.interval * 2).unwrap_or_default());
    last.is_none_or(|last| report.at.duration_since(last.0) > patience)
}

/// What is merged into the status of a RepoMirror that cannot be kept; nothing if it says so already.
pub(super) fn refused(mirror: &RepoMirror, problem: &str, now: Timestamp) -> Option<Value> {
    let generation = mirror.metadata.generation;
    let status = mirror.status.clone().unwrap_or_default();
    if status.error.as_deref() == Some(problem) && status.observed_generation == generation {
        return None;
    }
    let told = Telling { generation, now: seconds(now), before: &status.conditions };
    let ready = told.condition(CONDITION_READY, false, "Refused", problem);
    Some(json!({ "status": { "observedGeneration": generation, "error": problem, "conditions": [ready] } }))
}

struct Telling<'a> {
    generation: Option<i64>,
    now: Timestamp,
    before: &'a [Condition],
}

impl Telling<'_> {
    /// A condition, which is as old as its last change.
    fn condition(&self, kind: &str, holds: bool, reason: &str, message: &str) -> Condition {
        let status = if holds { "True" } else { "False" };
        let same = self.before.iter().find(|before| before.type_ == kind && before.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: self.generation,
            last_transition_time: same.map_or(Time(self.now), |same| same.last_transition_time.clone()),
        }
    }
}

/// Times in a status have no fractions.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
