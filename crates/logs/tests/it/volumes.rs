//! File sinks on volumes that misbehave.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use bk_api::{
    config::{FileSink, LogSink},
    exporters::ExporterReport,
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::world::{World, chosen, numbers, until};

/// A job with a file sink, whose volume is a directory that the test makes.
fn world() -> (World, PathBuf) {
    let mut world = World::new(vec![chosen("volume", LogSink::File(FileSink::default()))]);
    let volume = world.path("volume");
    world.document.sinks[0].directory = Some(volume.display().to_string());
    (world, volume)
}

fn messages(text: &str) -> Vec<String> {
    let message = |line: &str| {
        let document: Value = serde_json::from_str(line).unwrap();
        document["message"].as_str().unwrap().to_owned()
    };
    text.lines().map(message).collect()
}

/// Waits until a write has failed, as the exporter has warned once it has taken everything in and delivered nothing.
async fn until_it_has_tried(world: &World) {
    let spool = world.path("spool/0");
    until("everything is in the spool", || fs::metadata(&spool).is_ok_and(|data| data.len() > 20_000)).await;
}

async fn ends_well(
    world: &World,
    exporter: JoinHandle<ExporterReport>,
    file: &std::path::Path,
    lines: &[String],
) {
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (1000, 0, 0), "{report:?}");
    assert_eq!(messages(&fs::read_to_string(file).unwrap()), lines);
}

#[tokio::test]
async fn one_that_is_not_there_yet() {
    let (world, volume) = world();
    let lines = world.write_lines("a.log", 0..1000);
    let exporter = world.export();
    until_it_has_tried(&world).await;
    fs::create_dir(&volume).unwrap();
    ends_well(&world, exporter, &volume.join("pod-1.ndjson"), &lines).await;
}

#[tokio::test]
async fn one_that_is_full_for_a_while() {
    let (world, volume) = world();
    fs::create_dir(&volume).unwrap();
    let file = volume.join("pod-1.ndjson");
    symlink("/dev/full", &file).unwrap();
    let lines = world.write_lines("a.log", 0..1000);
    let exporter = world.export();
    until_it_has_tried(&world).await;
    fs::remove_file(&file).unwrap();
    ends_well(&world, exporter, &file, &lines).await;
}

#[tokio::test]
async fn one_that_stays_full_is_named() {
    let (mut world, volume) = world();
    world.document.drain_seconds = 1;
    fs::create_dir(&volume).unwrap();
    symlink("/dev/full", volume.join("pod-1.ndjson")).unwrap();
    world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 1000, 0), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.contains("No space left on device"), "{reason}");
}

#[tokio::test]
async fn one_that_refuses() {
    let (mut world, volume) = world();
    world.document.drain_seconds = 1;
    fs::create_dir_all(volume.join("pod-1.ndjson")).unwrap();
    world.write_lines("a.log", 0..1000);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 1000, 0), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("cannot write: Is a directory"), "{reason}");
}

#[tokio::test]
async fn one_that_is_slow() {
    let (world, volume) = world();
    fs::create_dir(&volume).unwrap();
    let file = volume.join("pod-1.ndjson");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let lines = world.write_lines("a.log", 0..1000);
    let exporter = world.export();
    // Whoever opens a pipe waits for somebody to read from it, and whoever writes to it for him to have done so.
    until_it_has_tried(&world).await;
    let reading = std::thread::spawn(move || {
        let (mut pipe, mut text, mut some) = (File::open(file).unwrap(), Vec::new(), [0; 16 << 10]);
        loop {
            match pipe.read(&mut some).unwrap() {
                0 => return String::from_utf8(text).unwrap(),
                read => text.extend(&some[..read]),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let report = world.finish(exporter).await;
    assert_eq!(numbers(&report), (1000, 0, 0), "{report:?}");
    assert_eq!(messages(&reading.join().unwrap()), lines);
}
