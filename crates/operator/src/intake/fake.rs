//! A queue for tests.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bk_buildkite::stacks::{FinishJob, Notification};
use bk_plan::{
    intake::{Candidate, JobDetails},
    remote::RemoteState,
};
use futures::FutureExt;
use uuid::Uuid;

use super::{Answer, Details, Finished, Intake, Listing};
use crate::error::Error;

/// A queue of jobs that wait. Each call may be made to fail, and notifications to hang.
#[derive(Debug, Default)]
pub(crate) struct Fake(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    jobs: Vec<Candidate>,
    /// With what, and how often, each call is still to fail.
    failing: HashMap<&'static str, (u16, u32)>,
    notified: Vec<Vec<Notification>>,
    hangs: bool,
}

impl Fake {
    /// A queue with these jobs.
    pub(crate) fn with(jobs: impl IntoIterator<Item = Candidate>) -> Self {
        Self(Mutex::new(State { jobs: jobs.into_iter().collect(), ..State::default() }))
    }

    /// Lets the next calls of a kind fail with this status.
    pub(crate) fn fail(&self, call: &'static str, status: u16, times: u32) {
        self.lock().failing.insert(call, (status, times));
    }

    /// Lets notifications never be answered.
    pub(crate) fn hang(&self) {
        self.lock().hangs = true;
    }

    /// The notifications that were taken, batch by batch.
    pub(crate) fn notified(&self) -> Vec<Vec<Notification>> {
        self.lock().notified.clone()
    }

    fn call(&self, call: &'static str) -> Result<(), Error> {
        match self.lock().failing.get_mut(call).filter(|(_, times)| *times > 0) {
            None => Ok(()),
            Some((status, times)) => {
                *times -= 1;
                Err(Error::Buildkite(bk_buildkite::Error::Status {
                    attempt: call,
                    status: (*status).try_into().unwrap(),
                    message: "down".to_owned(),
                    retry_after: None,
                }))
            }
        }
    }

    fn state_of(&self, job: Uuid) -> RemoteState {
        let is_here = self.lock().jobs.iter().any(|candidate| candidate.uuid == job.to_string());
        if is_here { RemoteState::Waiting } else { RemoteState::Unknown }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intake for Fake {
    fn queue(&self) -> &'static str {
        "q"
    }

    fn join(&self) -> Answer<'_, ()> {
        async { self.call("join") }.boxed()
    }

    fn leave(&self) -> Answer<'_, ()> {
        async { self.call("leave") }.boxed()
    }

    fn list(&self, _: u32) -> Answer<'_, Listing> {
        async {
            self.call("list")?;
            Ok(Listing { jobs: self.lock().jobs.clone(), pages: 1, ..Listing::default() })
        }
        .boxed()
    }

    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>> {
        async {
            self.call("reserve")?;
            let ours = jobs.iter().copied().filter(|job| self.state_of(*job) == RemoteState::Waiting);
            Ok(ours.collect())
        }
        .boxed()
    }

    fn details(&self, job: Uuid) -> Answer<'_, Details> {
        async move {
            self.call("details")?;
            Ok(match self.state_of(job) {
                RemoteState::Waiting => Details::Known(JobDetails::default()),
                state => Details::Ended(state),
            })
        }
        .boxed()
    }

    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>> {
        async {
            self.call("states")?;
            Ok(jobs.iter().map(|job| (*job, self.state_of(*job))).collect())
        }
        .boxed()
    }

    fn finish<'a>(&'a self, _: Uuid, _: &'a FinishJob) -> Answer<'a, Finished> {
        async { self.call("finish").map(|()| Finished::Now) }.boxed()
    }

    fn notify(&self, lines: Vec<Notification>) -> Answer<'_, ()> {
        if self.lock().hangs {
            return std::future::pending().boxed();
        }
        async {
            self.call("notify")?;
            self.lock().notified.push(lines);
            Ok(())
        }
        .boxed()
    }
}
