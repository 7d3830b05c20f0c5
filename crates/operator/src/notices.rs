//! Lines for the timelines of jobs, on their way to Buildkite: gathered, sent in batches, and tried again.
//!
//! They are a courtesy: the BuildJob's status has the record. A crash loses those that were not sent.

mod outbox;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::outbox::Outbox;
use crate::intake::{Intake, Intakes};

/// How long lines are gathered before they are sent.
const GATHERING: Duration = Duration::from_millis(100);

/// How long the last lines may take when the operator stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Takes lines. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notices(Arc<[Outbox]>);

/// What sends lines.
#[derive(Debug)]
pub struct Courier(Arc<[Outbox]>);

/// Where lines are put, and what sends them.
pub fn channel(intakes: &Intakes) -> (Notices, Courier) {
    let outboxes: Arc<[Outbox]> = intakes.all().iter().map(|way| Outbox::new(way.intake.clone())).collect();
    (Notices(outboxes.clone()), Courier(outboxes))
}

impl Notices {
    /// Puts a line on its way to a job's timeline.
    pub fn send(&self, intake: &Arc<dyn Intake>, job_uuid: Uuid, text: &str) {
        if let Some(outbox) = self.0.iter().find(|outbox| outbox.is_for(intake)) {
            outbox.put(job_uuid, text, Timestamp::now());
        }
    }
}

impl Courier {
    /// Sends what there is, until `end`; then what is left, in a few seconds. Queues do not wait for one another.
    pub async fn run(self, end: CancellationToken) {
        join_all(self.0.iter().map(|outbox| serve(outbox, &end))).await;
    }
}

async fn serve(outbox: &Outbox, end: &CancellationToken) {
    let working = async {
        loop {
            outbox.filled().await;
            sleep(GATHERING).await;
            outbox.deliver().await;
        }
    };
    // What was being sent just then stays, and is sent again: better twice than never.
    end.run_until_cancelled(working).await;
    let farewell = async {
        while !outbox.is_empty() {
            outbox.deliver().await;
            sleep(GATHERING).await;
        }
    };
    if timeout(FAREWELL, farewell).await.is_err() {
        tracing::warn!(queue = outbox.queue(), "some notifications could not be sent before the end");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::intake::fake::Fake;

    #[tokio::test]
    async fn a_queue_whose_service_hangs_does_not_keep_others_waiting() {
        let (hanging, other) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
        hanging.hang();
        let outboxes: Arc<[Outbox]> = Arc::new([Outbox::new(hanging), Outbox::new(other.clone())]);
        let courier = tokio::spawn(Courier(outboxes.clone()).run(CancellationToken::new()));
        for text in ["one", "two"] {
            for outbox in outboxes.iter() {
                outbox.put(Uuid::nil(), text, Timestamp::now());
            }
            let sent = async {
                while !outboxes[1].is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(30), sent).await.unwrap();
        }
        assert!(!outboxes[0].is_empty());
        assert_eq!(other.notified().len(), 2);
        courier.abort();
    }

    #[rstest]
    #[case::at_once(0)]
    #[case::although_buildkite_fails(1)]
    #[tokio::test]
    async fn what_is_left_is_sent_before_the_end(#[case] failures: u32) {
        let service = Arc::new(Fake::default());
        service.fail("notify", 503, failures);
        let outboxes: Arc<[Outbox]> = Arc::new([Outbox::new(service.clone())]);
        outboxes[0].put(Uuid::nil(), "it ended", Timestamp::now());
        let end = CancellationToken::new();
        end.cancel();
        Courier(outboxes).run(end).await;
        let texts: Vec<_> = service.notified().into_iter().flatten().map(|line| line.detail).collect();
        assert_eq!(texts, ["it ended"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_hangs_does_not_keep_the_operator_from_stopping() {
        let service = Arc::new(Fake::default());
        service.hang();
        let outboxes: Arc<[Outbox]> = Arc::new([Outbox::new(service)]);
        outboxes[0].put(Uuid::nil(), "it ended", Timestamp::now());
        let end = CancellationToken::new();
        end.cancel();
        timeout(FAREWELL * 2, Courier(outboxes).run(end)).await.unwrap();
    }
}
