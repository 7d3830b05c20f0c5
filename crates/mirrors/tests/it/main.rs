//! Mirrors with real git: a server that speaks git's HTTP protocol, the syncer's work, and jobs that borrow.
//!
//! - [`keeping`]: mirrors are made, fetched, tidied and rebuilt
//! - [`borrowing`]: checkouts out of mirrors, as the agent goes on with them
//! - [`readers`]: twenty borrowers at work while everything changes
//! - [`access`]: credentials, and servers that do not answer
//! - [`agent`]: the real agent on prepared checkouts; not run by default
//! - [`lfs`]: files of Git LFS
//! - [`port`]: the endpoint that asks for a fetch
//! - [`large`]: what it saves, measured; not run by default

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod agent;
mod borrowing;
mod keeping;
mod large;
mod lfs;
mod origin;
mod port;
mod readers;
mod scene;
