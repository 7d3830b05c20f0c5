//! Pipelines: YAML or an uploaded JSON document becomes steps, each with its place in the document.
//!
//! Everything here is pure. `buildkite-local` runs what it reads; the operator's command line checks it.
//!
//! - [`node`]: a document whose values know their places
//! - [`parse`]: the document as steps, or what is wrong with it
//! - [`step`]: what steps are once they are read
//! - [`interpolate`]: variables of a build, filled in
//! - [`variables`]: a step as the variables of its job

mod attributes;
pub mod branches;
pub mod checkout;
mod commands;
pub mod condition;
pub mod gate;
pub mod interpolate;
pub mod matrix;
pub mod node;
pub mod parse;
mod plugins;
mod problem;
mod rules;
pub mod secrets;
pub mod step;
pub mod trigger;
pub mod variables;

pub use parse::{from_json, from_stored, from_yaml};
pub use problem::PipelineProblem;
pub use rules::signal_name;
