//! Pipelines: their steps, which [`bk_pipeline`] reads, become jobs.
//!
//! Everything here is pure. [`expand`] lays steps out for a build, [`env`] computes what a job sees.

pub(crate) mod env;
pub(crate) mod expand;
pub(crate) mod facts;
pub(crate) mod wire;

pub(crate) use bk_pipeline::{
    PipelineProblem, condition, from_json, from_stored, from_yaml, gate, signal_name, step, trigger,
};
pub(crate) use expand::expand;
