//! When a job passed each milestone on its way, for metrics and traces. No decision depends on it.
//!
//! Times are those on record: in annotations, in the status, on the pod. Kubernetes rounds its own down to the second; what this
//! process has seen itself within that second is more exact.

use std::collections::BTreeMap;

use bk_api::{BuildJob, BuildJobStatus, names};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::Observed,
    decide::conditions::{ACQUIRED, SCHEDULED},
    facts::PodFacts,
};

/// How much later than its time on record something may have happened.
const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// A point on a job's way, in the order of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Milestone {
    /// Buildkite had it wait for an agent.
    Scheduled,
    /// The operator had reserved it.
    Reserved,
    /// It had a BuildJob.
    Created,
    /// It had a pod: the last one, if there were several.
    PodCreated,
    /// The pod was on a node.
    Placed,
    /// All containers had started.
    Started,
    /// An agent had it.
    Acquired,
    /// It had ended.
    Finished,
}

/// A part of the way, from one milestone to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is called: see [`STEPS`].
    pub name: &'static str,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
}

impl Step {
    /// How long it took.
    pub fn duration(&self) -> SignedDuration {
        self.to.duration_since(self.from)
    }
}

/// The names of the steps, in order, and the last one after the end.
pub const STEPS: [&str; 9] =
    ["queue", "reserve", "create", "schedule", "start", "acquire", "run", "fail", "reap"];

/// What this process has seen of a job's way itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witnessed {
    pod_created: Option<Timestamp>,
    placed: Option<Timestamp>,
    started: Option<Timestamp>,
    acquired: Option<Timestamp>,
}

impl Witnessed {
    /// A pod was created just now; what was seen of one before it counts no more.
    pub fn pod_created(at: Timestamp) -> Self {
        Self { pod_created: Some(at), ..Self::default() }
    }

    /// Takes note of how far a job has come.
    pub fn see(&mut self, seen: &Observed<'_>) {
        let note = |what: &mut Option<Timestamp>, is_so: bool| {
            if is_so {
                what.get_or_insert(seen.now);
            }
        };
        let pod = seen.pod.as_ref();
        note(&mut self.placed, pod.is_some_and(|pod| pod.node.is_some()));
        note(&mut self.started, pod.is_some_and(PodFacts::all_started));
        note(&mut self.acquired, seen.remote.is_some_and(|remote| remote.state.is_acquired()));
    }

    fn of(&self, milestone: Milestone) -> Option<Timestamp> {
        match milestone {
            Milestone::PodCreated => self.pod_created,
            Milestone::Placed => self.placed,
            Milestone::Started => self.started,
            Milestone::Acquired => self.acquired,
            Milestone::Scheduled | Milestone::Reserved | Milestone::Created | Milestone::Finished => None,
        }
    }
}

/// Puts on record when Buildkite had a job wait, if it says, and when it became ours.
pub fn stamp(job: &mut BuildJob, scheduled: Timestamp, reserved: Timestamp) {
    let known = (scheduled != Timestamp::UNIX_EPOCH).then_some((names::ANNOTATION_SCHEDULED_AT, scheduled));
    let times = known.into_iter().chain([(names::ANNOTATION_RESERVED_AT, reserved)]);
    let texts = times.map(|(name, time)| (name.to_owned(), format!("{time:.3}")));
    job.metadata.annotations.get_or_insert_default().extend(texts);
}

/// When a job passed the milestones that it did pass. Times never decrease, whatever clocks say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline(BTreeMap<Milestone, Timestamp>);

impl Timeline {
    /// The way of a job with this status, which is the newest and may not be in the BuildJob yet, and the last facts about its pod.
    pub fn of(
        job: &BuildJob,
        status: &BuildJobStatus,
        pod: Option<&PodFacts>,
        witnessed: &Witnessed,
    ) -> Self {
        let annotated = |name: &str| job.metadata.annotations.as_ref()?.get(name)?.parse().ok();
        let condition = |kind: &str| {
            let holds = status.conditions.iter().find(|one| one.type_ == kind && one.status == "True")?;
            Some(holds.last_transition_time.0)
        };
        let pod = |fact: fn(&PodFacts) -> Option<Timestamp>| pod.and_then(fact);
        let recorded = [
            (Milestone::Scheduled, annotated(names::ANNOTATION_SCHEDULED_AT)),
            (Milestone::Reserved, annotated(names::ANNOTATION_RESERVED_AT)),
            (Milestone::Created, job.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            (
                Milestone::PodCreated,
                pod(|pod| pod.created_at).or(status.pod_created_at.as_ref().map(|time| time.0)),
            ),
            (Milestone::Placed, pod(|pod| pod.accepted_at).or_else(|| condition(SCHEDULED))),
            (
                Milestone::Started,
                pod(|pod| pod.started_at.filter(|_| pod.all_started()))
                    .or(status.started_at.as_ref().map(|time| time.0)),
            ),
            (Milestone::Acquired, condition(ACQUIRED)),
            (Milestone::Finished, status.finished_at.as_ref().map(|time| time.0)),
        ];
        let mut last = Timestamp::MIN;
        let mut reached = BTreeMap::new();
        for (milestone, recorded) in recorded {
            if let Some(time) = exact(recorded, witnessed.of(milestone)) {
                last = last.max(time);
                reached.insert(milestone, last);
            }
        }
        Self(reached)
    }

    /// When a milestone was passed.
    pub fn at(&self, milestone: Milestone) -> Option<Timestamp> {
        self.0.get(&milestone).copied()
    }

    /// When the way began, as far as is known.
    pub fn begin(&self) -> Option<Timestamp> {
        self.0.values().next().copied()
    }

    /// When it ended.
    pub fn end(&self) -> Option<Timestamp> {
        self.at(Milestone::Finished)
    }

    /// From when Buildkite had the job wait until an agent had it, or could have it.
    pub fn wait(&self) -> Option<SignedDuration> {
        let begin = self.at(Milestone::Scheduled)?;
        let end = self.at(Milestone::Acquired).or_else(|| self.at(Milestone::Started))?;
        Some(end.duration_since(begin))
    }

    /// The steps between the milestones that were passed.
    pub fn steps(&self) -> Vec<Step> {
        let later = self.0.iter().skip(1);
        later
            .zip(self.0.values())
            .map(|((milestone, to), from)| Step { name: self.step_to(*milestone), from: *from, to: *to })
            .collect()
    }

    fn step_to(&self, milestone: Milestone) -> &'static str {
        match milestone {
            Milestone::Scheduled | Milestone::Reserved => STEPS[0],
            Milestone::Created => STEPS[1],
            Milestone::PodCreated => STEPS[2],
            Milestone::Placed => STEPS[3],
            Milestone::Started => STEPS[4],
            Milestone::Acquired => STEPS[5],
            Milestone::Finished => {
                let has_run = self.0.contains_key(&Milestone::Started);
                if has_run { STEPS[6] } else { STEPS[7] }
            }
        }
    }

    /// The step from the job's end until its pod was gone.
    pub fn reaping(&self, gone: Timestamp) -> Option<Step> {
        let from = self.end()?;
        Some(Step { name: STEPS[8], from, to: gone.max(from) })
    }
}

/// The best that is known about a time.
fn exact(recorded: Option<Timestamp>, witnessed: Option<Timestamp>) -> Option<Timestamp> {
    match (recorded, witnessed) {
        (Some(recorded), Some(seen)) if seen > recorded && seen.duration_since(recorded) < ROUNDING => {
            Some(seen)
        }
        (recorded, witnessed) => recorded.or(witnessed),
    }
}

#[cfg(test)]
mod tests;
