//! A way to a queue on which every call is measured.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use bk_buildkite::stacks::{FinishJob, Notification};
use bk_plan::remote::RemoteState;
use futures::FutureExt;
use uuid::Uuid;

use super::{Answer, Details, Finished, Intake, Listing};
use crate::{
    error::Error,
    telemetry::{Calls, UNANSWERED},
};

/// What stands for the code of a call that went well.
const WELL: &str = "ok";

/// A way, and who counts what goes along it.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) way: Arc<dyn Intake>,
    pub(super) calls: Calls,
}

impl Measured {
    fn measure<'a, T: 'a>(&'a self, call: &'static str, answer: Answer<'a, T>) -> Answer<'a, T> {
        async move {
            let begin = Instant::now();
            let answer = answer.await;
            self.calls.buildkite(call, code(answer.as_ref().err()), begin.elapsed());
            answer
        }
        .boxed()
    }
}

/// What came of a call: the status that the service refused it with, if it has answered.
fn code(error: Option<&Error>) -> String {
    match error {
        None => WELL.to_owned(),
        Some(Error::Buildkite(error)) => {
            error.status().map_or_else(|| UNANSWERED.to_owned(), |status| status.as_u16().to_string())
        }
        Some(_) => UNANSWERED.to_owned(),
    }
}

impl Intake for Measured {
    fn queue(&self) -> &str {
        self.way.queue()
    }

    fn join(&self) -> Answer<'_, ()> {
        self.measure("register", self.way.join())
    }

    fn leave(&self) -> Answer<'_, ()> {
        self.measure("deregister", self.way.leave())
    }

    fn list(&self, pages: u32) -> Answer<'_, Listing> {
        self.measure("list", self.way.list(pages))
    }

    fn reserve<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashSet<Uuid>> {
        self.measure("reserve", self.way.reserve(jobs))
    }

    fn details(&self, job: Uuid) -> Answer<'_, Details> {
        self.measure("details", self.way.details(job))
    }

    fn states<'a>(&'a self, jobs: &'a [Uuid]) -> Answer<'a, HashMap<Uuid, RemoteState>> {
        self.measure("states", self.way.states(jobs))
    }

    fn finish<'a>(&'a self, job: Uuid, end: &'a FinishJob) -> Answer<'a, Finished> {
        self.measure("finish", self.way.finish(job, end))
    }

    fn notify(&self, lines: Vec<Notification>) -> Answer<'_, ()> {
        self.measure("notify", self.way.notify(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        intake::fake::Fake,
        telemetry::{Form, Metrics},
    };

    #[tokio::test]
    async fn calls_are_counted_by_what_came_of_them() {
        let (fake, metrics) = (Arc::new(Fake::default()), Metrics::default());
        let measured = Measured { way: fake.clone(), calls: metrics.calls.clone() };
        fake.fail("list", 429, 1);
        assert!(measured.list(1).await.is_err());
        assert!(measured.list(1).await.is_ok());
        let page = String::from_utf8(metrics.page(Form::Text)).unwrap();
        for line in [
            "buildkite_operator_buildkite_calls_total{call=\"list\",code=\"429\"} 1",
            "buildkite_operator_buildkite_calls_total{call=\"list\",code=\"ok\"} 1",
            "buildkite_operator_buildkite_call_seconds_count{call=\"list\"} 2",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
