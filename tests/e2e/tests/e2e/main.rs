//! End to end: real Kubernetes, real kubelet, real containers, the real agent, real git.
//!
//! `cargo xtask test --only e2e` brings up what they need.

mod buildkite_jobs;
mod cancel;
mod commands;
mod credentials;
mod environments;
mod images;
mod kubectl_jobs;
mod pods;
mod restart;
mod restricted;
mod schema;
mod unstartable;
