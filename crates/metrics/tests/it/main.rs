//! The metrics exporter as a whole.
#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod real;
mod receiver;
mod scrape;
mod sending;
mod world;
