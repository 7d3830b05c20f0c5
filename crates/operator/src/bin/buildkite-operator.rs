//! The operator and its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    buildkite_operator::cli::operator()
}
