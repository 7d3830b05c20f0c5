//! The contract with agents, stacks and scripts: every endpoint, who may call it, and what it answers.
//!
//! - [`endpoints`]: the table of all endpoints
//! - [`matrix`]: what holds for every row of the table: tokens, ids, bodies, methods
//! - [`statuses`]: calls in order, with the status of each
//! - [`traps`]: what breaks clients in ways that are hard to see
//! - [`routes`]: the table is complete

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod documents;
mod endpoints;
#[allow(dead_code, reason = "the other tests of the server use the rest of it")]
#[path = "../server/harness.rs"]
mod harness;
mod matrix;
mod routes;
mod scene;
mod statuses;
mod traps;
