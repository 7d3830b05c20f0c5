//! What a release build of buildkite-local takes, over HTTP, as a process of its own.

pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod logs;
pub(crate) mod queue;
pub(crate) mod server;
