//! A way to a queue along which only the one that works may write.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bk_buildkite::stacks::{FinishJob, Notification};
use bk_plan::remote::RemoteState;
use futures::FutureExt;
use uuid::Uuid;

use super::{Answer, Details, Finished, Intake, Listing};
use crate::{error::Error, leadership::Tenure};

/// A way, and for how long this process may write along it.
#[derive(Debug)]
pub(super) struct Fenced {
    pub(super) way: Arc<dyn Intake>,
    pub(super) tenure: Tenure,
}

impl Fenced {
    /// A call that changes something, unless another replica may be at it by now.
    fn write<'a, T: 'a>(&'a self, call: Answer<'a, T>) -> Answer<'a, T> {
        async move { if self.tenure.holds() { call.await } else { Err(Error::TooLate) } }.boxed()
    }
}

impl Intake for Fenced {
    fn queue(&self) -> &str {
        self.way.queue()
    }

    fn join(&self) -> Answer<'_, ()> {
        self.write(self.way.join())
    }

    fn leave(&self) -> Answer<'_, ()> {
        self.write(self.way.leave())
    }

    fn list(&self, pages: u32) -> Answer<'_, Listing> {
        self.way.list(pages)
    }

    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>> {
        self.write(self.way.reserve(jobs))
    }

    fn details(&self, job: Uuid) -> Answer<'_, Details> {
        self.way.details(job)
    }

    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>> {
        self.way.states(jobs)
    }

    fn finish<'a>(&'a self, job: Uuid, end: &'a FinishJob) -> Answer<'a, Finished> {
        self.write(self.way.finish(job, end))
    }

    fn notify(&self, lines: Vec<Notification>) -> Answer<'_, ()> {
        self.write(self.way.notify(lines))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::intake::fake::Fake;

    /// Which calls are refused, by name.
    async fn refused(way: &Fenced) -> Vec<&'static str> {
        let (job, end) = (Uuid::from_u128(1), FinishJob { exit_status: 1, detail: "no".to_owned() });
        let answers = [
            ("join", way.join().await.err()),
            ("list", way.list(1).await.err()),
            ("reserve", way.reserve(&[job]).await.err()),
            ("details", way.details(job).await.err()),
            ("states", way.states(&[job]).await.err()),
            ("finish", way.finish(job, &end).await.err()),
            ("notify", way.notify(Vec::new()).await.err()),
            ("leave", way.leave().await.err()),
        ];
        let too_late = |error: &Option<Error>| matches!(error, Some(Error::TooLate));
        answers.iter().filter(|(_, error)| too_late(error)).map(|(call, _)| *call).collect()
    }

    #[tokio::test]
    async fn whoever_has_no_lease_asks_and_changes_nothing() {
        const WRITES: [&str; 5] = ["join", "reserve", "finish", "notify", "leave"];
        let (fake, tenure) = (Arc::new(Fake::default()), Tenure::default());
        let way = Fenced { way: fake.clone(), tenure: tenure.clone() };
        assert_eq!(refused(&way).await, WRITES, "never held");
        assert!(fake.notified().is_empty(), "what is refused is not sent");
        tenure.set(Some(Instant::now() + Duration::from_mins(1)));
        assert!(refused(&way).await.is_empty());
        assert_eq!(fake.notified().len(), 1);

        // It was about to write when it fell asleep, and the Lease was gone when it woke.
        let late = way.notify(Vec::new());
        tenure.set(Some(Instant::now()));
        assert!(matches!(late.await, Err(Error::TooLate)));
        assert_eq!(refused(&way).await, WRITES);
        assert_eq!(fake.notified().len(), 1, "what is refused is not sent");
    }
}
