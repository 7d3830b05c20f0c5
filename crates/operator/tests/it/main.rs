//! The command line as users meet it: the built programs, run as processes of their own.
//!
//! - [`help`]: what they say about themselves
//! - [`failures`]: one line that says what is wrong, and a non-zero exit
//! - [`crds`]: the custom resource definitions
//! - [`chart`]: what the chart has from the code
//! - [`command_line`]: the commands that talk to a cluster
//! - [`plan`]: the pod that a job becomes
//! - [`run_job`]: one command as a BuildJob
//! - [`plugin`]: the hooks of the Buildkite plugin
//! - [`lint`]: what is wrong with pipelines and manifests
//! - [`migrate`]: settings of Buildkite's own controller
//! - [`log_exporter`]: the process that exports a job's logs
//! - [`documents`]: what the documents say about all of this
//! - [`blocks`]: every block of YAML and of commands in every document
//! - [`reference`]: the pages that are written from types
//! - [`pipelines`]: what authors of pipelines are told
//! - [`mirrors`]: what is said of mirrors of git repositories, and how job pods prepare checkouts
//! - [`migrating`]: what users of Buildkite's own controller are told

mod artifact_exporter;
mod blocks;
mod chart;
mod command_line;
mod crds;
mod documents;
mod failures;
mod guides;
mod help;
mod lint;
mod log_exporter;
mod metrics_exporter;
mod migrate;
mod migrating;
mod mirrors;
mod pipelines;
mod plan;
mod plugin;
mod reference;
mod run_job;

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
