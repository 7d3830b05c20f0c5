//! The command line as users meet it: the built programs, run as processes of their own.
//!
//! - [`help`]: what they say about themselves
//! - [`failures`]: one line that says what is wrong, and a non-zero exit
//! - [`crds`]: the custom resource definitions
//! - [`plan`]: the pod that a job becomes
//! - [`documents`]: what the documents say about all of this
//! - [`migrating`]: what users of Buildkite's own controller are told

mod crds;
mod documents;
mod failures;
mod guides;
mod help;
mod migrating;
mod plan;

use assert_cmd::Command;

/// A program of this package in an empty environment, so that a developer's own settings do not matter.
fn program(name: &str) -> Command {
    let mut command = Command::cargo_bin(name).expect("cargo builds the package's programs for its tests");
    // Whoever debugs something else must not get backtraces from us.
    command.env_clear().env("RUST_BACKTRACE", "1");
    command
}

/// `buildkite-operator`.
fn operator() -> Command {
    program("buildkite-operator")
}

/// What a program that succeeds prints.
fn output(command: &mut Command) -> String {
    let success = command.assert().success().stderr("");
    String::from_utf8(success.get_output().stdout.clone()).expect("the output is text")
}
