//! What holds the end of a bootstrap that is killed. A shell stands in for the bootstrap, and another for who waits for the end of its output.

use crate::hooks::in_container;
use crate::pod::{Pod, copy_shim, until};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A bootstrap that runs the first hook, and ends as it is told.
struct Bootstrap {
    pod: Pod,
    /// Waits for the bootstrap.
    reader: Child,
    begin: Instant,
}

impl Bootstrap {
    fn new(phases: &str) -> Self {
        let pod = Pod::new();
        for directory in [pod.marks(""), pod.outside("environments")] {
            fs::create_dir_all(directory).unwrap();
        }
        let hook = pod.outside("environment");
        copy_shim(&hook);
        let script = "$HOOK; echo $$ > $PIDS/bootstrap; read end; test $end != KILL || kill -KILL $$";
        let mut reader = Command::new("sh");
        in_container(&pod, &mut reader);
        let reader = reader
            .args(["-c", "echo $$ > $PIDS/reader; sh -c \"$BOOTSTRAP\" | cat; exit 0"])
            .envs([("BOOTSTRAP", script), ("BUILDKITE_BOOTSTRAP_PHASES", phases)])
            .env("HOOK", hook)
            .env("PIDS", pod.outside(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the bootstrap runs", || pod.outside("bootstrap").exists());
        Self { pod, reader, begin: Instant::now() }
    }

    fn end(&mut self, how: &str) {
        writeln!(self.reader.stdin.as_mut().unwrap(), "{how}").unwrap();
        self.begin = Instant::now();
    }

    /// Reads its output to the end, which comes when nobody holds it any more.
    fn output_ends(&mut self) -> thread::JoinHandle<String> {
        let mut output = self.reader.stdout.take().unwrap();
        thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            text
        })
    }

    fn fulfil(&self) {
        fs::create_dir_all(self.pod.marks("drained")).unwrap();
        File::create(self.pod.marks("drained/a")).unwrap();
    }

    /// Whether the process that waits for the bootstrap is stopped.
    fn is_stopped(&self) -> bool {
        let pid = fs::read_to_string(self.pod.outside("reader")).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
    }
}

impl Drop for Bootstrap {
    fn drop(&mut self) {
        let _ = self.reader.kill();
        let _ = self.reader.wait();
    }
}

#[test]
fn the_output_of_a_bootstrap_that_is_killed_ends_when_its_artifacts_are_uploaded() {
    let mut bootstrap = Bootstrap::new("plugin,command");
    bootstrap.end("KILL");
    until("a wish", || bootstrap.pod.marks("drain/a").exists());
    let output = bootstrap.output_ends();
    thread::sleep(Duration::from_millis(300));
    assert!(!output.is_finished(), "it is held");
    bootstrap.fulfil();
    assert_eq!(output.join().unwrap(), "");
    assert!(bootstrap.reader.wait().unwrap().success());
}

#[test]
fn a_bootstrap_that_has_waited_itself_is_not_held() {
    let mut bootstrap = Bootstrap::new("plugin,command");
    bootstrap.fulfil();
    bootstrap.end("well");
    bootstrap.output_ends().join().unwrap();
    assert!(bootstrap.begin.elapsed() < Duration::from_secs(3), "{:?}", bootstrap.begin.elapsed());
    assert!(!bootstrap.pod.marks("drain/a").exists());
}

#[test]
fn where_no_command_runs_there_is_nothing_to_hold() {
    let mut bootstrap = Bootstrap::new("plugin,checkout");
    bootstrap.end("well");
    bootstrap.output_ends().join().unwrap();
    assert!(!bootstrap.pod.marks("drain/a").exists());
}

#[test]
fn a_slow_upload_stops_who_waits_for_a_time() {
    let mut bootstrap = Bootstrap::new("plugin,command");
    bootstrap.end("KILL");
    let output = bootstrap.output_ends();
    until("it is stopped", || bootstrap.is_stopped());
    assert!(bootstrap.begin.elapsed() > Duration::from_secs(6), "{:?}", bootstrap.begin.elapsed());
    bootstrap.fulfil();
    output.join().unwrap();
    assert!(bootstrap.reader.wait().unwrap().success(), "it goes on");
}

#[test]
fn an_exporter_that_is_away_holds_nobody_for_long() {
    let mut bootstrap = Bootstrap::new("plugin,command");
    bootstrap.end("KILL");
    let said = bootstrap.output_ends().join().unwrap();
    assert!(
        said.contains("may be missing among the artifacts: the artifact exporter has given no sign"),
        "{said}"
    );
    assert!(bootstrap.reader.wait().unwrap().success(), "it goes on");
}
