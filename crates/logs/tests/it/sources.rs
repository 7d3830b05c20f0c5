use std::{fs, os::unix::fs::symlink};

use bk_api::config::Multiline;

use crate::{
    receiver::Receiver,
    world::{World, numbers, search, until},
};

fn record(time: u64, stream: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&time.to_le_bytes()[..], &length.to_le_bytes(), &[stream, 0, 0, 0], bytes].concat()
}

#[tokio::test]
async fn output_of_containers() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    world.document.outputs[0].stderr = false;
    let output = world.path("output/container-0");
    let exporter = world.export();
    fs::create_dir_all(&output).unwrap();
    let segment = [
        record(1_000_000_000_000_000_000, 1, b"first li"),
        record(1_000_000_001_000_000_000, 2, b"not wanted\n"),
        record(1_000_000_002_000_000_000, 1, b"ne\r\nlast"),
    ];
    fs::write(output.join("0"), segment.concat()).unwrap();
    fs::write(output.join("1"), record(3, 0, &77_u64.to_le_bytes())).unwrap();
    until("the first segment is done with", || !output.join("0").exists()).await;
    let report = world.finish(exporter).await;
    let there = receiver.received();
    let lost = "[77 bytes of output were lost here: they came quicker than they could be exported]";
    assert_eq!(there.messages(), ["first line", "last", lost]);
    assert_eq!(numbers(&report), (3, 0, 0));
    let reason = "output of container-0 came quicker than it could be exported";
    assert_eq!((report.lost_bytes, report.reason.as_deref()), (77, Some(reason)));
    let first = there.documents.values().find(|document| document["message"] == "first line").unwrap();
    assert_eq!(first["@timestamp"], "2001-09-09T01:46:40.000000000Z");
    assert_eq!((&first["container"]["name"], &first["stream"]), (&"container-0".into(), &"stdout".into()));
}

#[tokio::test]
async fn every_file_in_a_directory_and_files_that_rotate() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    world.document.paths = vec![];
    world.document.directory = Some(world.path("logs").display().to_string());
    let exporter = world.export();
    fs::create_dir_all(world.path("logs/deep")).unwrap();
    world.append("logs/a", "1\n");
    world.append("logs/deep/b", "2\n");
    until("both are there", || receiver.received().documents.len() == 2).await;
    fs::rename(world.path("logs/a"), world.path("logs/a.1")).unwrap();
    world.append("logs/a", "3\n");
    until("its successor is there", || receiver.received().documents.len() == 3).await;
    fs::copy(world.path("logs/a"), world.path("logs/a.2")).unwrap();
    fs::write(world.path("logs/a"), "4\n").unwrap();
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (4, 0, 0));
    let mut messages = receiver.received().messages();
    messages.sort();
    assert_eq!(messages, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn secrets_of_an_environment_that_comes_later() {
    let receiver = Receiver::start([]);
    let world = World::new(vec![search(&receiver)]);
    let exporter = world.export();
    world.append("a.log", "before\n");
    until("it is there", || receiver.received().documents.len() == 1).await;
    fs::create_dir(world.path("environments")).unwrap();
    world.write_environment("checkout", "A_TOKEN=topsecret\0BUILDKITE_REDACTED_VARS=*_TOKEN\0");
    world.append("a.log", "the token is topse");
    world.append("a.log", "cret!\n");
    until("it is there", || receiver.received().documents.len() == 2).await;
    world.write_environment("container-0", "B_KEY=anothersecret\0BUILDKITE_REDACTED_VARS=*_KEY\0");
    world.append("a.log", "topsecret and anothersecret\n");
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (3, 0, 0));
    assert_eq!(
        receiver.received().messages(),
        ["before", "the token is [REDACTED]!", "[REDACTED] and [REDACTED]"]
    );
}

#[tokio::test]
async fn lines_that_belong_together_and_lines_that_are_too_long() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    world.document.handling.multiline = Some(Multiline::Indented);
    world.document.handling.max_line_bytes = 1000;
    let exporter = world.export();
    world.append("a.log", "error\n  at x\n  at y\nnext\n");
    until("what is not added to does not wait for the next line", || {
        receiver.received().documents.len() == 2
    })
    .await;
    world.append("a.log", &("x".repeat(1500) + "\nbytes \u{1}\n"));
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (5, 0, 0));
    let there = receiver.received();
    let messages = there.messages();
    assert_eq!(messages[..2], ["error\n  at x\n  at y", "next"]);
    assert_eq!((messages[2].len(), messages[3].len(), messages[4].as_str()), (1000, 500, "bytes \u{1}"));
    let part = there.documents.values().find(|document| document["message"] == messages[2].as_str()).unwrap();
    assert_eq!(part["log"]["flags"][0], "partial");
}

#[tokio::test]
async fn what_has_no_file_until_the_end_is_named() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    let at = |name: &str| world.path(name).display().to_string();
    let (here, late, never) = (at("here.log"), at("late/*.log"), at("never/*.log"));
    let empty = at("empty");
    world.document.paths = vec![here, late, never.clone()];
    world.document.directory = Some(empty.clone());
    world.append("here.log", "1\n");
    fs::create_dir_all(world.path("never/directory.log")).unwrap();
    let exporter = world.export();
    until("the first is there", || receiver.received().documents.len() == 1).await;
    fs::create_dir_all(world.path("late")).unwrap();
    world.append("late/a.log", "2\n");
    let report = world.finish(exporter).await;
    assert_eq!((numbers(&report), report.unmatched), ((2, 0, 0), vec![empty, never]));
}

/// Each is shorter than a line may be; all of them are more than the exporter holds.
#[tokio::test]
async fn lines_that_do_not_end_do_not_fill_memory() {
    let receiver = Receiver::start([]);
    let world = World::new(vec![search(&receiver)]);
    let exporter = world.export();
    let text = "x".repeat(60_000);
    for number in 0..200 {
        world.append(&format!("{number}.log"), &text);
    }
    until("parts of them leave", || !receiver.received().documents.is_empty()).await;
    world.append("0.log", "\n");
    let report = world.finish(exporter).await;
    assert_eq!((report.lost_bytes, report.sinks[0].lost), (0, 0), "{report:?}");
    let there: usize = receiver.received().messages().iter().map(String::len).sum();
    assert_eq!(there, 200 * text.len());
}

/// A file that nobody may read, root included.
const UNREADABLE: &str = "/sys/bus/platform/drivers_probe";

#[tokio::test]
async fn files_that_cannot_be_read_are_counted_as_lost() {
    let receiver = Receiver::start([]);
    let world = World::new(vec![search(&receiver)]);
    let exporter = world.export();
    world.append("a.log", "1\n");
    symlink(UNREADABLE, world.path("b.log")).unwrap();
    let report = world.finish(exporter).await;
    assert_eq!((numbers(&report), report.lost_bytes), ((1, 0, 0), fs::metadata(UNREADABLE).unwrap().len()));
    let reason = report.reason.unwrap();
    assert!(reason.starts_with(&format!("cannot read {}: ", world.path("b.log").display())), "{reason}");
}
