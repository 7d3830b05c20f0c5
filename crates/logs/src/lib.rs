//! The log exporter of job pods: from whatever the job writes to the sinks, without slowing the job and without losing a line
//! silently.
//!
//! - [`tail`], [`segment`]: the files that are followed, and the output of containers
//! - [`line`], [`joining`], [`secrets`], [`press`]: from bytes to records
//! - [`record`], [`spool`]: records, and where they wait
//! - [`sink`], [`delivery`]: what sinks want and answer, and bringing records there until they have them
//! - [`intake`], [`exporter`]: the parts at work

pub mod delivery;
pub mod exporter;
pub mod intake;
pub mod joining;
pub mod json;
pub mod line;
pub mod press;
pub mod record;
pub mod secrets;
pub mod segment;
pub mod sink;
pub mod spool;
pub mod tail;
