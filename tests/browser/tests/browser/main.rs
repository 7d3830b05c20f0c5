//! The page in a real browser, with a real server behind it. Agents are played over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod ansi;
#[path = "../../../../crates/local/tests/server/harness.rs"]
#[allow(dead_code, reason = "what the server's own tests use is not all needed here")]
mod harness;
mod large;
mod life;
mod safety;
mod visit;
