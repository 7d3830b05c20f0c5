//! Builds: the states of jobs, and what an event changes. Pure; the store loads and saves.

pub(crate) mod advance;
pub(crate) mod attributes;
#[cfg(test)]
pub(crate) mod bench;
pub(crate) mod concurrency;
pub(crate) mod dependencies;
mod effect;
pub(crate) mod job;
pub(crate) mod layout;
mod retry;
pub(crate) mod state;
mod steps;
pub(crate) mod verdict;

pub(crate) use advance::{Context, Event, advance};
pub(crate) use effect::Effect;
pub(crate) use job::{Job, JobKind, Policy, Refusal};
pub(crate) use state::{BuildState, JobState, StepOutcome, StepState};
pub(crate) use steps::Steps;
pub(crate) use verdict::Build;
