//! What commands print is kept for a reader beside, and goes its usual way.

use crate::pod::{Container, End, Pod, shim, until};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const SEGMENT: usize = 8 * 1024 * 1024;

/// A record of a segment: its stream and what it holds.
type Record = (u8, Vec<u8>);

fn segment(pod: &Pod, number: u32) -> PathBuf {
    pod.marks("output/a").join(number.to_string())
}

/// The records of a segment, and their times.
fn records(bytes: &[u8]) -> (Vec<Record>, Vec<u64>) {
    let (mut records, mut times, mut rest) = (Vec::new(), Vec::new(), bytes);
    while let Some((header, more)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        assert_eq!(header[13..], [0; 3]);
        times.push(u64::from_le_bytes(header[..8].try_into().unwrap()));
        records.push((header[12], more[..length].to_vec()));
        rest = &more[length..];
    }
    assert!(rest.is_empty(), "a record is cut");
    (records, times)
}

/// All that was written to a stream, as the segments have it.
fn text(records: &[Record], stream: u8) -> String {
    let bytes =
        records.iter().filter(|(own, _)| *own == stream).flat_map(|(_, bytes)| bytes.clone()).collect();
    String::from_utf8(bytes).unwrap()
}

fn start(pod: &Pod, keep: &str, script: &str) -> (Container, Container) {
    let agent = pod.agent_with(&["--jobs", "a", "--standalone"], &[]);
    let mut program = Command::new(shim());
    program.stdout(File::create(pod.outside("printed")).unwrap());
    let job = pod.job_with(program, "a", &["--standalone", "--keep", keep], &["sh", "-c", script]);
    (agent, job)
}

fn printed(pod: &Pod) -> String {
    fs::read_to_string(pod.outside("printed")).unwrap()
}

#[test]
fn both_streams_are_kept_in_order_and_printed() {
    let pod = Pod::new();
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let begin = since_1970();
    let script = "echo one; read _; echo two >&2; read _; echo three; exit 5";
    let (agent, mut job) = start(&pod, "stdout,stderr", script);
    let holds = |count: usize| {
        let whole = || fs::read(segment(&pod, 0)).is_ok_and(|bytes| records(&bytes).0.len() == count);
        until("records", whole);
    };
    holds(1);
    job.say("");
    holds(2);
    job.say("");
    assert_eq!(job.wait(), End { errors: "two\n".to_owned(), ..End::plain(5) });
    agent.wait();
    assert_eq!(printed(&pod), "one\nthree\n");
    let (records, times) = records(&fs::read(segment(&pod, 0)).unwrap());
    let expected = [(1, "one\n"), (2, "two\n"), (1, "three\n")];
    assert_eq!(records, expected.map(|(stream, text)| (stream, text.as_bytes().to_vec())));
    assert!(times.is_sorted(), "{times:?}");
    assert!(u128::from(times[0]) >= begin && u128::from(times[2]) <= since_1970(), "{times:?}");
}

#[test]
fn a_stream_that_is_not_kept_goes_its_own_way() {
    let pod = Pod::new();
    let (agent, job) = start(&pod, "stderr", "echo one; echo two >&2");
    assert_eq!(job.wait().errors, "two\n");
    agent.wait();
    assert_eq!(printed(&pod), "one\n");
    let (records, _) = records(&fs::read(segment(&pod, 0)).unwrap());
    assert_eq!((text(&records, 1).as_str(), text(&records, 2).as_str()), ("", "two\n"));
}

#[test]
fn what_is_left_in_the_pipe_at_the_end_is_kept() {
    let pod = Pod::new();
    // 60 KB fit into the pipe, so the command has ended before most of it is read.
    let (agent, job) = start(&pod, "stdout", "head -c 60000 /dev/zero | tr '\\0' x");
    assert_eq!(job.wait(), End::plain(0));
    agent.wait();
    let (records, _) = records(&fs::read(segment(&pod, 0)).unwrap());
    assert_eq!(text(&records, 1), "x".repeat(60_000));
    assert_eq!(printed(&pod).len(), 60_000);
}

#[test]
fn an_orphan_that_holds_the_pipe_does_not_hold_up_the_end() {
    let pod = Pod::new();
    let (agent, job) = start(&pod, "stdout", "sleep 600 & echo $!");
    assert_eq!(job.wait(), End::plain(0));
    agent.wait();
    let orphan = printed(&pod);
    Command::new("sh").args(["-c", &format!("kill {orphan}")]).status().unwrap();
}

#[test]
fn a_reader_that_falls_behind_loses_output_and_the_command_waits_for_nobody() {
    let pod = Pod::new();
    let more = |count: usize| format!("head -c {count} /dev/zero | tr '\\0' x");
    // Ten segments' worth are written at once; eight may wait.
    let script = format!("{}; read _; {}", more(10 * SEGMENT), more(100));
    let (agent, mut job) = start(&pod, "stdout", &script);
    until("all is printed", || fs::metadata(pod.outside("printed")).unwrap().len() == 10 * SEGMENT as u64);
    until("the last segment that has room", || segment(&pod, 7).exists());
    assert!(!segment(&pod, 8).exists());
    let mut kept = 0;
    for number in 0..8 {
        let bytes = fs::read(segment(&pod, number)).unwrap();
        kept += text(&records(&bytes).0, 1).len();
        fs::remove_file(segment(&pod, number)).unwrap();
    }
    job.say("");
    assert_eq!(job.wait(), End::plain(0));
    agent.wait();
    let (records, _) = records(&fs::read(segment(&pod, 8)).unwrap());
    let lost = u64::from_le_bytes(records[0].1.clone().try_into().unwrap());
    assert_eq!((records[0].0, records.len()), (0, 2));
    assert_eq!(kept as u64 + lost, 10 * SEGMENT as u64, "{kept} kept, {lost} lost");
    assert_eq!(text(&records, 1).len(), 100);
}
