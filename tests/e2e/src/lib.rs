//! The stage for end-to-end tests: a namespace on a real cluster, `buildkite-local` for Buildkite, a git server,
//! and the operator with its own service account's permissions: as a process of this machine, or installed by Helm.
//!
//! - [`world`]: all of it together, and [`world::scenario`], which every test goes through
//! - [`environment`]: what `cargo xtask test` provides
//! - [`cluster`]: the namespace
//! - [`buildkite`]: starting builds and asking how they stand
//! - [`run`]: one job from its step to its end
//! - [`record`]: objects as they were last seen
//! - [`operator`]: the operator: a process, or an installation
//! - [`release`]: the operator as the chart installs it
//! - [`proxy`], [`gate`]: ways to the API server on which requests can fail or be held, and that can be closed
//! - [`crowd`]: many jobs at once
//! - [`agent`], [`node`]: an agent and a node that the test plays itself
//! - [`kwok`]: many nodes
//! - [`helm`]: the chart, rendered and installed
//! - [`audit`]: what it has asked of the API server
//! - [`registry`]: a registry that images are pulled from, or not
//! - [`repository`], [`private_repository`]: a git repository that pods can clone, for everybody or with a key
//! - [`webhook`]: an admission webhook
//! - [`tls`]: both sides of TLS
//! - [`log_sink`], [`elasticsearch`]: places for logs
//! - [`program`]: Prometheus and the like
//! - [`guide`], [`shell`]: what the documents print, and a shell that runs it
//! - [`wait`]: waiting for conditions
//! - [`diagnose`]: what a failed test prints

pub mod agent;
pub mod audit;
pub mod buildkite;
pub mod cluster;
pub mod crowd;
pub mod diagnose;
pub mod elasticsearch;
pub mod environment;
pub mod gate;
pub mod guide;
pub mod helm;
pub mod kwok;
pub mod log_sink;
pub mod node;
pub mod operator;
pub mod private_repository;
pub mod program;
pub mod proxy;
pub mod record;
pub mod registry;
pub mod release;
pub mod repository;
pub mod run;
pub mod shell;
pub mod tls;
pub mod wait;
pub mod webhook;
pub mod world;

pub use run::{Ending, Run, SAY_WHEN};
pub use wait::{eventually, eventually_for};
pub use world::{World, scenario, scenario_installed, scenario_with};
