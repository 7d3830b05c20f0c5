//! What metrics and traces are told about jobs that have ended, and about their pods once they are gone.
//!
//! What is kept here is not on record, and is lost with the process: how long the pods took to go that it left behind.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bk_api::{BuildJob, BuildJobStatus};
use bk_plan::{
    exporters::reports,
    facts::{JobPod, PodFacts},
    timeline::Timeline,
    trace::Trace,
};
use jiff::Timestamp;
use kube::runtime::{reflector::ObjectRef, watcher::Event};

use super::Context;

/// Ended jobs whose pods are still there, by the pod's id.
#[derive(Default)]
pub(super) struct Endings(Mutex<HashMap<String, Ending>>);

struct Ending {
    queue: String,
    trace: Option<Trace>,
    timeline: Timeline,
}

impl Endings {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Ending>> {
        // Nothing inside can be left half-done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job has ended with this status; these are the last facts about its pod.
pub(super) fn ended(context: &Context, job: &BuildJob, status: &BuildJobStatus, pod: Option<&PodFacts>) {
    let timeline = Timeline::of(job, status, pod, context.recalls.of(job).witnessed());
    let queue = context.intakes.terms(job).key.clone();
    context.telemetry.metrics.jobs.ended(&queue, status, &timeline);
    context.telemetry.traces.ended(job, status, &timeline);
    let Some(pod) = pod else { return };
    let ending = Ending { queue, trace: Trace::of(job), timeline };
    context.endings.lock().insert(pod.uid.clone(), ending);
    let object = ObjectRef::<JobPod>::new(&pod.name).within(&context.namespace);
    if context.pods.get(&object).is_none() {
        // It was quicker.
        context.endings.lock().remove(&pod.uid);
    }
}

/// Takes down what the watch of pods says.
pub(super) fn see(context: &Context, event: &Event<JobPod>) {
    match event {
        Event::Delete(pod) => gone(context, pod.facts()),
        // Some may have gone unseen.
        Event::InitDone => {
            let pods = context.pods.all();
            let here: HashSet<&str> = pods.iter().map(|pod| pod.facts().uid.as_str()).collect();
            context.endings.lock().retain(|uid, _| here.contains(uid.as_str()));
        }
        _ => {}
    }
}

fn gone(context: &Context, pod: &PodFacts) {
    let metrics = &context.telemetry.metrics.jobs;
    for exporter in &pod.exporters {
        metrics.exporter(&reports::of(exporter));
    }
    let ending = context.endings.lock().remove(&pod.uid);
    let Some(Ending { queue, trace, timeline }) = ending else { return };
    if let Some(step) = timeline.reaping(Timestamp::now()) {
        metrics.step(&queue, &step);
        if let Some(trace) = trace {
            context.telemetry.traces.reaped(trace, &step);
        }
    }
}
