//! The operator's API: custom resources, configuration, and the names and labels that bind objects together.
//! Types only; nothing here talks to a cluster.
//!
//! - [`build_job`]: one job to run, and what became of it
//! - [`build_environment`]: a container environment with everything it needs, under a name
//! - [`repo_mirror`]: a git repository of which the cluster keeps a copy
//! - [`container_use`], [`placement`], [`credentials`], [`exporters`]: what both of them say about containers, nodes,
//!   git and the services around a job
//! - [`params`]: what configuration and pipelines both say about a pod's containers
//! - [`verdict`]: why a job ended the way it did
//! - [`config`]: the ConfigMap that configures the operator
//! - [`compact`]: JSON that is kept as text
//! - [`spelling`]: which known name somebody may have meant
//! - [`names`]: object names, labels and annotations
//! - [`crds`]: the custom resource definitions as installed

#[allow(clippy::duplicated_attributes, unreachable_pub, reason = "what the derive macro takes and makes")]
pub mod build_environment;
#[allow(clippy::duplicated_attributes, unreachable_pub, reason = "what the derive macro takes and makes")]
pub mod build_job;
pub mod compact;
pub mod config;
#[allow(unreachable_pub, reason = "what the derive macro makes")]
pub mod container_use;
pub mod crds;
pub mod credentials;
pub mod exporters;
pub mod names;
pub mod params;
#[allow(unreachable_pub, reason = "what the derive macro makes")]
pub mod placement;
#[allow(clippy::duplicated_attributes, unreachable_pub, reason = "what the derive macro takes and makes")]
pub mod repo_mirror;
mod schema;
pub mod spelling;
pub mod verdict;

pub use build_environment::{BuildEnvironment, BuildEnvironmentSpec};
pub use build_job::{BuildJob, BuildJobSpec, BuildJobStatus, Phase, WorkloadKind};
pub use compact::CompactObject;
pub use repo_mirror::{RepoMirror, RepoMirrorSpec, RepoMirrorStatus};
pub use verdict::{Fault, Verdict, VerdictCode};
