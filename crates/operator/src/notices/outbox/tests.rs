use super::*;
use crate::intake::fake::Fake;

fn put(outbox: &Outbox, job: u128, text: &str) {
    outbox.put(Uuid::from_u128(job), text, HAPPENED);
}

const HAPPENED: Timestamp = Timestamp::UNIX_EPOCH;

#[tokio::test]
async fn lines_go_in_batches_and_in_order() {
    let service = Arc::new(Fake::default());
    let outbox = Outbox::new(service.clone());
    for job in 0..1_500 {
        put(&outbox, job, "waits");
    }
    while !outbox.is_empty() {
        outbox.deliver().await;
    }
    let batches = service.notified();
    assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 500]);
    assert!(batches.iter().flatten().map(|line| line.job_uuid).is_sorted());
    assert!(batches.iter().flatten().all(|line| line.timestamp.is_none()), "what is on time needs no date");
}

#[test]
fn each_change_is_told_once_and_no_job_for_ever() {
    let outbox = Outbox::new(Arc::new(Fake::default()));
    for text in ["a", "a", "b", "a", "", "a"] {
        put(&outbox, 1, text);
    }
    put(&outbox, 2, "a");
    let told: Vec<_> = outbox.lock().lines.iter().map(|line| line.text.clone()).collect();
    assert_eq!(told, ["a", "b", "a", "a"]);
    for number in 0..200 {
        put(&outbox, 3, &number.to_string());
    }
    assert_eq!(outbox.lock().lines.len(), 104);
}

#[tokio::test]
async fn what_fails_for_a_while_is_sent_later_with_its_time() {
    for status in [503, 429, 401] {
        let service = Arc::new(Fake::default());
        service.fail("notify", status, 1);
        let outbox = Outbox::new(service.clone());
        put(&outbox, 1, "waits");
        outbox.deliver().await;
        assert!(!outbox.is_empty() && outbox.lock().closed_until.is_some(), "{status}");
        outbox.deliver().await;
        assert!(!outbox.is_empty(), "not before its time");
        outbox.lock().closed_until = None;
        outbox.deliver().await;
        assert!(outbox.is_empty(), "{status}");
        assert_eq!(service.notified()[0][0].timestamp, Some(HAPPENED));
    }
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let service = Arc::new(Fake::default());
    service.fail("notify", 422, 1);
    let outbox = Outbox::new(service.clone());
    put(&outbox, 1, "waits");
    outbox.deliver().await;
    assert!(outbox.is_empty() && service.notified().is_empty());
}

#[test]
fn the_oldest_lines_are_dropped_when_there_are_too_many() {
    let outbox = Outbox::new(Arc::new(Fake::default()));
    let jobs = CAPACITY as u128;
    for job in 0..jobs {
        put(&outbox, job, "waits");
    }
    let sending = outbox.lock().batch(Instant::now()).unwrap();
    for job in jobs..jobs + 10 {
        put(&outbox, job, "waits");
    }
    let mut pile = outbox.lock();
    assert_eq!((pile.lines.len(), pile.dropped), (CAPACITY, 10));
    pile.sent(sending.end);
    assert_eq!(
        pile.lines.len(),
        CAPACITY + 10 - BATCH_MAX,
        "those that were sent and dropped are counted once"
    );
    assert_eq!(pile.lines[0].job, Uuid::from_u128(BATCH_MAX as u128));
}
