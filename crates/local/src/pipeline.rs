//! Pipelines: YAML or an uploaded JSON document becomes steps, and steps become jobs.
//!
//! Everything here is pure. [`parse`] reads and checks a document, [`expand`] lays its steps out for a build,
//! [`env`] computes what a job sees.

mod attributes;
mod branches;
mod checkout;
mod commands;
pub(crate) mod condition;
pub(crate) mod env;
pub(crate) mod expand;
pub(crate) mod gate;
mod interpolate;
mod matrix;
mod node;
mod parse;
mod plugins;
mod problem;
mod rules;
mod secrets;
pub(crate) mod step;
pub(crate) mod trigger;
pub(crate) mod wire;

pub(crate) use expand::expand;
pub(crate) use parse::{from_json, from_stored, from_yaml};
pub(crate) use problem::PipelineProblem;
pub(crate) use rules::signal_name;
