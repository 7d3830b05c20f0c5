//! The operator: what runs in the cluster and what people type.
//!
//! The logic is in `bk_plan`, which is pure; this crate observes, asks it what to do, and does it.
//!
//! - [`admission`]: webhooks that refuse what can never run
//! - [`cli`]: the command line
//! - [`settings`]: flags, ConfigMap and Secret → everything the operator needs to know
//! - [`shifts`]: the work by one configuration after the other
//! - [`spawner`]: Buildkite's queue → BuildJobs
//! - [`controller`]: BuildJobs → pods → verdicts
//! - [`cache`]: objects as the API server last told us of them
//! - [`intake`]: the way to the jobs of a Buildkite queue
//! - [`leadership`]: which of several operators works
//! - [`notices`]: lines for jobs' timelines, on their way to Buildkite
//! - [`token`]: the agent token in its Secret
//! - [`states`]: Buildkite's word on the jobs that wait for it
//! - [`wakefulness`]: whether what is known may be from before a sleep
//! - [`telemetry`]: what the operator tells about itself
//! - [`broker`]: registrations of agents, and ends of jobs for them
//! - [`shim`]: the shim's ConfigMap
//! - [`permissions`]: what it may do in the cluster
//! - [`error`]: what can go wrong

pub mod admission;
#[cfg(test)]
mod api_server;
pub mod broker;
pub mod cache;
mod certificates;
pub mod cli;
pub mod controller;
pub mod error;
pub mod intake;
pub mod leadership;
pub mod notices;
pub mod permissions;
pub mod settings;
pub mod shifts;
pub mod shim;
pub mod spawner;
pub mod states;
mod surroundings;
pub mod telemetry;
pub mod token;
pub mod wakefulness;

/// Caches of thousands of small objects take a fifth less memory than with the C library's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How the allocator is set up when the process begins. It would keep a pool of memory for every core times four, and what was
/// freed for ten seconds: more than all jobs take as long as there are hundreds of them. A second is enough for what comes many times in it,
/// such as the buffers of connections.
#[expect(unsafe_code, reason = "the allocator reads its settings from a symbol of this name")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_SETTINGS: &[u8; 64] =
    b"narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0,tcache_max:32768\0";

/// The operator's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the operator introduces itself to HTTP servers.
pub const USER_AGENT: &str = concat!("buildkite-operator/", env!("CARGO_PKG_VERSION"));
