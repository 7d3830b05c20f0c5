//! `buildkite-operator repo-mirror`: the init container that prepares a checkout.

use std::process::ExitCode;

use bk_mirrors::borrow::{self, BorrowArgs};

/// Prepares what it can. It succeeds always: without a mirror the agent clones.
pub(super) fn run(args: BorrowArgs) -> ExitCode {
    if let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        runtime.block_on(borrow::run(args, std::io::stdout()));
        // A volume that does not answer may hold a thread for ever.
        runtime.shutdown_background();
    }
    ExitCode::SUCCESS
}
