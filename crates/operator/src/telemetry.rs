//! What the operator tells about itself: metrics, traces of jobs, health, and Events where somebody has to do something.

mod announcer;
mod health;
mod measured;
mod metrics;
mod profile;
mod server;
mod traces;

pub use announcer::Announcer;
pub use health::Health;
pub(crate) use measured::measured;
pub(crate) use metrics::{Calls, Places, calls::UNANSWERED};
pub use metrics::{Form, Metrics};
pub use profile::serve_profiles;
pub(crate) use server::farewell;
pub use server::{bind, serve};
pub use traces::{TraceArgs, Traces, channel};

/// Where the parts of the operator report to. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    /// Numbers.
    pub metrics: Metrics,
    /// What became of each job, step by step.
    pub traces: Traces,
    /// Whether the operator does its work.
    pub health: Health,
    /// Events.
    pub announcer: Announcer,
}
