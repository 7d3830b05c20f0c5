//! End to end: real Kubernetes, real kubelet, real containers, the real agent, real git.
//!
//! `cargo xtask test --only e2e` brings up what they need.

mod admission;
mod agents;
mod budget;
mod buildkite_jobs;
mod cancel;
mod command_line;
mod commands;
mod company;
mod configuration;
mod containers;
mod credentials;
mod documents;
mod environments;
mod images;
mod installation;
mod interruptions;
mod job_files;
mod job_metrics;
mod kubectl_jobs;
mod logs;
mod losses;
mod memory;
mod mirrors;
mod outages;
mod pipelines;
mod placement;
mod pods;
mod queues;
mod reaping;
mod registration;
mod restart;
mod restricted;
mod rules;
mod run_job;
mod scale;
mod schema;
mod security;
mod seeing;
mod sessions;
mod takeover;
mod unclustered;
mod unstartable;
mod workloads;
