//! What the agent of a Buildkite job says about itself, as `key=value`: that it is the one the job asked for.

use bk_api::build_job::BuildkiteJob;

use super::PodSettings;

/// Spellings of the default queue, which an agent joins by naming none.
const DEFAULT_QUEUE: [&str; 4] = ["_default", "__default__", "~", "-"];

/// The job's query rules. What was applied by hand has none, and its queue is taken to be the operator's.
pub(super) fn of(job: &BuildkiteJob, settings: &PodSettings) -> Vec<String> {
    let mut tags = job.agent_query_rules.clone();
    let queue = job.queue.as_ref().unwrap_or(&settings.queue);
    let named = tags.iter().any(|tag| tag.split('=').next() == Some("queue"));
    if !named && !DEFAULT_QUEUE.contains(&queue.as_str()) {
        tags.push(format!("queue={queue}"));
    }
    tags
}
