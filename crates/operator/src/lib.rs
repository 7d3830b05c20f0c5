//! The operator: what runs in the cluster and what people type.
//!
//! The logic is in `bk_plan`, which is pure; this crate observes, asks it what to do, and does it.
//!
//! - [`cli`]: the command line
//! - [`settings`]: flags, ConfigMap and Secret → everything the operator needs to know
//! - [`spawner`]: Buildkite's queue → BuildJobs
//! - [`controller`]: BuildJobs → pods → verdicts
//! - [`cache`]: objects as the API server last told us of them
//! - [`details`]: what Buildkite knows about a job that we are about to run
//! - [`states`]: Buildkite's word on the jobs that wait for it
//! - [`shim`]: the shim's ConfigMap
//! - [`error`]: what can go wrong

pub mod cache;
pub mod cli;
pub mod controller;
pub mod details;
pub mod error;
pub mod settings;
pub mod shim;
pub mod spawner;
pub mod states;

/// The operator's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the operator introduces itself to HTTP servers.
pub const USER_AGENT: &str = concat!("buildkite-operator/", env!("CARGO_PKG_VERSION"));
