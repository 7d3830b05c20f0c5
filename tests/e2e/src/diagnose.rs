//! What a failed test prints: why it failed, and a little of what explains it. The rest is in a file.
#![allow(clippy::print_stdout, reason = "this is a test's output")]

use std::{
    any::Any,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::Value;

use crate::World;

/// Where the files are, as seen from the repository.
const DIRECTORY: &str = "target/e2e";
/// How much of the operator's log is printed, and of each line of it.
const LOG_LINES: usize = 25;
const LINE_LENGTH: usize = 300;

/// The tests that were left out, a line each. `cargo xtask test` counts them.
const LEFT_OUT: &str = "left-out.txt";

/// What was on the namespace when the test failed.
const QUESTIONS: [&[&str]; 5] = [
    &["get", "buildjobs", "-o", "yaml"],
    &["get", "pods", "-o", "wide"],
    &["describe", "pods"],
    &["get", "events", "--sort-by=.lastTimestamp"],
    &["logs", "-l", bk_api::names::LABEL_BUILD_JOB, "--all-containers", "--prefix", "--tail=-1"],
];

/// Prints why a test failed, first and last, and the end of the operator's log; the whole log, the namespace's objects and the logs of its
/// pods go into a file.
pub fn print(world: &World, failure: &str) {
    println!("==== failed: {failure}");
    println!("==== the end of the operator's log");
    print!("{}", digest(&world.operator_log()));
    match keep(world, failure) {
        Ok(path) => println!("==== everything is in {}", path.display()),
        Err(error) => println!("==== what explains it could not be kept: {error:#}"),
    }
    println!("==== failed: {failure}");
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// Writes everything into the test's file, and returns its path as seen from the repository.
fn keep(world: &World, failure: &str) -> Result<PathBuf> {
    let mut report = format!("{failure}\n\n==== the operator's log\n{}", world.operator_log());
    writeln!(report, "==== notes\n{}", world.notes())?;
    let home = world.cluster.home.as_str();
    let pods: &[&[&str]] =
        if world.environment.installed { &[&["describe", "pods", "--namespace", home]] } else { &[] };
    for args in QUESTIONS.iter().chain(pods) {
        writeln!(report, "==== kubectl {}", args.join(" "))?;
        match world.cluster.try_kubectl(args, None) {
            Ok(output) => {
                report.push_str(&String::from_utf8_lossy(&output.stdout));
                report.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            Err(error) => writeln!(report, "{error:#}")?,
        }
    }
    let path = Path::new(DIRECTORY).join(format!("{}.txt", test().replace("::", "-")));
    fs::write(file(&path)?, report)?;
    Ok(path)
}

/// Takes down that this test was left out.
pub(crate) fn leave_out() -> Result<()> {
    let mut list =
        fs::File::options().create(true).append(true).open(file(&Path::new(DIRECTORY).join(LEFT_OUT))?)?;
    Ok(list.write_all(format!("{}\n", test()).as_bytes())?)
}

/// The test's name: a test runs in a thread that is called like it.
fn test() -> String {
    std::thread::current().name().unwrap_or("unknown").to_owned()
}

/// Where a path is, as seen from the repository; its directory is made.
fn file(path: &Path) -> Result<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::create_dir_all(file.parent().unwrap_or(&file))?;
    Ok(file)
}

/// The last lines of the operator's log that are no mere detail.
fn digest(log: &str) -> String {
    let told: Vec<&str> = log.lines().filter(|line| !is_detail(line)).collect();
    let last = &told[told.len().saturating_sub(LOG_LINES)..];
    last.iter().map(|line| line.chars().take(LINE_LENGTH).chain(['\n']).collect::<String>()).collect()
}

/// Whether a line is of a low level. What is no JSON is what a process says that dies.
fn is_detail(line: &str) -> bool {
    let line = serde_json::from_str::<Value>(line).unwrap_or_default();
    matches!(line["level"].as_str(), Some("DEBUG" | "TRACE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_the_last_lines_that_matter_and_the_words_of_a_dying_process() {
        let mut log = String::new();
        for n in 0..40 {
            writeln!(log, "{{\"level\":\"INFO\",\"n\":{n}}}").unwrap();
        }
        log.push_str("{\"level\":\"DEBUG\"}\nthread 'main' panicked\n");
        let digest = digest(&log);
        assert_eq!(digest.lines().count(), LOG_LINES);
        assert!(digest.starts_with("{\"level\":\"INFO\",\"n\":16}\n"), "{digest}");
        assert!(digest.ends_with("\"n\":39}\nthread 'main' panicked\n"), "{digest}");
    }

    #[test]
    fn a_digest_cuts_long_lines_between_characters() {
        assert_eq!(digest(&"ü".repeat(400)), format!("{}\n", "ü".repeat(LINE_LENGTH)));
    }

    #[test]
    fn a_panic_is_told_in_its_own_words() {
        for panic in [Box::new("no") as Box<dyn Any + Send>, Box::new("no".to_owned())] {
            assert_eq!(panic_message(&*panic), "no");
        }
        assert_eq!(panic_message(&7), "a panic without a message");
    }
}
