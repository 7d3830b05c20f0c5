//! What every long-running binary of this project needs, in one place:
//!
//! - [`logging`]: structured logs, human or JSON
//! - [`http`]: the only constructor of HTTP clients
//! - [`credentials`]: how requests to servers outside are authenticated
//! - [`exporting`]: what exporters of a job pod ask of the system
//! - [`exposition`]: pages of metrics in the form that a reader asks for
//! - [`jitter`]: what keeps those who failed together from coming back together
//! - [`shutdown`]: one token that ends everything on SIGTERM or SIGINT
//! - [`report`]: an error with its causes on one line
//! - [`table`]: aligned tables for terminals

pub mod credentials;
pub mod exporting;
pub mod exposition;
pub mod http;
pub mod jitter;
pub mod logging;
pub mod report;
pub mod shutdown;
pub mod table;
