//! The real agent, unmodified, against `buildkite-local`: every command that talks to the API, in real jobs, and
//! both sides agree on the outcome. No cluster is needed: `cargo xtask test --only agent`.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod annotations;
mod artifacts;
mod caches;
mod control;
mod coverage;
mod documents;
mod exporter;
mod life;
mod logs;
mod meta_data;
mod process;
mod stage;
mod steps;
mod trust;
mod uploads;
