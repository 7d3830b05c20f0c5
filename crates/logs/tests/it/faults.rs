use std::time::Duration;

use bk_api::exporters::ChosenSink;
use rstest::rstest;

use crate::{
    receiver::{Behaviour, Receiver},
    world::{World, loki, numbers, otlp, search, until},
};

/// How a receiver becomes a sink.
type Kind = fn(&Receiver) -> ChosenSink;

/// Sends a thousand lines to a server that behaves so, and says what was lost and why.
async fn thousand_lines(kind: Kind, script: Vec<Behaviour>) -> (u64, Option<String>, Vec<String>) {
    let receiver = Receiver::start(script);
    let world = World::new(vec![kind(&receiver)]);
    let lines = world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    let messages = receiver.received().messages();
    let (sent, waiting, lost) = numbers(&report);
    assert_eq!((sent + lost, waiting), (1000, 0), "{report:?}");
    assert!(messages.iter().all(|message| lines.contains(message)));
    if lost == 0 {
        let mut once = messages.clone();
        once.dedup();
        assert_eq!(once, lines, "every line, and in order");
    }
    (lost, report.sinks[0].reason.clone(), messages)
}

#[rstest]
#[tokio::test]
async fn a_server_that_behaves_well(#[values(search, loki, otlp)] kind: Kind) {
    let (_, reason, messages) = thousand_lines(kind, vec![]).await;
    assert_eq!((reason, messages.len()), (None, 1000));
}

#[rstest]
#[tokio::test]
async fn a_server_that_fails_is_full_or_refuses_us_for_a_while(#[values(search, loki, otlp)] kind: Kind) {
    let script = [500, 429, 401, 503].map(|status| Behaviour::Status(status, "not now"));
    let (lost, _, messages) = thousand_lines(kind, script.into()).await;
    assert_eq!((lost, messages.len()), (0, 1000));
}

#[rstest]
#[tokio::test]
async fn a_slow_server(#[values(search, loki, otlp)] kind: Kind) {
    let script = vec![Behaviour::Slow(Duration::from_millis(300)); 3];
    let (lost, _, messages) = thousand_lines(kind, script).await;
    assert_eq!((lost, messages.len()), (0, 1000));
}

/// Followed, a redirection makes a GET of the request, and of its answer a success that nothing has had.
#[rstest]
#[tokio::test]
async fn a_server_that_points_elsewhere(
    #[values(search, loki, otlp)] kind: Kind,
    #[values(301, 307)] status: u16,
) {
    let receiver = Receiver::start(std::iter::repeat_n(Behaviour::Elsewhere(status), 1000));
    let mut world = World::new(vec![kind(&receiver)]);
    world.document.drain_seconds = 1;
    world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 10, 0), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.starts_with(&format!("answered {status} and points to /elsewhere")), "{reason}");
    let requests = &receiver.received().requests;
    assert!(requests.iter().all(|(place, _)| place != "/elsewhere"), "{requests:?}");
}

/// Elasticsearch knows what it has. Others get the batch again; of Loki's store it is known that it keeps one of two that
/// are the same.
#[rstest]
#[case(search, 1000)]
#[case(loki, 1200)]
#[case(otlp, 1200)]
#[tokio::test]
async fn answers_that_break_off(#[case] kind: Kind, #[case] received: usize) {
    let script = vec![Behaviour::CutOff, Behaviour::CutOff];
    let (lost, _, messages) = thousand_lines(kind, script).await;
    assert_eq!((lost, messages.len()), (0, received));
}

#[rstest]
#[tokio::test]
async fn a_batch_that_is_refused_is_lost_with_its_reason(#[values(search, loki, otlp)] kind: Kind) {
    let (lost, reason, messages) = thousand_lines(kind, vec![Behaviour::Status(400, "malformed")]).await;
    assert_eq!((lost, reason.as_deref(), messages.len()), (100, Some("answered 400: malformed"), 900));
}

#[tokio::test]
async fn lines_are_judged_one_by_one() {
    // Of the first hundred, fifty are there, twenty-five are refused, and the others come again.
    let script = vec![Behaviour::Items(vec![201, 400, 429, 201])];
    let (lost, reason, messages) = thousand_lines(search, script).await;
    assert_eq!((lost, reason.as_deref()), (25, Some("answered 400 for a line: kind: because")));
    assert_eq!(messages.len(), 975);
}

#[tokio::test]
async fn a_part_that_is_refused_is_counted() {
    let (lost, reason, _) = thousand_lines(otlp, vec![Behaviour::Rejected(7)]).await;
    assert_eq!(lost, 7);
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("too old")), "{reason:?}");
}

#[rstest]
#[tokio::test]
async fn batches_that_are_too_large_are_divided(#[values(search, loki, otlp)] kind: Kind) {
    let (lost, _, messages) = thousand_lines(kind, vec![Behaviour::AtMost(30)]).await;
    assert_eq!((lost, messages.len()), (0, 1000));
}

#[tokio::test]
async fn answers_that_are_too_long_are_asked_for_in_parts() {
    // To a hundred lines it is of 10 MB.
    let receiver = Receiver::start([Behaviour::Verbose(100 << 10)]);
    let world = World::new(vec![search(&receiver)]);
    let lines = world.write_lines("a.log", 0..100);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (100, 0, 0), "{report:?}");
    assert_eq!(receiver.received().messages(), lines);
}

#[rstest]
#[tokio::test]
async fn a_server_that_comes_late_goes_and_comes_back(#[values(search, loki, otlp)] kind: Kind) {
    let mut receiver = Receiver::absent();
    let world = World::new(vec![kind(&receiver)]);
    let exporter = world.export();
    let mut lines = world.write_lines("a.log", 0..7000);
    receiver.resume();
    until("the first lines are there", || receiver.received().messages().len() > 500).await;
    receiver.kill();
    lines.extend(world.write_lines("a.log", 7000..14_000));
    receiver.resume();
    lines.extend(world.write_lines("a.log", 14_000..21_000));
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (21_000, 0, 0));
    let mut messages = receiver.received().messages();
    if report.sinks[0].name != "search" {
        // A batch whose answer the kill has cut off comes twice.
        messages.dedup();
    }
    assert_eq!(messages, lines);
}

#[tokio::test]
async fn a_sink_that_is_away_does_not_hold_up_another() {
    let (receiver, away) = (Receiver::start([]), Receiver::absent());
    let mut world = World::new(vec![search(&away), search(&receiver)]);
    world.document.drain_seconds = 1;
    world.document.handling.spool_bytes = 1 << 20;
    let exporter = world.export();
    let mut lines = Vec::new();
    for round in 0..20 {
        lines.extend(world.write_lines("a.log", round * 1000..(round + 1) * 1000));
        until("they have arrived", || receiver.received().documents.len() == lines.len()).await;
    }
    let report = world.finish(exporter).await;
    assert_eq!(receiver.received().messages(), lines);
    assert_eq!((report.sinks[1].sent, &report.sinks[1].reason), (20_000, &None));
    let away = &report.sinks[0];
    // A record of the spool has about forty-two bytes, and a batch is in memory.
    assert!((away.sent, away.waiting + away.lost) == (0, 20_000), "{away:?}");
    assert!(away.reason.as_ref().is_some_and(|reason| reason.contains("onnect")), "{away:?}");
}

#[tokio::test]
async fn the_newest_lines_of_a_full_spool_arrive_and_the_others_are_counted() {
    let mut receiver = Receiver::absent();
    let mut world = World::new(vec![search(&receiver)]);
    world.document.handling.spool_bytes = 1 << 20;
    let output = world.path("output/container-0");
    std::fs::create_dir_all(&output).unwrap();
    let exporter = world.export();
    // The output of containers is always taken in, whoever waits: it must not slow the job.
    let mut lines = Vec::new();
    for number in 0..4 {
        let part: Vec<String> = (0..10_000).map(|line| format!("line {}", number * 10_000 + line)).collect();
        let record: Vec<u8> = part
            .chunks(5000)
            .flat_map(|part| {
                let bytes = (part.join("\n") + "\n").into_bytes();
                let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
                [&1_u64.to_le_bytes()[..], &length, &[1, 0, 0, 0], &bytes].concat()
            })
            .collect();
        std::fs::write(output.join(number.to_string()), record).unwrap();
        lines.extend(part);
    }
    std::fs::write(output.join("4"), "").unwrap();
    until("all segments are taken in and removed", || std::fs::read_dir(&output).unwrap().count() == 1).await;
    receiver.resume();
    let report = world.finish(exporter).await;
    let (sent, waiting, lost) = numbers(&report);
    assert!(lost > 10_000 && waiting == 0 && sent + lost == 40_000, "{report:?}");
    let messages = receiver.received().messages();
    assert_eq!(messages.len() as u64, sent);
    assert_eq!(messages[messages.len() - 10_000..], lines[30_000..], "the newest are there");
}
