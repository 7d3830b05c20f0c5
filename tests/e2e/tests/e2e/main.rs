//! End to end: real Kubernetes, real kubelet, real containers, the real agent, real git.
//!
//! `cargo xtask test --only e2e` brings up what they need.

mod buildkite_jobs;
mod cancel;
mod commands;
mod environments;
mod images;
mod kubectl_jobs;
mod restart;
mod schema;
mod unstartable;
