//! The artifact exporter: files that a job writes into a directory become its artifacts.
//!
//! - [`ledger`]: which files are to be uploaded, and when, pure
//! - [`command`]: how the agent is asked to upload, pure
//! - [`scan`], [`watch`]: what is in the directory, and what happens to it
//! - [`marks`]: how containers say that they are about to end
//! - [`agent`]: the program that uploads
//! - [`exporter`]: all of it together

pub mod agent;
pub mod command;
pub mod exporter;
pub mod ledger;
pub mod marks;
pub mod scan;
pub mod watch;
