//! Pipelines: YAML or an uploaded JSON document becomes steps, and steps become jobs.
//!
//! Everything here is pure. [`parse`] reads and checks a document, [`expand`] lays its steps out for a build,
//! [`env`] computes what a job sees.

mod attributes;
mod commands;
pub(crate) mod env;
pub(crate) mod expand;
pub(crate) mod gate;
mod interpolate;
mod node;
mod parse;
mod plugins;
mod problem;
mod rules;
pub(crate) mod step;

pub(crate) use expand::expand;
pub(crate) use parse::{from_json, from_stored, from_yaml};
pub(crate) use problem::PipelineProblem;
