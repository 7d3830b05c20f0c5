//! What the tables show.

use bk_api::{BuildEnvironment, BuildJob, Phase, RepoMirror, names, repo_mirror::CONDITION_READY};
use jiff::Timestamp;
use kube::ResourceExt;

use crate::cli::elapsed;

/// How much of a reason is shown beside other columns.
const REASON: usize = 60;
/// The column that changes by itself.
const AGE: &str = "AGE";

/// What can be listed.
pub(super) trait Listed: ResourceExt {
    /// The names of the columns after the object's own name, and how many of them are shown unless the table is wide.
    const COLUMNS: (&'static [&'static str], usize);

    /// The cells of these columns.
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String>;

    /// The phase, if it has one.
    fn phase(&self) -> Option<Phase> {
        None
    }

    /// The queue, if it is of one.
    fn queue(&self) -> Option<&str> {
        None
    }
}

/// The names of the columns.
pub(super) fn heads<K: Listed>(wide: bool, with_namespace: bool) -> Vec<&'static str> {
    let (columns, shown) = K::COLUMNS;
    let shown = if wide { columns.len() } else { shown };
    with_namespace
        .then_some("NAMESPACE")
        .into_iter()
        .chain(["NAME"])
        .chain(columns[..shown].iter().copied())
        .collect()
}

/// The cells of an object's row.
pub(super) fn row<K: Listed>(object: &K, wide: bool, with_namespace: bool, now: Timestamp) -> Vec<String> {
    let (columns, shown) = K::COLUMNS;
    let mut cells = object.cells(wide, now);
    cells.truncate(if wide { columns.len() } else { shown });
    let namespace = with_namespace.then(|| object.namespace().unwrap_or_default());
    namespace.into_iter().chain([object.name_any()]).chain(cells).collect()
}

/// Whether two rows of an object say the same, but for the time that has passed.
pub(super) fn is_same<K: Listed>(one: &[String], other: &[String], with_namespace: bool) -> bool {
    let heads = heads::<K>(true, with_namespace);
    one.len() == other.len()
        && one.iter().zip(other).zip(heads).all(|((one, other), head)| head == AGE || one == other)
}

impl Listed for BuildJob {
    const COLUMNS: (&'static [&'static str], usize) =
        (&["PHASE", "EXIT", "QUEUE", "JOB", AGE, "NODE", "WHY", "TRY", "ENVIRONMENT", "UUID", "URL"], 7);

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let status = self.status_or_default();
        let buildkite = self.spec.buildkite.clone().unwrap_or_default();
        let why = why(self);
        let environment = self.spec.environment.as_ref().or(self.spec.image.as_ref());
        vec![
            format!("{:?}", status.phase),
            status.exit_status.map(|status| status.to_string()).unwrap_or_default(),
            self.queue().unwrap_or_default().to_owned(),
            job_name(self),
            elapsed::since(self.metadata.creation_timestamp.as_ref(), now),
            status.node_name.unwrap_or_default(),
            if wide { why } else { crop(&why, REASON) },
            (status.attempt + 1).to_string(),
            environment.cloned().unwrap_or_default(),
            buildkite.job_uuid,
            buildkite.url.unwrap_or_default(),
        ]
    }

    fn phase(&self) -> Option<Phase> {
        Some(self.status_or_default().phase)
    }

    fn queue(&self) -> Option<&str> {
        queue(self)
    }
}

impl Listed for BuildEnvironment {
    const COLUMNS: (&'static [&'static str], usize) = (&["IMAGE", AGE, "BRINGS", "SERVICE-ACCOUNT"], 2);

    fn cells(&self, _wide: bool, now: Timestamp) -> Vec<String> {
        let spec = &self.spec;
        let brought = spec.init_containers.iter().chain(&spec.extra_containers);
        let brought: Vec<_> =
            brought.filter_map(|part| part.environment.clone().or_else(|| part.name.clone())).collect();
        vec![
            spec.image.clone(),
            elapsed::since(self.metadata.creation_timestamp.as_ref(), now),
            brought.join(","),
            spec.service_account_name.clone().unwrap_or_default(),
        ]
    }
}

impl Listed for RepoMirror {
    const COLUMNS: (&'static [&'static str], usize) =
        (&["READY", "SYNCED", "SIZE", AGE, "URL", "ERROR", "HEAD"], 6);

    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == CONDITION_READY);
        let error = status.error.unwrap_or_default();
        let mebibytes = |bytes: i64| format!("{}Mi", bytes.div_euclid(1 << 20));
        vec![
            ready.map(|condition| condition.status.clone()).unwrap_or_default(),
            status
                .last_sync
                .as_ref()
                .map(|time| format!("{} ago", elapsed::since(Some(time), now)))
                .unwrap_or_default(),
            status.size_bytes.map(mebibytes).unwrap_or_default(),
            elapsed::since(self.metadata.creation_timestamp.as_ref(), now),
            self.spec.url.clone(),
            if wide { error } else { crop(&error, REASON) },
            status.head.map(|head| format!("{} {}", head.branch, head.commit)).unwrap_or_default(),
        ]
    }
}

/// The queue that a job is of.
pub(in crate::cli) fn queue(job: &BuildJob) -> Option<&str> {
    let named = job.spec.buildkite.as_ref().and_then(|job| job.queue.as_deref());
    named.or_else(|| job.labels().get(names::LABEL_SPAWNED_FROM).map(String::as_str))
}

/// The job as its pipeline knows it: `demo #12 test`.
pub(in crate::cli) fn job_name(job: &BuildJob) -> String {
    let Some(buildkite) = &job.spec.buildkite else { return String::new() };
    let number = buildkite.build.map(|build| format!("#{build}"));
    let parts = [buildkite.pipeline.clone(), number, buildkite.step.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What a job waits for, or why it ended as it did.
pub(in crate::cli) fn why(job: &BuildJob) -> String {
    let status = job.status_or_default();
    match (status.verdict, status.waiting_for) {
        (Some(verdict), _) if status.phase == Phase::Succeeded => verdict.code.as_str().to_owned(),
        (Some(verdict), _) => format!("{}: {}", verdict.code.as_str(), verdict.message),
        (None, Some(reason)) => format!("waits for {reason}"),
        (None, None) => String::new(),
    }
}

/// The beginning of a text, on one line.
pub(in crate::cli) fn crop(text: &str, longest: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
