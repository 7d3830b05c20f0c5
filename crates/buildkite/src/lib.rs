//! What Buildkite says and understands: wire types shared by our client and by `buildkite-local`, and the
//! client of the Stacks API that the operator uses.
//!
//! - [`agent`]: the Agent API's requests and answers
//! - [`artifacts`]: those about artifacts
//! - [`stacks`]: the Stacks API's requests and answers
//! - [`client`]: the HTTP client with its retries
//! - [`error`]: what can go wrong, and whether to try again

pub mod agent;
pub mod artifacts;
pub mod client;
pub mod error;
pub mod stacks;

pub use client::StacksClient;
pub use error::Error;
