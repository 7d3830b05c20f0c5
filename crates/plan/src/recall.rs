//! What one process remembers about a BuildJob because its caches may not show it yet.
//!
//! Nothing here is the truth: a process that has forgotten it all does the same things, with a needless call
//! or two more. It saves those calls, and tells a pod that has vanished from one that was never there.

use bk_api::BuildJob;
use jiff::{SignedDuration, Timestamp};

use crate::{decide::Observed, facts::PodFacts, remote::Remote, timeline::Witnessed};

/// How old a BuildJob is, at least, whose process before this one had time to tell what it waits for.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_secs(15);

/// How far a watch may lag, by the clocks, before a pod that was created is looked for.
const WATCH_LAG: SignedDuration = SignedDuration::from_secs(10);

/// How soon to try again to end a job for its agent after that has failed: at first, and at the latest.
const SPEAK_AGAIN: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_secs(30));

/// What is remembered about one BuildJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    /// Versions of the BuildJob that we have overwritten.
    overwritten: Vec<String>,
    /// Whether we have deleted it.
    deleted: bool,
    /// What became of the creation of this attempt's pod.
    creation: Option<(u32, Creation)>,
    /// The pod of this attempt as it was created, until a watch tells of it.
    awaited: Option<Box<(u32, PodFacts)>>,
    /// What Buildkite was last told that the job waits for.
    explained: Option<Explained>,
    /// Whether we have tried to end the job for its agent.
    spoken: Option<Spoken>,
    /// Whether this process has looked at the BuildJob before.
    met: bool,
    /// What this process has seen of the job's way.
    witnessed: Witnessed,
}

/// An attempt to end the job for its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spoken {
    /// The agent's attempt at the job.
    attempt: u32,
    /// When Buildkite had answered, or could have.
    at: Timestamp,
    /// What came of it.
    outcome: Spoke,
    /// How often in a row nobody knows what came of it.
    failures: u32,
}

/// What came of an attempt to end the job for its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoke {
    /// The job has ended.
    Ended,
    /// Buildkite would not have it.
    InVain,
    /// Nobody knows: Buildkite could not be reached, or has failed.
    Failed,
}

/// What Buildkite was told that a job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What was said.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// What is certain about the creation of an attempt's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// Nothing: no process, or another one, may have created it.
    #[default]
    Unknown,
    /// It was created.
    Done,
    /// We have tried, and it was not created, as far as we know.
    Failed {
        /// When to try again.
        retry_at: Timestamp,
    },
}

impl Recall {
    /// Whether a view of the BuildJob in this version is one that we have changed since: nothing may be based on it.
    pub fn is_outdated(&self, version: Option<&str>) -> bool {
        self.deleted || version.is_some_and(|version| self.overwritten.iter().any(|old| old == version))
    }

    /// Notes that we have written the BuildJob, on the basis of this version.
    pub fn wrote(&mut self, version: Option<String>) {
        self.overwritten.extend(version);
    }

    /// Notes that we have deleted the BuildJob, or are about to.
    pub fn deleted(&mut self) {
        self.deleted = true;
    }

    /// Notes that the BuildJob was not deleted after all.
    pub fn not_deleted(&mut self) {
        self.deleted = false;
    }

    /// Whether the BuildJob's deletion was our own doing.
    pub fn has_deleted(&self) -> bool {
        self.deleted
    }

    /// Notes what became of the creation of an attempt's pod.
    pub fn created(&mut self, attempt: u32, creation: Creation) {
        self.creation = Some((attempt, creation));
    }

    /// Notes that an attempt's pod, or what it stands in, was created at this time.
    pub fn created_at(&mut self, attempt: u32, now: Timestamp) {
        self.created(attempt, Creation::Done);
        self.witnessed = Witnessed::pod_created(now);
    }

    /// Notes how far the job has come.
    pub fn witness(&mut self, seen: &Observed<'_>) {
        self.witnessed.see(seen);
    }

    /// What this process has seen of the job's way.
    pub fn witnessed(&self) -> &Witnessed {
        &self.witnessed
    }

    /// Notes how the pod looked that was created for an attempt.
    pub fn awaits(&mut self, attempt: u32, pod: PodFacts) {
        self.awaited = Some(Box::new((attempt, pod)));
    }

    /// The pod that was created for an attempt, while it is too early to wonder why no watch tells of it.
    pub fn awaited(&self, attempt: u32, now: Timestamp) -> Option<&PodFacts> {
        let is_young = |pod: &PodFacts| pod.created_at.is_some_and(|at| now.duration_since(at) < WATCH_LAG);
        let (of, pod) = self.awaited.as_deref()?;
        (*of == attempt && is_young(pod)).then_some(pod)
    }

    /// Notes that an attempt's pod was seen: whatever the answer to its creation was, it has been created.
    pub fn saw(&mut self, attempt: u32) {
        self.awaited.take_if(|awaited| awaited.0 == attempt);
        if let Some((of, creation @ Creation::Failed { .. })) = &mut self.creation
            && *of == attempt
        {
            *creation = Creation::Done;
        }
    }

    /// What is certain about the creation of an attempt's pod.
    pub fn creation(&self, attempt: u32) -> Creation {
        self.creation.filter(|(of, _)| *of == attempt).map(|(_, creation)| creation).unwrap_or_default()
    }

    /// Notes that the BuildJob is looked at, for the first time perhaps. What it says then that it waits for was told by the
    /// process before this one, unless that had no time for it.
    pub fn meet(&mut self, job: &BuildJob, now: Timestamp) {
        if std::mem::replace(&mut self.met, true) {
            return;
        }
        let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let is_old = created.is_some_and(|created| now.duration_since(created) >= TOLD_WITHIN);
        if let Some(text) = job.status_or_default().waiting_for.filter(|_| is_old) {
            self.explained = Some(Explained { text, at: now });
        }
    }

    /// Notes that Buildkite was told what the job waits for.
    pub fn told(&mut self, text: String, at: Timestamp) {
        self.explained = Some(Explained { text, at });
    }

    /// What Buildkite was last told that the job waits for.
    pub fn explained(&self) -> Option<&Explained> {
        self.explained.as_ref()
    }

    /// Notes that we have tried to end the job for the agent of an attempt, until now, and what came of it.
    pub fn spoke(&mut self, attempt: u32, at: Timestamp, outcome: Spoke) {
        let before =
            self.spoken.filter(|spoken| spoken.attempt == attempt).map_or(0, |spoken| spoken.failures);
        let failures = if outcome == Spoke::Failed { before.saturating_add(1) } else { 0 };
        self.spoken = Some(Spoken { attempt, at, outcome, failures });
    }

    /// Whether to wait before we try again to end the job for the agent of an attempt: whatever asks for it, Buildkite is in trouble.
    pub fn holds_its_tongue(&self, attempt: u32, now: Timestamp) -> bool {
        self.spoken.filter(|spoken| spoken.attempt == attempt && spoken.failures > 0).is_some_and(|spoken| {
            let pause = SPEAK_AGAIN.0 * 2_i32.saturating_pow(spoken.failures.min(10) - 1);
            now < spoken.at + pause.min(SPEAK_AGAIN.1)
        })
    }

    /// Whether there is any point in speaking for the agent of an attempt: one for which Buildkite would not have the job ended does not have it.
    pub fn can_speak(&self, attempt: u32) -> bool {
        self.spoken.is_none_or(|spoken| spoken.attempt != attempt || spoken.outcome != Spoke::InVain)
    }

    /// Buildkite's word, if it still counts: one from before we have tried to end the job for its agent does not. On such a word we would end
    /// it once more, be refused, and take that for the agent's doing.
    pub fn still_counts(&self, remote: &Remote) -> bool {
        self.spoken.is_none_or(|spoken| remote.asked_at >= spoken.at)
    }

    /// Lets a creation that failed be tried again at once: there may be room now.
    pub fn retry(&mut self, now: Timestamp) {
        if let Some((_, Creation::Failed { retry_at })) = &mut self.creation {
            *retry_at = now;
        }
    }

    /// Forgets the versions before one that a cache has shown: they cannot come back.
    pub fn seen(&mut self) {
        self.overwritten.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::RemoteState;

    #[test]
    fn what_was_overwritten_is_outdated_until_something_newer_was_seen() {
        let mut recall = Recall::default();
        recall.wrote(Some("7".to_owned()));
        recall.wrote(Some("8".to_owned()));
        let outdated = |recall: &Recall| ["7", "8", "9"].map(|version| recall.is_outdated(Some(version)));
        assert_eq!(outdated(&recall), [true, true, false]);
        recall.seen();
        assert_eq!(outdated(&recall), [false; 3]);
        recall.deleted();
        assert_eq!(outdated(&recall), [true; 3]);
    }

    #[test]
    fn a_pod_that_was_created_is_awaited_until_it_is_seen_or_long_overdue() {
        let created = Timestamp::UNIX_EPOCH;
        let pod = PodFacts { created_at: Some(created), ..PodFacts::default() };
        let mut recall = Recall::default();
        recall.awaits(1, pod.clone());
        assert_eq!(recall.awaited(1, created), Some(&pod));
        assert_eq!(recall.awaited(0, created), None, "another attempt");
        assert_eq!(recall.awaited(1, created + WATCH_LAG), None, "it should have been seen by now");
        recall.saw(0);
        assert_eq!(recall.awaited(1, created), Some(&pod));
        recall.saw(1);
        assert_eq!(recall.awaited(1, created), None);
    }

    #[test]
    fn what_buildkite_said_before_the_job_was_ended_does_not_count() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let counts = |recall: &Recall, second| {
            recall.still_counts(&Remote { state: RemoteState::Acquired, asked_at: at(second) })
        };
        let mut recall = Recall::default();
        assert!(counts(&recall, 1) && recall.can_speak(0));
        recall.spoke(0, at(2), Spoke::Failed);
        assert!(!counts(&recall, 1) && counts(&recall, 2));
        assert!(recall.can_speak(0), "the answer was lost, perhaps");
        recall.spoke(0, at(3), Spoke::InVain);
        assert!(!counts(&recall, 2) && !recall.can_speak(0));
        assert!(recall.can_speak(1), "another agent may have the job");
    }

    #[test]
    fn pauses_grow_while_the_job_cannot_be_ended() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut recall = Recall::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            recall.spoke(0, at(0), Spoke::Failed);
            pauses.extend((0..60).find(|second| !recall.holds_its_tongue(0, at(*second))));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert!(!recall.holds_its_tongue(1, at(0)), "that is another agent");
        recall.spoke(0, at(0), Spoke::Ended);
        assert!(!recall.holds_its_tongue(0, at(0)));
    }

    #[test]
    fn a_creation_belongs_to_its_attempt() {
        let mut recall = Recall::default();
        recall.created(0, Creation::Done);
        assert_eq!((recall.creation(0), recall.creation(1)), (Creation::Done, Creation::Unknown));
    }

    #[test]
    fn what_was_seen_has_been_created_whatever_the_answer_was() {
        let mut recall = Recall::default();
        recall.saw(0);
        assert_eq!(recall.creation(0), Creation::Unknown);
        let failed = Creation::Failed { retry_at: Timestamp::UNIX_EPOCH };
        recall.created(1, failed);
        recall.saw(0);
        assert_eq!(recall.creation(1), failed);
        recall.saw(1);
        assert_eq!(recall.creation(1), Creation::Done);
    }

    #[test]
    fn what_another_process_has_told_is_not_told_again() {
        let created = Timestamp::from_second(1_800_000_000).unwrap();
        let mut job = BuildJob::new("a", bk_api::BuildJobSpec::default());
        job.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
        job.status = Some(bk_api::BuildJobStatus {
            waiting_for: Some("a node".to_owned()),
            ..bk_api::BuildJobStatus::default()
        });
        let explained = |first: &BuildJob, after: i64| {
            let mut recall = Recall::default();
            recall.meet(first, created + SignedDuration::from_secs(after));
            recall.meet(&job, created + SignedDuration::from_mins(5));
            recall.explained().map(|explained| explained.text.clone())
        };
        assert_eq!(explained(&job, 60).as_deref(), Some("a node"));
        assert_eq!(explained(&job, 5), None, "there was hardly time to tell");
        let new = BuildJob { status: None, ..job.clone() };
        assert_eq!(explained(&new, 60), None, "this process found out itself");
    }
}
