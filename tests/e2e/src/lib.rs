//! The stage for end-to-end tests: a namespace on a real cluster, `buildkite-local` for Buildkite, a git server,
//! and the operator as its own process with its own service account's permissions.
//!
//! - [`world`]: all of it together, and [`world::scenario`], which every test goes through
//! - [`environment`]: what `cargo xtask test` provides
//! - [`cluster`]: the namespace
//! - [`buildkite`]: starting builds and asking how they stand
//! - [`run`]: one job from its step to its end
//! - [`record`]: objects as they were last seen
//! - [`operator`]: the operator's process
//! - [`proxy`]: a way to the API server that can fail
//! - [`agent`], [`node`]: an agent and a node that the test plays itself
//! - [`kwok`]: many nodes
//! - [`audit`]: what it has asked of the API server
//! - [`registry`]: a registry that images are pulled from, or not
//! - [`repository`], [`private_repository`]: a git repository that pods can clone, for everybody or with a key
//! - [`wait`]: waiting for conditions
//! - [`diagnose`]: what a failed test prints

pub mod agent;
pub mod audit;
pub mod buildkite;
pub mod cluster;
pub mod diagnose;
pub mod environment;
pub mod kwok;
pub mod node;
pub mod operator;
pub mod private_repository;
pub mod proxy;
pub mod record;
pub mod registry;
pub mod repository;
pub mod run;
pub mod wait;
pub mod world;

pub use run::{Ending, Run};
pub use wait::eventually;
pub use world::{World, scenario};
