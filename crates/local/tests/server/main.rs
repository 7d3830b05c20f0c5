//! The server over real HTTP, as agents, stacks and scripts use it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod agents;
mod artifacts;
mod cache;
mod data;
mod dispatch;
mod faults;
mod git;
mod graphql;
mod harness;
mod inside;
mod limits;
mod logs;
mod manners;
mod oidc;
mod page;
mod pipelines;
mod prune;
mod rest;
mod rest_lists;
mod secrets;
mod stack_rules;
mod stacks;
mod time;
