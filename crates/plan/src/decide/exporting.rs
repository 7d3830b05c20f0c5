//! After the job's end: exporters carry away what is left, for a time, and what came of it goes on record.

use bk_api::{BuildJobStatus, exporters::ExporterStatus};
use jiff::SignedDuration;

use super::{Action, Case, Decision, cleanup};
use crate::{
    exporters::reports,
    facts::{ContainerFacts, ContainerState, PodFacts},
    pod::PodSettings,
};

/// How many times as long as it may try in vain an exporter may take whose sinks take something.
const PATIENCE: i32 = 10;

/// What a container that nothing hinders waits for.
const COMING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];

/// Waits for exporters that are at work, so that the pod stays, or goes in good order, and the BuildJob stays to tell of them.
pub(super) fn wait(case: &Case<'_>) -> Option<Decision> {
    let facts = case.seen.pod.as_ref()?;
    let PodSettings { logs, artifacts, metrics, .. } = &case.rules.pod;
    let drain = logs.drain_seconds.max(artifacts.drain_seconds).max(metrics.drain_seconds);
    let left = SignedDuration::from_secs(drain.into()) * PATIENCE - cleanup::since_end(case);
    if !left.is_positive() || !facts.exporters.iter().any(is_at_work) {
        return None;
    }
    let mut decision = Decision::wait(false, left);
    // While a container of the job runs, or cannot have said that it has ended, exporters would wait for that.
    if !facts.managed_ended() || facts.managed.iter().any(was_killed) {
        decision.actions.extend(cleanup::remove_workload(case));
    }
    Some(decision)
}

/// Puts on record what came of the exporters, and tells the job's author what was lost. Nothing is to be done if that is on record;
/// if the BuildJob `goes` now, only a loss is worth it.
pub(super) fn report(case: &Case<'_>, goes: bool) -> Vec<Action> {
    let Some(exporters) = case.seen.pod.as_ref().and_then(|facts| news(case, facts)) else {
        return Vec::new();
    };
    let loss = reports::loss(&exporters);
    if goes && loss.is_none() {
        return Vec::new();
    }
    let written = Case::write(BuildJobStatus { exporters, ..case.status.clone() });
    let told = loss.filter(|_| !case.is_standalone()).map(Action::Remark);
    [written].into_iter().chain(told).collect()
}

/// What came of the exporters, if it is not on record.
fn news(case: &Case<'_>, facts: &PodFacts) -> Option<Vec<ExporterStatus>> {
    // A pod that is on its way out may show exporters as they were before.
    let is_settled = |exporter: &&ContainerFacts| exporter.is_ended() || !facts.is_deleting();
    let settled = facts.exporters.iter().filter(is_settled).map(reports::of);
    let unsaid: Vec<ExporterStatus> =
        settled.filter(|new| case.status.exporters.iter().all(|old| old.name != new.name)).collect();
    (!unsaid.is_empty()).then(|| [case.status.exporters.clone(), unsaid].concat())
}

/// Whether the exporter may yet come to its end.
fn is_at_work(exporter: &ContainerFacts) -> bool {
    match &exporter.state {
        ContainerState::Running => true,
        ContainerState::Waiting { reason, .. } => COMING.contains(&reason.as_str()),
        ContainerState::Ended(_) => false,
    }
}

fn was_killed(container: &ContainerFacts) -> bool {
    container.exit_status() == Some(137)
}
