//! The operator's API: custom resources, configuration, and the names and labels that bind objects together.
//! Types only; nothing here talks to a cluster.
//!
//! - [`build_job`]: one job to run, and what became of it
//! - [`verdict`]: why a job ended the way it did
//! - [`config`]: the ConfigMap that configures the operator
//! - [`names`]: object names, labels and annotations
//! - [`crds`]: the custom resource definitions as installed

#[allow(clippy::duplicated_attributes, unreachable_pub, reason = "what the derive macro takes and makes")]
pub mod build_job;
pub mod config;
pub mod crds;
pub mod names;
pub mod verdict;

pub use build_job::{BuildJob, BuildJobSpec, BuildJobStatus, Phase};
pub use verdict::{Fault, Verdict, VerdictCode};
