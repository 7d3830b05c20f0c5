//! What was asked of Buildkite, from buildkite-local's own log, and how often things were asked for each job.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use bk_e2e::audit::ApiCall;
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::figures::Line;

/// What makes buildkite-local log each call with its path and status, and nothing else.
pub(super) const LOG_FILTER: &str =
    "warn,buildkite_local::api::trace=debug,tower_http::trace::on_response=debug";

/// A call that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// When the answer went out.
    pub(super) at: Timestamp,
    /// The method, and the path without what names a thing: `PUT jobs/…/acquire`.
    pub(super) kind: String,
    /// The job in its path.
    pub(super) job: Option<Uuid>,
    /// The answer's status.
    pub(super) status: u16,
}

impl Call {
    /// Whether it is one by which operators look into a queue.
    pub(super) fn is_look(&self) -> bool {
        self.kind.ends_with("stacks/scheduled-jobs")
    }

    /// Whether a stack made it, rather than an agent or this benchmark.
    pub(super) fn is_of_stack(&self) -> bool {
        self.kind.contains(" stacks/")
    }
}

#[derive(Deserialize)]
struct Entry {
    timestamp: Timestamp,
    status: Option<u16>,
    span: Option<Span>,
}

#[derive(Deserialize)]
struct Span {
    method: Option<String>,
    path: Option<String>,
}

/// The calls since `mark`, in the order of their answers.
pub(super) fn read(log: &Path, mark: Timestamp) -> Result<Vec<Call>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    Ok(parse(&text).into_iter().filter(|call| call.at >= mark).collect())
}

/// Lines that are half written or about something else are left out.
fn parse(text: &str) -> Vec<Call> {
    text.lines()
        .filter_map(|line| {
            let entry: Entry = serde_json::from_str(line).ok()?;
            let span = entry.span?;
            let (kind, job) = kind(&span.method?, &span.path?);
            Some(Call { at: entry.timestamp, kind, job, status: entry.status? })
        })
        .collect()
}

fn kind(method: &str, path: &str) -> (String, Option<Uuid>) {
    let mut segments: Vec<&str> = path.split('/').filter(|segment| !matches!(*segment, "" | "v3")).collect();
    if segments.first() == Some(&"stacks") && segments.len() > 2 {
        // The stack's key.
        segments.remove(1);
    }
    let mut job = None;
    for segment in &mut segments {
        if let Ok(id) = segment.parse() {
            job = Some(id);
            *segment = "…";
        }
    }
    (format!("{method} {}", segments.join("/")), job)
}

/// How often each kind was asked of Buildkite for each of so many jobs.
pub(super) fn of_buildkite(calls: &[Call], jobs: usize) -> Vec<Line> {
    let ours: Vec<&Call> = calls.iter().filter(|call| call.is_of_stack()).collect();
    let mut lines = per_job("Buildkite", ours.iter().map(|call| call.kind.clone()), jobs);
    let refused = ours.iter().filter(|call| call.status >= 400).count();
    lines.push(Line::value("  Buildkite: refused", format!("{refused} of {}", ours.len())));
    lines
}

/// How often each kind was asked of the API server for each of so many jobs, and all that write together.
pub(super) fn of_cluster(calls: &[ApiCall], jobs: usize) -> Vec<Line> {
    let kind = |call: &ApiCall| {
        let subresource = call.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{} {}{subresource}", call.verb, call.resource)
    };
    let mut lines = per_job("API server", calls.iter().map(kind), jobs);
    let writes = share(calls.iter().filter(|call| call.is_write()).count(), jobs);
    let line = Line::value("  API server: all writes", format!("{writes:.2} per job"));
    lines.push(line.with_target("<= 6", writes <= 6.0));
    let failed = calls.iter().filter(|call| call.code >= 400).count();
    lines.push(Line::value("  API server: refused", format!("{failed} of {}", calls.len())));
    lines
}

/// The kinds that make up a hundredth of a call per job or more, the most frequent first.
fn per_job(of: &str, kinds: impl Iterator<Item = String>, jobs: usize) -> Vec<Line> {
    let mut counts = BTreeMap::<String, usize>::new();
    kinds.for_each(|kind| *counts.entry(kind).or_default() += 1);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let frequent = counts.into_iter().filter(|(_, count)| count * 100 >= jobs);
    frequent
        .map(|(kind, count)| {
            Line::value(format!("  {of}: {kind}"), format!("{:.2} per job", share(count, jobs)))
        })
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]
fn share(count: usize, jobs: usize) -> f64 {
    count as f64 / jobs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_their_job_and_without_keys() {
        let id = "01a1e343-18a2-76ee-9522-4c5dc642e764";
        let text = format!(
            r#"{{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","message":"listening"}}
{{"timestamp":"2026-01-01T00:00:01Z","status":200,"span":{{"method":"GET","path":"/v3/stacks/k/jobs/{id}"}}}}
{{"timestamp":"2026-01-01T00:00:02Z","status":429,"span":{{"method":"GET","path":"/v3/stacks/k/scheduled-jobs"}}}}
{{"timestamp":"2026-01-01T00:00:03Z","status":200,"span":{{"method":"PUT","path":"/v3/jobs/{id}/acquire"}}}}
{{"timestamp":"2026-01-01T00:00"#
        );
        let calls = parse(&text);
        let kinds: Vec<_> =
            calls.iter().map(|call| (call.kind.as_str(), call.job.is_some(), call.is_of_stack())).collect();
        assert_eq!(
            kinds,
            [
                ("GET stacks/jobs/…", true, true),
                ("GET stacks/scheduled-jobs", false, true),
                ("PUT jobs/…/acquire", true, false)
            ]
        );
        let lines = of_buildkite(&calls, 2);
        let names: Vec<&str> = lines.iter().map(|line| line.name.trim()).collect();
        assert_eq!(
            names,
            ["Buildkite: GET stacks/jobs/…", "Buildkite: GET stacks/scheduled-jobs", "Buildkite: refused"]
        );
    }

    #[test]
    fn kinds_that_hardly_occur_are_left_out() {
        let kinds = || ["a", "b", "b"].into_iter().map(str::to_owned);
        let names = |jobs| per_job("x", kinds(), jobs).into_iter().map(|line| line.name).collect::<Vec<_>>();
        assert_eq!(names(100), ["  x: b", "  x: a"]);
        assert_eq!(names(101), ["  x: b"]);
    }
}
