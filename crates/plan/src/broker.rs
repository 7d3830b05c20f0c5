//! The registration broker's decisions: who may register an agent, as what, and what is kept of it.
//!
//! A pod has no agent token. It has a [`ticket`], with which its agent registers once, by way of the operator, and only for its own job.
//!
//! - [`ticket`]: the one-time token: how it is made, and what one that is shown is worth
//! - [`registration`]: whether a pod may register now, and as what
//! - [`session`]: what is kept of an agent that has registered, so that the operator can end its job

use std::iter::once;

pub mod registration;
pub mod session;
pub mod ticket;

pub use registration::{Caller, Refusal, Registration};
pub use session::SessionRecord;
pub use ticket::{Key, Ticket};

/// The names of all Secrets of a broker: the one with its keys is called like it, those with sessions after it.
pub fn secrets(broker: &str) -> impl Iterator<Item = String> {
    once(broker.to_owned()).chain(session::secret_names(broker))
}
