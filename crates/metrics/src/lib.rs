//! The metrics exporter: files that a job writes in Prometheus' text format become metrics of the cluster.
//!
//! - [`family`]: metrics and how they are written, pure
//! - [`text`]: reading the text format, pure
//! - [`collection`]: many files as one page, with the job's labels, pure
//! - [`grouping`]: where a Pushgateway keeps the metrics of a job, pure
//! - [`otlp`]: the same metrics as an OTLP request, pure
//! - [`files`], [`page`]: what the job's files say now
//! - `server`, [`receiver`]: how metrics leave the pod
//! - [`exporter`]: all of it together

pub mod collection;
pub mod exporter;
pub mod family;
pub mod files;
pub mod grouping;
pub mod otlp;
pub mod page;
pub mod receiver;
mod server;
pub mod text;
