//! The pure core, proven: rendered pods, decisions, and a simulated world in which both meet faults.

mod decide;
mod environment;
mod facts;
mod fixtures;
mod plugin;
mod pod;
mod simulator;
mod verdicts;
