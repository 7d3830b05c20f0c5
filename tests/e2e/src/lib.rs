//! The stage for end-to-end tests: a namespace on a real cluster, `buildkite-local` for Buildkite, a git server,
//! and the operator as its own process with its own service account's permissions.
//!
//! - [`world`]: all of it together, and [`world::scenario`], which every test goes through
//! - [`environment`]: what `cargo xtask test` provides
//! - [`cluster`]: the namespace
//! - [`buildkite`]: starting builds and asking how they stand
//! - [`operator`]: the operator's process
//! - [`repository`]: a git repository that pods can clone
//! - [`wait`]: waiting for conditions
//! - [`diagnose`]: what a failed test prints

pub mod buildkite;
pub mod cluster;
pub mod diagnose;
pub mod environment;
pub mod operator;
pub mod repository;
pub mod wait;
pub mod world;

pub use wait::eventually;
pub use world::{World, scenario};
