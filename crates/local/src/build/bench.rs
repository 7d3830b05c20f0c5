//! A build under test.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::job::Ending;
use super::layout::{self, Place};
use super::{Build, BuildState, Context, Effect, Event, Job, JobKind, JobState, Refusal, Steps, advance};
use crate::pipeline;
use crate::pipeline::condition::{Facts, Literal};
use crate::pipeline::expand::Setting;

/// A build that answers by step label.
pub(crate) struct Bench {
    pub(crate) build: Build,
    pub(super) now: Timestamp,
    ids: u128,
}

impl Bench {
    pub(crate) fn new(yaml: &str) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let build = Build {
            id: Uuid::from_u128(1),
            state: BuildState::Scheduled,
            cancel_requested: false,
            started_at: None,
            finished_at: None,
            steps: Steps::default(),
            jobs: Vec::new(),
        };
        let mut bench = Self { build, now, ids: 1 };
        bench.lay(yaml, None);
        bench
    }

    pub(super) fn lay(&mut self, yaml: &str, uploader: Option<Uuid>) {
        let document = pipeline::from_yaml(yaml).unwrap();
        let taken = self.build.steps.iter().filter_map(|placed| placed.step.key.clone()).collect();
        let mut ids = self.ids;
        let facts = Facts::new([("build.branch", Literal::Text("main".into()))], [].into());
        let setting = Setting { taken: &taken, branch: "main", facts: &facts };
        let laid = pipeline::expand(&document, setting, &mut || {
            ids += 1;
            Uuid::from_u128(ids)
        })
        .unwrap();
        self.ids = ids;
        layout::insert(&mut self.build, laid, Place { uploader, now: self.now, scheduled_at: self.now });
        self.event(&Event::Laid).unwrap();
    }

    pub(super) fn event(&mut self, event: &Event) -> Result<Vec<Effect>, Refusal> {
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        let mut ids = self.ids;
        let mut new_id = || {
            ids += 1;
            Uuid::from_u128(ids)
        };
        let changed = advance(&mut self.build, event, &mut Context { now: self.now, new_id: &mut new_id });
        self.ids = ids;
        changed.map(|advanced| advanced.effects)
    }

    /// The newest job of the step with this label.
    pub(super) fn job(&self, label: &str) -> &Job {
        let step =
            self.build.steps.iter().find(|placed| placed.step.label.as_deref() == Some(label)).unwrap();
        self.build.jobs.iter().rfind(|job| job.step == step.id).unwrap()
    }

    pub(super) fn state(&self, label: &str) -> JobState {
        self.job(label).state
    }

    pub(super) fn start(&mut self, id: Uuid) {
        let now = self.now;
        let job = self.build.jobs.iter_mut().find(|job| job.id == id).unwrap();
        job.acquire(Uuid::nil(), "token".into(), now).unwrap();
        job.start(now).unwrap();
    }

    pub(super) fn end(&mut self, id: Uuid, exit_status: i64) {
        let ending = Ending { exit_status, ..Ending::default() };
        self.event(&Event::Finished { job: id, ending, at: self.now }).unwrap();
    }

    /// Runs the newest job of a step to its end.
    pub(super) fn run(&mut self, label: &str, exit_status: i64) {
        let id = self.job(label).id;
        self.start(id);
        self.end(id, exit_status);
    }

    /// The jobs that somebody or something can move.
    pub(super) fn open(&self) -> Vec<Uuid> {
        let open = |job: &&Job| job.state.is_active() || job.state == JobState::Blocked;
        self.build.jobs.iter().filter(open).map(|job| job.id).collect()
    }

    /// Moves an open job on by one: whoever it waits for answers.
    pub(super) fn answer(&mut self, id: Uuid, exit_status: i64) -> Vec<Effect> {
        let job = self.build.jobs.iter().find(|job| job.id == id).unwrap();
        let event = match (job.kind, job.state) {
            (_, JobState::Blocked) => Event::Unblock { job: id },
            (_, state) if state.is_limited() => Event::Admitted { job: id },
            (JobKind::Trigger, _) if job.child.is_none() && job.state == JobState::Running => {
                Event::ChildStarted { job: id, child: id }
            }
            (JobKind::Trigger, _) => Event::ChildEnded { job: id, passed: exit_status == 0 },
            (_, JobState::Scheduled) => {
                self.start(id);
                return Vec::new();
            }
            _ => {
                let ending = Ending { exit_status, ..Ending::default() };
                Event::Finished { job: id, ending, at: self.now }
            }
        };
        self.event(&event).unwrap()
    }
}
