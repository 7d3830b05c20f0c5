use std::{fs, time::Duration};

use bk_api::config::{FileSink, LogSink};

use crate::{
    receiver::{Behaviour, Receiver},
    world::{World, chosen, numbers, search, until},
};

#[tokio::test]
async fn it_gives_up_when_no_sink_takes_anything_and_says_why() {
    let receiver = Receiver::start(std::iter::repeat_n(Behaviour::Status(401, "who are you"), 1000));
    let mut world = World::new(vec![search(&receiver)]);
    world.document.drain_seconds = 1;
    world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 10, 0));
    assert_eq!(report.sinks[0].reason.as_deref(), Some("answered 401: who are you"));
}

#[tokio::test]
async fn when_told_to_stop_it_goes_on_until_the_job_has_ended() {
    let receiver = Receiver::start([]);
    let world = World::new(vec![search(&receiver)]);
    let exporter = world.export();
    let mut lines = world.write_lines("a.log", 0..10);
    until("they are there", || receiver.received().documents.len() == 10).await;
    world.stop.cancel();
    lines.extend(world.write_lines("a.log", 10..20));
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (20, 0, 0));
    assert_eq!(receiver.received().messages(), lines);
}

#[tokio::test]
async fn when_told_to_stop_it_ends_within_the_grace_period() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver)]);
    world.document.grace_seconds = 5;
    world.write_lines("a.log", 0..10);
    world.append("a.log", "a line that never ends");
    let exporter = world.export();
    world.stop.cancel();
    let report = tokio::time::timeout(Duration::from_secs(5), exporter).await.expect("in time").unwrap();
    assert_eq!(numbers(&report), (11, 0, 0), "{report:?}");
}

#[tokio::test]
async fn when_the_grace_period_is_over_it_leaves_what_it_has() {
    let receiver = Receiver::absent();
    let mut world = World::new(vec![search(&receiver)]);
    world.document.grace_seconds = 3;
    world.write_lines("a.log", 0..10);
    let exporter = world.export();
    world.stop.cancel();
    let report = tokio::time::timeout(Duration::from_secs(10), exporter).await.expect("in time").unwrap();
    assert_eq!(numbers(&report), (0, 10, 0));
}

#[tokio::test]
async fn a_sink_that_cannot_be_used_is_said_and_the_others_work() {
    let receiver = Receiver::start([]);
    let mut world = World::new(vec![search(&receiver), search(&receiver)]);
    let credentials = world.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(
        credentials.join("ca.crt"),
        "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    world.document.sinks[0].directory = Some(credentials.display().to_string());
    world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!((report.sinks[0].sent, report.sinks[0].waiting, report.sinks[1].sent), (0, 10, 10));
    let reason = report.sinks[0].reason.as_ref().unwrap();
    assert!(reason.starts_with("cannot use the certificates in"), "{reason}");
}

#[tokio::test]
async fn a_file_on_a_volume() {
    let mut world = World::new(vec![chosen("volume", LogSink::File(FileSink::default()))]);
    let volume = world.path("volume");
    fs::create_dir(&volume).unwrap();
    world.document.sinks[0].directory = Some(volume.display().to_string());
    let lines = world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (1000, 0, 0));
    let written = fs::read_to_string(volume.join("pod-1.ndjson")).unwrap();
    let messages: Vec<String> = written
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(messages, lines);
}
