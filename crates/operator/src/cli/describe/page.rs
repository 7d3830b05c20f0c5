//! A job on a page.

use std::fmt::Write;

use bk_api::{BuildJob, BuildJobStatus, exporters::ExporterStatus};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, ContainerState, ContainerStatus, Event, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

use crate::cli::{
    elapsed,
    get::{crop, job_name},
    output,
};

/// How wide the names at the beginning of lines are.
const NAMES: usize = 13;
/// How much of an Event is shown.
const MESSAGE: usize = 160;

/// What the page is about.
pub(super) struct Subject<'a> {
    pub(super) job: &'a BuildJob,
    pub(super) pods: &'a [Pod],
    pub(super) events: &'a Result<Vec<Event>, String>,
    pub(super) now: Timestamp,
}

/// The page.
pub(super) fn of(subject: &Subject<'_>) -> String {
    let mut page = String::new();
    let status = subject.job.status_or_default();
    standing(&mut page, subject.job, &status);
    origin(&mut page, subject.job);
    times(&mut page, subject, &status);
    conditions(&mut page, &status);
    for pod in subject.pods {
        pod_section(&mut page, pod);
    }
    if subject.pods.is_empty()
        && let Some(name) = &status.pod_name
    {
        let node = status.node_name.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
        section(&mut page, "Pod", &[format!("{name}{node}: it is gone")]);
    }
    exporters(&mut page, &status.exporters);
    happenings(&mut page, subject);
    page
}

fn field(page: &mut String, name: &str, value: impl AsRef<str>) {
    let value = value.as_ref();
    if value.is_empty() {
        return;
    }
    let mut lines = value.lines();
    // Writing to a string cannot fail.
    let _infallible = writeln!(page, "{name:NAMES$}{}", lines.next().unwrap_or_default());
    for line in lines {
        let _infallible = writeln!(page, "{:NAMES$}{line}", "");
    }
}

fn section(page: &mut String, name: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _infallible = writeln!(page, "\n{name}");
    for line in lines {
        let _infallible = writeln!(page, "  {line}");
    }
}

fn standing(page: &mut String, job: &BuildJob, status: &BuildJobStatus) {
    field(page, "BuildJob", format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any()));
    let exit = status.exit_status.map(|exit| format!(", exit status {exit}")).unwrap_or_default();
    let leaving = if job.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
    field(page, "Phase", format!("{:?}{exit}{leaving}", status.phase));
    field(page, "Waiting for", status.waiting_for.clone().unwrap_or_default());
    if let Some(verdict) = &status.verdict {
        field(page, "Verdict", format!("{}: {}", verdict.code.as_str(), verdict.message));
        field(page, "Fault", format!("{:?}", verdict.fault));
        field(page, "Advice", verdict.advice.clone().unwrap_or_default());
        field(page, "Evidence", verdict.evidence.join("\n"));
    }
}

fn origin(page: &mut String, job: &BuildJob) {
    let spec = &job.spec;
    match &spec.buildkite {
        None => field(page, "Buildkite", "none: a standalone job"),
        Some(buildkite) => {
            field(page, "Buildkite", job_name(job));
            field(page, "Queue", buildkite.queue.clone().unwrap_or_default());
            field(page, "Job", &buildkite.job_uuid);
            field(page, "Page", job_page(job).unwrap_or_default());
        }
    }
    if let Some(source) = &spec.source {
        field(page, "Source", format!("{} {} {}", source.repo, source.branch, source.commit));
    }
    field(page, "Environment", spec.environment.clone().unwrap_or_default());
    field(page, "Image", spec.image.clone().unwrap_or_default());
    field(page, "Class", spec.resource_class.clone().unwrap_or_default());
    field(page, "Command", spec.command.clone().unwrap_or_default());
}

/// Where the job is shown at Buildkite.
pub(in crate::cli) fn job_page(job: &BuildJob) -> Option<String> {
    let buildkite = job.spec.buildkite.as_ref()?;
    buildkite.url.as_ref().map(|url| format!("{url}#{}", buildkite.job_uuid))
}

/// Each step with its time, and how long it took since the one before.
fn times(page: &mut String, subject: &Subject<'_>, status: &BuildJobStatus) {
    let steps = [
        ("created", subject.job.metadata.creation_timestamp.as_ref()),
        ("pod created", status.pod_created_at.as_ref()),
        ("started", status.started_at.as_ref()),
        ("finished", status.finished_at.as_ref()),
    ];
    let mut before: Option<&Time> = None;
    let mut rows = Vec::new();
    for (name, time) in steps.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        let took = before.map(|before| format!("+{}", elapsed::short(time.0.duration_since(before.0))));
        rows.push(vec![name.to_owned(), moment(time), took.unwrap_or_default()]);
        before = Some(time);
    }
    if status.finished_at.is_none()
        && let Some(before) = before
    {
        let took = elapsed::short(subject.now.duration_since(before.0));
        rows.push(vec!["now".to_owned(), moment(&Time(subject.now)), format!("+{took}")]);
    }
    section(
        page,
        &format!("Times, try {}", status.attempt + 1),
        &output::table(&["STEP", "AT", "AFTER"], &rows),
    );
}

fn moment(time: &Time) -> String {
    time.0.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// What did not go as it should; how far the job has come is seen from the times.
fn conditions(page: &mut String, status: &BuildJobStatus) {
    let unmet = status
        .conditions
        .iter()
        .filter(|condition| condition.status != "True" && !condition.message.is_empty());
    let lines: Vec<String> = unmet
        .map(|condition| format!("{}: {} ({})", condition.type_, condition.message, condition.reason))
        .collect();
    section(page, "Conditions that do not hold", &lines);
}

fn pod_section(page: &mut String, pod: &Pod) {
    let Some(spec) = &pod.spec else { return };
    let status = pod.status.clone().unwrap_or_default();
    let all: Vec<&ContainerStatus> =
        status.init_container_statuses.iter().chain(&status.container_statuses).flatten().collect();
    let row = |container: &Container, kind: &str| {
        let own = all.iter().find(|status| status.name == container.name);
        let state = own.and_then(|status| status.state.as_ref());
        let restarts = own.map(|status| status.restart_count).filter(|count| *count > 0);
        vec![
            format!("{}{kind}", container.name),
            state_words(state),
            restarts.map(|count| count.to_string()).unwrap_or_default(),
            container.image.clone().unwrap_or_default(),
        ]
    };
    let init = spec.init_containers.iter().flatten().map(|container| row(container, " (init)"));
    let rows: Vec<_> = init.chain(spec.containers.iter().map(|container| row(container, ""))).collect();
    let node = spec.node_name.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let lines = output::table(&["CONTAINER", "STATE", "RESTARTS", "IMAGE"], &rows);
    section(page, &format!("Pod {}{node}, {phase}", pod.name_any()), &lines);
}

fn state_words(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return String::new() };
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().filter(|reason| *reason != "Completed" && *reason != "Error");
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        return format!("ended with {}{reason}", ended.exit_code);
    }
    if state.running.is_some() {
        return "runs".to_owned();
    }
    let waiting = state.waiting.clone().unwrap_or_default();
    let message = waiting.message.map(|message| format!(": {}", crop(&message, 80))).unwrap_or_default();
    format!("waits, {}{message}", waiting.reason.unwrap_or_default())
}

fn exporters(page: &mut String, exporters: &[ExporterStatus]) {
    let mut lines = Vec::new();
    for ExporterStatus { name, report } in exporters {
        for sink in &report.sinks {
            let reason = sink.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            lines.push(format!(
                "{name} to {}: {} sent, {} waiting, {} lost{reason}",
                sink.name, sink.sent, sink.waiting, sink.lost
            ));
        }
        lines.extend(report.reason.as_ref().map(|reason| format!("{name}: {reason}")));
        if !report.unmatched.is_empty() {
            lines.push(format!("{name}: there were no files at {}", report.unmatched.join(", ")));
        }
    }
    section(page, "Exporters", &lines);
}

/// When an Event was last seen.
pub(super) fn last_seen(event: &Event) -> Option<Timestamp> {
    let series =
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    series.or(last).or(first).or_else(|| event.creation_timestamp().map(|time| time.0))
}

fn happenings(page: &mut String, subject: &Subject<'_>) {
    let events = match subject.events {
        Ok(events) => events,
        Err(problem) => return section(page, "Events", std::slice::from_ref(problem)),
    };
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let ago = last_seen(event).map(|at| elapsed::short(subject.now.duration_since(at)));
            vec![
                ago.unwrap_or_default(),
                event.type_.clone().unwrap_or_default(),
                event.reason.clone().unwrap_or_default(),
                event.involved_object.kind.clone().unwrap_or_default(),
                crop(event.message.as_deref().unwrap_or_default(), MESSAGE),
            ]
        })
        .collect();
    if !rows.is_empty() {
        section(page, "Events", &output::table(&["AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"], &rows));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::sample;

    fn page(job: &BuildJob, pods: &[Pod], events: &Result<Vec<Event>, String>) -> String {
        of(&Subject { job, pods, events, now: sample::now() })
    }

    #[test]
    fn a_job_that_waits() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {
                "initContainers": [{"name": "db", "image": "postgres:18", "restartPolicy": "Always"}],
                "containers": [{"name": "container-0", "image": "golang:1.26"}, {"name": "agent", "image": "agent:3"}],
            },
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "db", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                    "state": {"running": {}}}],
                "containerStatuses": [
                    {"name": "container-0", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}},
                    {"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
                ],
            },
        }))
        .unwrap();
        let event: Event = serde_json::from_value(json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "type": "Warning", "reason": "Failed",
            "message": "Failed to pull image \"golang:1.26\":\n not found", "lastTimestamp": "2026-11-18T10:04:30Z",
        }))
        .unwrap();
        insta::assert_snapshot!(page(&sample::waiting("a"), &[pod], &Ok(vec![event])));
    }

    #[test]
    fn a_job_that_has_failed() {
        let forbidden = Err("cannot list Events: forbidden".to_owned());
        insta::assert_snapshot!(page(&sample::failed("b"), &[], &forbidden));
        sample::documented(&page(&sample::failed("b"), &[], &forbidden));
    }
}
