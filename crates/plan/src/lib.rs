//! The pure core: every decision the operator takes and every pod it makes, as functions from values to
//! values. No client, no clock, no randomness: what they need comes in as arguments.
//!
//! - [`admission`]: what can never run, and what environments get by default
//! - [`intake`]: which of the jobs that wait in Buildkite to take, and the BuildJobs they become
//! - [`batch`]: a pod in a `batch/v1` Job
//! - [`broker`]: which agents may register by way of the operator
//! - [`configuration`]: what can be configured, and what a change of it means
//! - [`exporters`]: what a job gets of the services beside it, and what it asks for and does not get
//! - [`orphans`]: pods that belong to nobody
//! - [`options`]: what a step asks for by variables or by the `buildkite-operator` plugin
//! - [`plugin`]: the `kubernetes` plugin in a job's list of plugins
//! - [`pod`]: BuildJob → Pod
//! - [`facts`]: Pod → what matters about it
//! - [`recall`]: what a process remembers about a BuildJob beyond its caches
//! - [`remote`]: what Buildkite says about a job
//! - [`decide`]: BuildJob + facts + Buildkite's word + now → what to do next
//! - [`election`]: which of several operators works
//! - [`environment`]: BuildJob + BuildEnvironments → containers, and what the pod must have for them
//! - [`nodes`]: pod + node → it fits, or why not
//! - [`standalone`]: BuildJobs from a command line
//! - [`surroundings`]: what a BuildJob refers to by name
//! - [`timeline`]: when a job passed which milestone
//! - [`trace`]: which trace is a job's
//! - [`verdicts`]: the reasons for a job's end, in words

pub mod admission;
pub mod batch;
pub mod broker;
pub mod configuration;
pub mod decide;
pub mod election;
pub mod environment;
pub mod exporters;
pub mod facts;
pub mod intake;
pub mod nodes;
pub mod options;
pub mod origin;
pub mod orphans;
mod pattern;
pub mod plugin;
pub mod pod;
pub mod recall;
pub mod remote;
pub mod slim;
pub mod standalone;
mod strategic_merge;
pub mod surroundings;
pub mod timeline;
pub mod trace;
pub mod verdicts;
