//! End to end: real Kubernetes, real kubelet, real containers, the real agent, real git.
//!
//! `cargo xtask test --only e2e` brings up what they need.

mod agents;
mod budget;
mod buildkite_jobs;
mod cancel;
mod commands;
mod containers;
mod credentials;
mod environments;
mod images;
mod kubectl_jobs;
mod losses;
mod memory;
mod placement;
mod pods;
mod restart;
mod restricted;
mod scale;
mod schema;
mod unstartable;
mod workloads;
