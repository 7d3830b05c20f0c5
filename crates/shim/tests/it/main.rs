//! The real shim, with plain processes standing in for the agent and its bootstraps.
//!
//! `BUILDKITE_SHIM=target/shim/buildkite-shim` tests the binary that ships instead of the debug build.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of this crate is tests")]

mod deaths;
mod delivery;
mod fence;
mod hooks;
mod keeper;
mod orders;
mod output;
mod pod;
mod preparation;
mod process;
mod proof;
mod signals;
mod turns;
mod usage;
