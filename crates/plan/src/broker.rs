//! The registration broker's decisions: who may register an agent, as what, and what is kept of it.
//!
//! A pod has no agent token. It has a [`ticket`], with which its agent registers once, by way of the operator, and only for its own job.
//!
//! - [`ticket`]: the one-time token: how it is made, and what one that is shown is worth
//! - [`registration`]: whether a pod may register now, and as what
//! - [`session`]: what is kept of an agent that has registered, so that the operator can end its job

pub mod registration;
pub mod session;
pub mod ticket;

pub use registration::{Caller, Refusal, Registration};
pub use session::SessionRecord;
pub use ticket::{Key, Ticket};
