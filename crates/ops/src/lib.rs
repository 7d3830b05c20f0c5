//! What every long-running binary of this project needs, in one place:
//!
//! - [`logging`]: structured logs, human or JSON
//! - [`http`]: the only constructor of HTTP clients
//! - [`shutdown`]: one token that ends everything on SIGTERM or SIGINT
//! - [`report`]: an error with its causes on one line

pub mod http;
pub mod logging;
pub mod report;
pub mod shutdown;
