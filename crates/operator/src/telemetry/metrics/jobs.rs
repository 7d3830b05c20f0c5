//! How long jobs take, and how they end.

use std::time::Duration;

use bk_api::{
    BuildJobStatus, Fault, VerdictCode,
    exporters::{ExporterReport, ExporterStatus},
};
use bk_plan::timeline::{Step, Timeline};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::seconds;

/// From what people do not notice to what a job of a day takes.
const JOB_SECONDS: [f64; 17] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0,
    21600.0,
];

/// A round is quick, unless somebody does not answer.
const ROUND_SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 15.0];

/// The exporters that there are.
const EXPORTERS: [&str; 3] = ["log-exporter", "artifact-exporter", "metrics-exporter"];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The numbers of jobs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Jobs {
    steps: Histograms<OfStep>,
    waits: Histograms<OfQueue>,
    ended: Family<Ended, Counter>,
    replaced: Family<OfQueue, Counter>,
    rounds: Histogram,
    failed_rounds: Counter,
    exported: Family<Exported, Counter>,
    lost_bytes: Family<Exporter, Counter>,
    spans: Family<Outcome, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStep {
    queue: String,
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    queue: String,
    verdict: &'static str,
    fault: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Exported {
    exporter: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Exporter {
    exporter: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Jobs {
    pub(super) fn new(all: &mut Registry) -> Self {
        let job_seconds: fn() -> Histogram = || seconds(&JOB_SECONDS);
        let jobs = Self {
            steps: Family::new_with_constructor(job_seconds),
            waits: Family::new_with_constructor(job_seconds),
            ended: Family::default(),
            replaced: Family::default(),
            rounds: seconds(&ROUND_SECONDS),
            failed_rounds: Counter::default(),
            exported: Family::default(),
            lost_bytes: Family::default(),
            spans: Family::default(),
        };
        all.register(
            "job_step_seconds",
            "How long each step of jobs took that have ended",
            jobs.steps.clone(),
        );
        all.register(
            "job_wait_seconds",
            "From when Buildkite had jobs wait until an agent had them",
            jobs.waits.clone(),
        );
        all.register(
            "jobs_ended",
            "Jobs that have ended, by verdict and whose fault it was",
            jobs.ended.clone(),
        );
        all.register(
            "pods_replaced",
            "Pods that were lost before an agent had the job, and replaced",
            jobs.replaced.clone(),
        );
        all.register("reconcile_seconds", "How long rounds of work on a BuildJob took", jobs.rounds.clone());
        all.register(
            "reconcile_failures",
            "Rounds of work on a BuildJob that failed, and were tried again",
            jobs.failed_rounds.clone(),
        );
        all.register(
            "exporter_items",
            "Lines, files and samples of ended jobs, by what became of them",
            jobs.exported.clone(),
        );
        all.register(
            "exporter_lost_bytes",
            "Bytes that were lost before they could be exported",
            jobs.lost_bytes.clone(),
        );
        all.register(
            "trace_spans",
            "Spans of traces of jobs, by whether they could be sent",
            jobs.spans.clone(),
        );
        for exporter in EXPORTERS {
            jobs.exporter(&ExporterStatus { name: exporter.to_owned(), report: ExporterReport::default() });
        }
        jobs.spans(true, 0);
        jobs.spans(false, 0);
        jobs
    }

    /// A job of a queue has ended like this.
    pub(crate) fn ended(&self, queue: &str, status: &BuildJobStatus, timeline: &Timeline) {
        if let Some(verdict) = &status.verdict {
            self.ended.get_or_create(&ended(queue, verdict.code, verdict.fault)).inc();
        }
        self.replaced.get_or_create(&of(queue)).inc_by(status.attempt.into());
        for step in timeline.steps() {
            self.step(queue, &step);
        }
        if let Some(wait) = timeline.wait() {
            self.waits.get_or_create(&of(queue)).observe(wait.as_secs_f64());
        }
    }

    /// A step of a job is over.
    pub(crate) fn step(&self, queue: &str, step: &Step) {
        let labels = OfStep { queue: queue.to_owned(), step: step.name };
        self.steps.get_or_create(&labels).observe(step.duration().as_secs_f64());
    }

    /// A round of work on a BuildJob is over.
    pub(crate) fn round(&self, took: Duration, succeeded: bool) {
        self.rounds.observe(took.as_secs_f64());
        if !succeeded {
            self.failed_rounds.inc();
        }
    }

    /// An exporter is over.
    pub(crate) fn exporter(&self, exporter: &ExporterStatus) {
        let ExporterStatus { name, report } = exporter;
        let sum = |of: fn(&bk_api::exporters::SinkReport) -> u64| report.sinks.iter().map(of).sum::<u64>();
        for (outcome, items) in [
            ("sent", sum(|sink| sink.sent)),
            ("unsent", sum(|sink| sink.waiting)),
            ("lost", sum(|sink| sink.lost)),
        ] {
            let labels = Exported { exporter: name.clone(), outcome };
            self.exported.get_or_create(&labels).inc_by(items);
        }
        self.lost_bytes.get_or_create(&Exporter { exporter: name.clone() }).inc_by(report.lost_bytes);
    }

    /// Spans of traces were sent, or could not be.
    pub(crate) fn spans(&self, sent: bool, count: usize) {
        let outcome = if sent { "sent" } else { "lost" };
        self.spans.get_or_create(&Outcome { outcome }).inc_by(count as u64);
    }
}

fn of(queue: &str) -> OfQueue {
    OfQueue { queue: queue.to_owned() }
}

fn ended(queue: &str, code: VerdictCode, fault: Fault) -> Ended {
    let fault = match fault {
        Fault::None => "none",
        Fault::User => "user",
        Fault::Configuration => "configuration",
        Fault::Cluster => "cluster",
        Fault::Buildkite => "buildkite",
    };
    Ended { queue: queue.to_owned(), verdict: code.as_str(), fault }
}
