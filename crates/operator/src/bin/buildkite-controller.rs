//! `buildkite-operator run` under the name that Buildkite's own controller made familiar.

use std::process::ExitCode;

fn main() -> ExitCode {
    buildkite_operator::cli::controller()
}
