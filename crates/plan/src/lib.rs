//! The pure core: every decision the operator takes and every pod it makes, as functions from values to
//! values. No client, no clock, no randomness: what they need comes in as arguments.
//!
//! - [`intake`]: which of the jobs that wait in Buildkite to take, and the BuildJobs they become
//! - [`batch`]: a pod in a `batch/v1` Job
//! - [`orphans`]: pods that belong to nobody
//! - [`plugin`]: the `kubernetes` plugin in a job's list of plugins
//! - [`pod`]: BuildJob → Pod
//! - [`facts`]: Pod → what matters about it
//! - [`recall`]: what a process remembers about a BuildJob beyond its caches
//! - [`remote`]: what Buildkite says about a job
//! - [`decide`]: BuildJob + facts + Buildkite's word + now → what to do next
//! - [`environment`]: BuildJob + BuildEnvironments → containers, and what the pod must have for them
//! - [`surroundings`]: what a BuildJob refers to by name
//! - [`verdicts`]: the reasons for a job's end, in words

pub mod batch;
pub mod decide;
pub mod environment;
pub mod facts;
pub mod intake;
pub mod orphans;
pub mod plugin;
pub mod pod;
pub mod recall;
pub mod remote;
mod strategic_merge;
pub mod surroundings;
pub mod verdicts;
