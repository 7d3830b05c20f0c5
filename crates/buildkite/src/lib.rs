//! What Buildkite says and understands: wire types shared by our client and by `buildkite-local`, and the
//! client of the Stacks API that the operator uses.
//!
//! - [`stacks`]: the Stacks API's requests and answers
//! - [`client`]: the HTTP client with its retries
//! - [`error`]: what can go wrong, and whether to try again

pub mod client;
pub mod error;
pub mod stacks;

pub use client::StacksClient;
pub use error::Error;
