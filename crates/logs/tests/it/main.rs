//! The exporter as a whole, from files and output to servers that behave well and badly.
//!
//! - [`faults`]: sinks that are down, slow, full, refusing, or answer partly
//! - [`endings`]: how it ends, and what it reports
//! - [`sources`]: files, output, secrets and joined lines
//! - [`shapes`]: what each kind of sink receives
//! - [`tls`]: servers with certificates of an authority of their own
//! - [`volumes`]: file sinks on volumes that misbehave
//! - [`receiver`], [`world`]: what the tests are made of
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod endings;
mod faults;
mod receiver;
mod shapes;
mod sources;
mod tls;
mod volumes;
mod world;
