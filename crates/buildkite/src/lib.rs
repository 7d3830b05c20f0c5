//! What Buildkite says and understands: wire types shared by our clients and by `buildkite-local`, and the
//! clients of the Stacks and GraphQL APIs that the operator uses.
//!
//! - [`agent`]: the Agent API's requests and answers
//! - [`artifacts`]: those about artifacts
//! - [`stacks`]: the Stacks API's requests and answers
//! - [`graphql`]: the GraphQL API, as far as jobs are concerned
//! - [`session`]: registering agents, and acting for them
//! - [`stand_in`]: an agent that takes a job only to end it
//! - [`client`]: the HTTP client with its retries
//! - [`credentials`]: the token of every call
//! - [`error`]: what can go wrong, and whether to try again

pub mod agent;
pub mod artifacts;
mod budget;
pub mod client;
pub mod credentials;
pub mod error;
mod gate;
pub mod graphql;
pub mod session;
pub mod stacks;
pub mod stand_in;

pub use client::StacksClient;
pub use credentials::{Credentials, TokenKind};
pub use error::Error;
pub use graphql::GraphqlClient;
pub use session::{Registrar, Session};
pub use stand_in::StandIn;
