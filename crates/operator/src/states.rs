//! Buildkite's word on the jobs that wait for it.
//!
//! The controller says which jobs it wants to hear about; one loop asks for all of them in batches and wakes
//! the controller for those whose state has changed, and for the first answer to a new question. Jobs that an agent has
//! are asked about from time to time without being wanted. Nothing here is the truth: after a restart the jobs are simply
//! asked for again.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_api::BuildJob;
use bk_buildkite::stacks::BATCH_MAX;
use bk_plan::remote::{Absence, Remote, RemoteState};
use futures::{StreamExt, future::join_all, stream};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use crate::{
    cache::Cache,
    error::Error,
    intake::{Intake, Intakes},
};

/// Time between two questions while somebody waits. The service allows twenty a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How many batches are asked about at once.
const CONCURRENCY: usize = 4;

/// How old a word may become while an agent has the job. A node that has died says no more, an agent may hang, and the
/// agent that has the job need not be ours: Buildkite alone hears of the end then.
const LEASE: SignedDuration = SignedDuration::from_mins(5);

/// BuildJobs whose remote state has changed.
pub type RemoteChanges = mpsc::UnboundedReceiver<ObjectRef<BuildJob>>;

/// What Buildkite has said, and what we still want to hear.
pub struct RemoteStates {
    intakes: Intakes,
    /// The jobs of each queue.
    queues: Vec<Desk>,
    changes: mpsc::UnboundedSender<ObjectRef<BuildJob>>,
}

/// The jobs of one queue, so that queues are not woken for one another.
#[derive(Default)]
struct Desk {
    entries: Mutex<HashMap<ObjectRef<BuildJob>, Entry>>,
    wanted: Notify,
}

struct Entry {
    job: Uuid,
    remote: Option<Remote>,
    wanted: bool,
    /// Whether the next answer is the first to a question.
    is_new: bool,
    absence: Absence,
}

impl Entry {
    fn new(job: Uuid, wanted: bool) -> Self {
        Self { job, remote: None, wanted, is_new: wanted, absence: Absence::default() }
    }

    /// Notes whether somebody wants to hear; answers whether somebody does who did not before.
    fn want(&mut self, wanted: bool) -> bool {
        let begins = wanted && !self.wanted;
        self.is_new |= begins;
        self.wanted = wanted;
        begins
    }

    /// Takes down an answer, and says whether somebody should hear of it.
    fn record(&mut self, remote: Remote) -> bool {
        let Some(remote) = self.absence.confirm(remote) else {
            return false;
        };
        let before = self.remote.replace(remote);
        let is_new = std::mem::take(&mut self.is_new);
        is_new || before.is_none_or(|before| before.state != remote.state)
    }

    /// When to ask next, if at all.
    fn due(&self) -> Option<Timestamp> {
        if self.wanted {
            return Some(Timestamp::MIN);
        }
        let acquired = self.remote.filter(|remote| remote.state.is_acquired())?;
        acquired.asked_at.checked_add(LEASE).ok()
    }
}

impl RemoteStates {
    /// An empty record for these queues, and the stream of changes to it.
    pub fn new(intakes: Intakes) -> (Arc<Self>, RemoteChanges) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let queues = intakes.all().iter().map(|_| Desk::default()).collect();
        (Arc::new(Self { intakes, queues, changes }), receiver)
    }

    /// What Buildkite last said about a BuildJob's job. One of the same name may have had another job before.
    pub fn get(&self, object: &BuildJob, job: Uuid) -> Option<Remote> {
        let entries = self.desk(object).lock();
        entries.get(&ObjectRef::from_obj(object)).filter(|entry| entry.job == job)?.remote
    }

    /// Says whether Buildkite's word on a BuildJob's job is needed.
    pub fn want(&self, object: &BuildJob, job: Uuid, wanted: bool) {
        let desk = self.desk(object);
        if desk.want(ObjectRef::from_obj(object), job, wanted) {
            desk.wanted.notify_one();
        }
    }

    /// Drops everything about a BuildJob that has ended.
    pub fn forget(&self, object: &BuildJob) {
        self.desk(object).lock().remove(&ObjectRef::from_obj(object));
    }

    /// Asks Buildkite for as long as the process lives. Queues do not wait for one another.
    pub async fn poll(self: Arc<Self>, jobs: Cache<BuildJob>) {
        let queues = self.intakes.all().iter().zip(&self.queues);
        join_all(queues.map(|(way, desk)| self.poll_queue(&way.intake, desk, &jobs))).await;
    }

    async fn poll_queue(&self, intake: &Arc<dyn Intake>, desk: &Desk, jobs: &Cache<BuildJob>) {
        let mut pause = INTERVAL;
        loop {
            let is_here = |object: &ObjectRef<BuildJob>| {
                jobs.get(object).is_some_and(|job| Arc::ptr_eq(self.intakes.of(&job), intake))
            };
            let due = desk.due(Timestamp::now(), is_here);
            if due.is_empty() {
                desk.until_due().await;
                continue;
            }
            match self.ask(intake.as_ref(), desk, &due).await {
                Ok(()) => pause = INTERVAL,
                Err(error) => {
                    pause = (pause * 2).min(MAX_PAUSE).max(error.retry_after().unwrap_or_default());
                    let error = bk_ops::report::one_line(&error);
                    tracing::warn!(error, queue = intake.queue(), ?pause, "cannot read job states");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks about all of them, batch by batch. One that fails does not keep the others from being heard.
    async fn ask(&self, intake: &dyn Intake, desk: &Desk, due: &[Question]) -> Result<(), Error> {
        stream::iter(due.chunks(BATCH_MAX))
            .map(|batch| async move {
                let asked_at = Timestamp::now();
                let jobs: Vec<Uuid> = batch.iter().map(|(_, job)| *job).collect();
                let states = intake.states(&jobs).await?;
                for object in desk.record(batch, &states, asked_at) {
                    // The controller is gone only while the process ends.
                    let _ending = self.changes.send(object);
                }
                Ok(())
            })
            .buffer_unordered(CONCURRENCY)
            .fold(Ok(()), async |all, batch| all.and(batch))
            .await
    }

    fn desk(&self, job: &BuildJob) -> &Desk {
        &self.queues[self.intakes.index(job)]
    }
}

/// A BuildJob, and the job whose state is asked for.
type Question = (ObjectRef<BuildJob>, Uuid);

impl Desk {
    /// Notes whether somebody wants to hear of a job; answers whether that is news.
    fn want(&self, object: ObjectRef<BuildJob>, job: Uuid, wanted: bool) -> bool {
        match self.lock().entry(object) {
            hash_map::Entry::Occupied(mut known) if known.get().job == job => known.get_mut().want(wanted),
            other => {
                other.insert_entry(Entry::new(job, wanted));
                wanted
            }
        }
    }

    /// The jobs to ask for. A BuildJob that was deleted by hand never says that it wants no more, so what is not
    /// here any more is dropped.
    fn due(&self, now: Timestamp, is_here: impl Fn(&ObjectRef<BuildJob>) -> bool) -> Vec<Question> {
        let mut due = Vec::new();
        self.lock().retain(|object, entry| {
            if !is_here(object) {
                return false;
            }
            if entry.due().is_some_and(|at| at <= now) {
                due.push((object.clone(), entry.job));
            }
            true
        });
        due
    }

    /// Waits until somebody wants something, or a word has become old.
    async fn until_due(&self) {
        let next = self.lock().values().filter_map(Entry::due).min();
        let news = self.wanted.notified();
        match next.map(|at| at.duration_since(Timestamp::now()).try_into().unwrap_or_default()) {
            Some(left) => drop(tokio::time::timeout(left, news).await),
            None => news.await,
        }
    }

    /// Takes down Buildkite's answers; the BuildJobs for which they are news.
    fn record(
        &self,
        asked: &[Question],
        states: &HashMap<Uuid, RemoteState>,
        asked_at: Timestamp,
    ) -> Vec<ObjectRef<BuildJob>> {
        let mut entries = self.lock();
        let news = asked.iter().filter(|(object, job)| {
            let entry = entries.get_mut(object).filter(|entry| entry.job == *job);
            let (Some(entry), Some(&state)) = (entry, states.get(job)) else {
                return false;
            };
            entry.record(Remote { state, asked_at })
        });
        news.map(|(object, _)| object.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef<BuildJob>, Entry>> {
        // Nothing inside can be left half-done by a panic.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn said(state: RemoteState, seconds: i64) -> Remote {
        Remote { state, asked_at: at(seconds) }
    }

    #[test]
    fn news_wakes_and_so_does_the_first_answer_to_a_question() {
        let mut entry = Entry::new(Uuid::nil(), true);
        assert!(entry.record(said(RemoteState::Waiting, 0)));
        assert!(!entry.record(said(RemoteState::Waiting, 1)));
        assert!(entry.record(said(RemoteState::Acquired, 2)));
        assert_eq!([false, true, true].map(|wanted| entry.want(wanted)), [false, true, false]);
        assert!(entry.record(said(RemoteState::Acquired, 3)));
        assert!(!entry.record(said(RemoteState::Acquired, 4)));
    }

    #[test]
    fn a_job_that_an_agent_has_is_asked_about_without_being_wanted() {
        let mut entry = Entry::new(Uuid::nil(), false);
        assert_eq!(entry.due(), None);
        entry.record(said(RemoteState::Waiting, 0));
        assert_eq!(entry.due(), None);
        entry.record(said(RemoteState::Acquired, 0));
        assert_eq!(entry.due(), Some(at(300)));
        entry.want(true);
        assert!(entry.due().is_some_and(|due| due < at(0)));
    }
    fn object(name: &str) -> ObjectRef<BuildJob> {
        ObjectRef::new(name).within("ci")
    }

    #[test]
    fn a_queue_is_woken_once_for_each_question() {
        let desk = Desk::default();
        let job = Uuid::from_u128(1);
        assert!(desk.want(object("a"), job, true));
        assert!(!desk.want(object("a"), job, true));
        assert!(!desk.want(object("b"), Uuid::from_u128(2), false));
        assert!(desk.want(object("a"), Uuid::from_u128(3), true), "another job of the same name");
        assert_eq!(desk.due(at(0), |_| true), [(object("a"), Uuid::from_u128(3))]);
    }

    #[test]
    fn what_is_not_here_any_more_is_not_asked_for() {
        let desk = Desk::default();
        for (name, job) in [("a", 1), ("b", 2)] {
            desk.want(object(name), Uuid::from_u128(job), true);
        }
        let due = desk.due(at(0), |found| *found == object("b"));
        assert_eq!(due, [(object("b"), Uuid::from_u128(2))]);
        assert_eq!(desk.lock().len(), 1);
        let states = HashMap::from([(Uuid::from_u128(2), RemoteState::Acquired)]);
        assert_eq!(desk.record(&due, &states, at(1)), [object("b")]);
        assert_eq!(desk.record(&due, &states, at(2)), []);
    }

    #[test]
    fn a_queue_without_questions_waits_until_there_is_one() {
        let desk = Desk::default();
        desk.want(object("a"), Uuid::from_u128(1), false);
        assert!(desk.until_due().now_or_never().is_none());
        desk.wanted.notify_one();
        assert!(desk.until_due().now_or_never().is_some(), "also if nobody waited at that moment");
    }

    #[test]
    fn a_job_that_is_left_out_once_is_not_gone() {
        let mut entry = Entry::new(Uuid::nil(), true);
        assert!(entry.record(said(RemoteState::Waiting, 0)));
        assert!(!entry.record(said(RemoteState::Unknown, 1)));
        assert_eq!(entry.remote, Some(said(RemoteState::Waiting, 0)));
        assert!(entry.record(said(RemoteState::Unknown, 31)));
    }
}
