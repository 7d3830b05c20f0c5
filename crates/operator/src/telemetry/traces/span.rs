//! The spans of a job: one for all of it, and one for each step on its way.

use bk_api::{BuildJob, BuildJobStatus, Fault};
use bk_metrics::family::Labels;
use bk_plan::{
    timeline::{STEPS, Step, Timeline},
    trace::Trace,
};
use jiff::Timestamp;

/// The number of the span that all others are within.
const WHOLE: u64 = 0;

/// A part of a job's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) trace: Trace,
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) attributes: Labels,
    /// What went wrong.
    pub(super) error: Option<String>,
}

impl Span {
    /// Whether it is within another.
    pub(super) fn is_within(&self) -> bool {
        self.number != WHOLE
    }
}

/// The spans of a job that has ended; none if it is not known when it began.
pub(super) fn of_job(job: &BuildJob, status: &BuildJobStatus, timeline: &Timeline) -> Vec<Span> {
    let (Some(trace), Some(from), Some(to)) = (Trace::of(job), timeline.begin(), timeline.end()) else {
        return Vec::new();
    };
    let wrong = status.verdict.as_ref().filter(|verdict| verdict.fault != Fault::None);
    let whole = Span {
        trace,
        number: WHOLE,
        name: "buildkite job".to_owned(),
        from,
        to,
        attributes: attributes(job, status),
        error: wrong.map(|verdict| verdict.message.clone()),
    };
    std::iter::once(whole).chain(timeline.steps().iter().map(|step| of_step(trace, step))).collect()
}

/// The span of one step.
pub(super) fn of_step(trace: Trace, step: &Step) -> Span {
    let place = STEPS.iter().position(|name| *name == step.name).unwrap_or_default();
    Span {
        trace,
        number: place as u64 + 1,
        name: step.name.to_owned(),
        from: step.from,
        to: step.to,
        attributes: Labels::new(),
        error: None,
    }
}

/// What a trace is found by, in the words of OpenTelemetry where it has some.
fn attributes(job: &BuildJob, status: &BuildJobStatus) -> Labels {
    let buildkite = job.spec.buildkite.as_ref();
    let verdict = status.verdict.as_ref();
    let known = [
        ("buildkite.build_job", job.metadata.name.clone()),
        ("buildkite.queue", buildkite.and_then(|job| job.queue.clone())),
        ("buildkite.verdict", verdict.map(|verdict| verdict.code.as_str().to_owned())),
        ("buildkite.exit_status", status.exit_status.map(|status| status.to_string())),
        ("cicd.pipeline.name", buildkite.and_then(|job| job.pipeline.clone())),
        ("cicd.pipeline.run.id", buildkite.and_then(|job| job.build).map(|build| build.to_string())),
        ("cicd.pipeline.task.name", buildkite.and_then(|job| job.step.clone())),
        ("cicd.pipeline.task.run.id", buildkite.map(|job| job.job_uuid.clone())),
        ("k8s.namespace.name", job.metadata.namespace.clone()),
        ("k8s.node.name", status.node_name.clone()),
        ("k8s.pod.name", status.pod_name.clone()),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
