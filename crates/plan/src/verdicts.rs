//! The reasons for a job's end, in words.
//!
//! A pod shows many signs at once; these functions pick the one that explains the others. What takes a pod away
//! as a whole outranks exit statuses; running out of memory outranks 137; the first container in turn that failed
//! explains those after it; a sidecar counts only while the job waits for it.
//!
//! - [`start`]: what keeps a pod from starting
//! - [`image`]: why an image cannot be had
//! - [`container`]: why a container cannot run, or how it ended
//! - [`loss`]: how a pod or its agent was lost
//! - [`refusal`]: why the API server does not take a pod
//! - [`registration`]: what keeps an agent from registering
//! - [`evidence`]: what was seen, on a few short lines
//! - [`secrets`]: what no line may hold

mod container;
mod evidence;
mod image;
mod loss;
mod refusal;
mod registration;
mod secrets;
mod start;

use bk_api::{
    Phase, Verdict, VerdictCode,
    verdict::{Chapter, NO_STATUS},
};
use jiff::Timestamp;

use crate::{facts::PodFacts, plugin::PluginError, pod::RenderError};

pub use loss::{agent_elsewhere, lost, node_lost, not_taken, was_refused};
pub use refusal::not_created;
pub use registration::{by_way_of, registration_timeout, unregistered};
pub use start::{Blocker, blocker, init_failed, start_timeout, waiting_for};

/// The command ended with status 0.
pub fn passed() -> Verdict {
    Verdict::new(VerdictCode::Passed, "the job passed")
}

/// The managed containers have ended: how the job did.
pub fn by_exit_status(facts: &PodFacts) -> (Phase, Verdict) {
    if facts.taken_away().is_some() {
        return (Phase::Failed, lost(Some(facts)));
    }
    match facts.first_failure() {
        None => (Phase::Succeeded, passed()),
        Some((container, status)) => {
            let verdict = container::ended(container, status);
            (Phase::Failed, evidence::from(facts, verdict))
        }
    }
}

/// A container that was killed for the memory it used, and when. Those that do the work come first: a sidecar may be
/// started again, and the job go on.
pub fn memory_exhausted(facts: &PodFacts) -> Option<(Verdict, Option<Timestamp>)> {
    let mut containers = facts.managed.iter().chain([&facts.agent]).chain(&facts.init).chain(&facts.beside);
    let container = containers.find(|container| container.ran_out_of_memory())?;
    let end = container.end()?;
    let verdict = container::out_of_memory(container, end.exit_status);
    Some((evidence::from(facts, verdict), end.at))
}

/// The end that Buildkite hears of, in the words of agents: exit status, signal and reason, the latter two perhaps empty. Retry rules know
/// them: a job that was interrupted is told from one that failed.
pub fn in_agents_words(verdict: &Verdict) -> (i32, &'static str, &'static str) {
    let exit_status = verdict.exit_status.unwrap_or(NO_STATUS);
    match verdict.code.about().chapter {
        Chapter::Loss | Chapter::Agent => (exit_status, "", "agent_stop"),
        _ if verdict.code == VerdictCode::OutOfMemory => (exit_status, "SIGKILL", ""),
        _ => (exit_status, "", ""),
    }
}

/// Cancelled in Buildkite, when the job was this far.
pub fn canceled(phase: Phase) -> (Phase, Verdict) {
    let when = match phase {
        Phase::Pending => "before it had a pod",
        Phase::Starting => "while its pod started",
        _ => "while it ran",
    };
    let message = format!("the job was cancelled in Buildkite {when}");
    (Phase::Canceled, Verdict::new(VerdictCode::Canceled, message))
}

/// Buildkite's time limit passed.
pub fn timed_out() -> (Phase, Verdict) {
    let message = "the job took longer than its time limit in Buildkite";
    (Phase::TimedOut, Verdict::new(VerdictCode::TimedOut, message))
}

/// The time limit of the BuildJob, its plugin or the configuration passed.
pub fn run_timeout(seconds: i64) -> (Phase, Verdict) {
    let message = format!("the job ran for longer than its time limit of {seconds} s");
    (Phase::TimedOut, Verdict::new(VerdictCode::TimedOut, message))
}

/// Buildkite ended the job although no agent ran it.
pub fn never_ran() -> (Phase, Verdict) {
    let message = "Buildkite ended the job before an agent took it (expired, skipped or broken)";
    (Phase::Canceled, Verdict::new(VerdictCode::EndedByBuildkite, message))
}

/// The job ended, but its result went with the pod.
pub fn result_unknown() -> (Phase, Verdict) {
    let message = "the job ended, but its pod was gone before its result could be read";
    (Phase::Failed, Verdict::new(VerdictCode::ResultUnknown, message))
}

/// Somebody deleted the BuildJob before the job had ended.
pub fn build_job_deleted(name: &str) -> Verdict {
    Verdict::new(
        VerdictCode::BuildJobDeleted,
        format!("BuildJob {name} was deleted before its job had ended"),
    )
}

/// The BuildJob cannot become a pod.
pub fn invalid_spec(error: &RenderError) -> Verdict {
    Verdict::new(VerdictCode::InvalidSpec, secrets::hidden(&error.to_string()))
}

/// The step's plugins are not a list of plugins, or its options are not what they should be.
pub fn unreadable_plugins(error: &PluginError) -> Verdict {
    let advice = match error {
        PluginError::Options(_) => "correct the step's options; docs/pipelines.md lists them",
        PluginError::Forbidden(_) => {
            "leave them out, use another queue, or ask whoever looks after the operator"
        }
        _ => "correct the step's plugins",
    };
    Verdict::new(VerdictCode::InvalidSpec, secrets::hidden(&error.to_string())).advising(advice)
}

/// Buildkite does not show us the job.
pub fn unknown_job(job_uuid: &str) -> Verdict {
    let message = format!(
        "spec.buildkite.jobUUID: Buildkite does not know the job {job_uuid}, or hides it from this cluster's token"
    );
    Verdict::new(VerdictCode::InvalidSpec, message)
        .advising("check the UUID, and that the job is in a queue of the token's cluster")
}
