//! The `buildkite-local` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    buildkite_local::cli::main()
}
