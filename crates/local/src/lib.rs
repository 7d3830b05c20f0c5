//! A Buildkite that runs on a laptop: the Agent API and the Stacks API over an embedded database, pipelines,
//! a part of the REST API, and a page.
//!
//! ```no_run
//! # async fn run() -> anyhow::Result<()> {
//! use buildkite_local::{Config, Server};
//!
//! let server = Server::bind(Config::default()).await?;
//! println!("http://{}", server.local_addr());
//! server.run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod artifact;
mod build;
mod cache;
pub mod cli;
mod config;
mod depot;
mod dispatch;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod oidc;
mod pipeline;
mod problem;
mod prune;
mod rate_limit;
mod secret;
mod server;
mod store;
mod timer;

pub use config::{Config, ConfigError, Intervals};
pub use fault::{Action, Answer, BadFault, Fault, Faults, Standing};
pub use secret::SecretsError;
pub use server::{Server, ServerError};
