//! The pure core, proven: rendered pods, decisions, and a simulated world in which both meet faults.

mod admission;
mod completeness;
mod decide;
#[path = "../simulator/decisions.rs"]
mod decisions;
mod environment;
mod facts;
mod fixtures;
mod holdings;
mod plugin;
mod pod;
mod registration_wait;
mod secrecy;
mod verdicts;
