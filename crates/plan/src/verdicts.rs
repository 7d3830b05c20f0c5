//! The reasons for a job's end, in words.

use bk_api::{Fault, Phase, Verdict, VerdictCode};

use crate::{
    facts::{ContainerFacts, ContainerState, DELETED, PodFacts},
    plugin::PluginError,
    pod::{AGENT_CONTAINER, RenderError},
};

/// Buildkite's exit status for "never ran"; users' retry rules know it.
const NEVER_RAN: i32 = -1;

/// What keeps a container from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The reason, ready to be reported.
    pub verdict: Verdict,
    /// Whether waiting cannot help.
    pub permanent: bool,
}

/// The command ended with status 0.
pub fn passed() -> Verdict {
    verdict(VerdictCode::Passed, Fault::None, "the job passed", None, Some(0))
}

/// The command ended, with this status.
pub fn by_exit_status(facts: &PodFacts) -> (Phase, Verdict) {
    if facts.taken_away().is_some() {
        return (Phase::Failed, agent_lost(Some(facts)));
    }
    match facts.first_failure() {
        None => (Phase::Succeeded, passed()),
        Some((container, status)) => {
            let (message, advice) = failure(container, status);
            let verdict = verdict(VerdictCode::CommandFailed, Fault::User, message, advice, Some(status));
            (Phase::Failed, verdict)
        }
    }
}

fn failure(container: &ContainerFacts, status: i32) -> (String, Option<&'static str>) {
    let name = &container.name;
    if !container.ran_out_of_memory() {
        return (format!("container {name} ended with exit status {status}"), None);
    }
    let message = format!(
        "container {name} was killed because it used more memory than its limit (exit status {status})"
    );
    (message, Some("raise the container's memory limit, or make the command use less"))
}

/// Cancelled in Buildkite.
pub fn canceled() -> (Phase, Verdict) {
    (
        Phase::Canceled,
        verdict(VerdictCode::Canceled, Fault::None, "the job was cancelled in Buildkite", None, None),
    )
}

/// Buildkite's time limit passed.
pub fn timed_out() -> (Phase, Verdict) {
    let advice = Some("raise the step's timeout_in_minutes, or make the command quicker");
    let message = "the job took longer than its time limit in Buildkite";
    (Phase::TimedOut, verdict(VerdictCode::TimedOut, Fault::User, message, advice, None))
}

/// Buildkite ended the job although no agent ran it.
pub fn never_ran() -> (Phase, Verdict) {
    let message = "Buildkite ended the job before an agent took it (expired, skipped or broken)";
    (Phase::Canceled, verdict(VerdictCode::Canceled, Fault::Buildkite, message, None, None))
}

/// The job ended, but its result went with the pod.
pub fn result_unknown() -> (Phase, Verdict) {
    let message = "the job ended, but its pod was gone before its result could be read";
    let advice = Some("look at the job in Buildkite, which has the result");
    (Phase::Failed, verdict(VerdictCode::ResultUnknown, Fault::Cluster, message, advice, None))
}

/// The BuildJob cannot become a pod.
pub fn invalid_spec(error: &RenderError) -> Verdict {
    let advice = Some("correct the field and start the job again");
    verdict(VerdictCode::InvalidSpec, Fault::User, error.to_string(), advice, Some(NEVER_RAN))
}

/// The step's plugins are not a list of plugins.
pub fn unreadable_plugins(error: &PluginError) -> Verdict {
    let advice = Some("correct the step's plugins");
    verdict(VerdictCode::InvalidSpec, Fault::User, error.to_string(), advice, Some(NEVER_RAN))
}

/// Buildkite does not show us the job.
pub fn unknown_job(job_uuid: &str) -> Verdict {
    let message = format!(
        "spec.buildkite.jobUUID: Buildkite does not know the job {job_uuid}, or hides it from this cluster's token"
    );
    let advice = Some("check the UUID, and that the job is in a queue of the token's cluster");
    verdict(VerdictCode::InvalidSpec, Fault::User, message, advice, None)
}

/// The API server refused the pod for good.
pub fn pod_refused(message: &str) -> Verdict {
    let message = format!("the API server refused the job's pod: {message}");
    let advice = Some("correct the job's pod spec, or the policy that refuses it");
    verdict(VerdictCode::PodRefused, Fault::User, message, advice, Some(NEVER_RAN))
}

/// The pod did not start in time.
pub fn start_timeout(facts: Option<&PodFacts>, seconds: i64) -> Verdict {
    let waiting = match facts {
        None => "its pod".to_owned(),
        Some(facts) => waiting_for(facts).unwrap_or_else(|| "its agent to take it".to_owned()),
    };
    let message = format!("the job did not start within {seconds} s; it was waiting for {waiting}");
    let advice = Some("see what the pod waits for, or raise startDeadlineSeconds in pod_config");
    verdict(VerdictCode::StartTimeout, Fault::Cluster, message, advice, Some(NEVER_RAN))
}

/// The agent ended, or its pod went away, before it took the job.
pub fn agent_not_started(facts: Option<&PodFacts>, attempts: u32) -> Verdict {
    let why = facts.map_or_else(|| DELETED.to_owned(), how_it_was_lost);
    let message = format!("no agent took the job in {attempts} attempts: {why}");
    let advice = Some("read the log of the pod's agent container; check the agent token and the endpoint");
    verdict(VerdictCode::AgentNotStarted, Fault::Cluster, message, advice, Some(NEVER_RAN))
}

fn how_it_was_lost(facts: &PodFacts) -> String {
    let reason = facts.given_up.as_deref().or_else(|| facts.taken_away());
    reason.map_or_else(|| how_agent_ended(facts), str::to_owned)
}

/// How the agent ended; if it did not, what else did.
fn how_agent_ended(facts: &PodFacts) -> String {
    let ended = [&facts.agent].into_iter().chain(&facts.managed).find_map(|container| {
        let ContainerState::Ended { exit_status, reason, message, .. } = &container.state else {
            return None;
        };
        let who = if container.name == AGENT_CONTAINER {
            "the agent".to_owned()
        } else {
            format!("container {}", container.name)
        };
        let detail: Vec<_> = [reason, message].into_iter().filter(|t| !t.is_empty()).cloned().collect();
        let detail = if detail.is_empty() { String::new() } else { format!(" ({})", detail.join(": ")) };
        Some(format!("{who} ended with exit status {exit_status}{detail}"))
    });
    ended.unwrap_or_else(|| "the agent did not start".to_owned())
}

/// The agent or its pod was lost while the job ran.
pub fn agent_lost(facts: Option<&PodFacts>) -> Verdict {
    let why = facts.map_or_else(|| DELETED.to_owned(), how_it_was_lost);
    let message = format!("the agent was lost while the job ran: {why}");
    let advice = Some("retry the job; Buildkite notices the lost agent by itself within minutes");
    let exit_status = facts.and_then(PodFacts::first_failure).map(|(_, status)| status);
    verdict(VerdictCode::AgentLost, Fault::Cluster, message, advice, exit_status)
}

/// An agent has the job, and it is not in a pod of this BuildJob.
pub fn agent_elsewhere() -> Verdict {
    let message = "an agent that is not in a pod of this BuildJob has the job";
    let advice = Some("see in Buildkite which agent has it; let only one operator serve the queue");
    verdict(VerdictCode::AgentLost, Fault::Cluster, message, advice, None)
}

/// What keeps the pod from starting, if it is more than a matter of time.
pub fn blocker(facts: &PodFacts) -> Option<Blocker> {
    // A sidecar that cannot be started again later is no concern of the start.
    if facts.all_started() {
        return None;
    }
    init_failed(facts)
        .map(|verdict| Blocker { verdict, permanent: true })
        .or_else(|| facts.init.iter().chain(&facts.managed).chain([&facts.agent]).find_map(blocked_container))
}

/// An init container failed: no agent has started, and none will.
pub fn init_failed(facts: &PodFacts) -> Option<Verdict> {
    let (container, status) = facts.failed_init()?;
    let message = format!("init container {} ended with exit status {status}", container.name);
    let advice = Some("read the log of the init container");
    Some(verdict(VerdictCode::ContainerNotStarted, Fault::User, message, advice, Some(status)))
}

fn blocked_container(container: &ContainerFacts) -> Option<Blocker> {
    let ContainerState::Waiting { reason, message } = &container.state else {
        return None;
    };
    let ContainerFacts { name, image, .. } = container;
    let image_verdict = |permanent: bool| {
        let text = format!("image {image} of container {name} cannot be had: {reason}: {message}");
        let advice = Some("check the image's name and tag, that it exists, and the pull secrets");
        let verdict = verdict(VerdictCode::ImageUnavailable, Fault::User, text, advice, Some(NEVER_RAN));
        Some(Blocker { verdict, permanent })
    };
    let container_verdict = |permanent: bool| {
        let text = format!("container {name} cannot be started: {reason}: {message}");
        let advice = Some("check what the container refers to: secrets, config maps, volumes, commands");
        let verdict = verdict(VerdictCode::ContainerNotStarted, Fault::User, text, advice, Some(NEVER_RAN));
        Some(Blocker { verdict, permanent })
    };
    match reason.as_str() {
        "InvalidImageName" | "ErrImageNeverPull" => image_verdict(true),
        "ErrImagePull" | "ImagePullBackOff" | "ImageInspectError" | "RegistryUnavailable" => {
            image_verdict(is_final_pull_error(message))
        }
        "CreateContainerConfigError" => container_verdict(message.contains("not found")),
        "CreateContainerError" | "RunContainerError" => container_verdict(false),
        _ => None,
    }
}

/// Whether a registry has answered that it has no such image, or none for us.
fn is_final_pull_error(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["not found", "manifest unknown", "does not exist", "access denied", "unauthorized", "invalid reference"]
        .iter()
        .any(|sign| message.contains(sign))
}

/// What the pod waits for, in a few words.
pub fn waiting_for(facts: &PodFacts) -> Option<String> {
    if let Some(reason) = &facts.unscheduled {
        return Some(format!("a node ({reason})"));
    }
    if let Some(blocker) = blocker(facts) {
        return Some(blocker.verdict.message);
    }
    if facts.all_started() {
        return None;
    }
    let container =
        facts.init.iter().find(|container| !container.lets_others_start()).or_else(|| {
            facts.managed.iter().chain([&facts.agent]).find(|container| container.is_waiting())
        })?;
    Some(match &container.state {
        ContainerState::Waiting { reason, .. } if !reason.is_empty() => {
            format!("container {} ({reason})", container.name)
        }
        _ => format!("container {}", container.name),
    })
}

fn verdict(
    code: VerdictCode,
    fault: Fault,
    message: impl Into<String>,
    advice: Option<&str>,
    exit_status: Option<i32>,
) -> Verdict {
    Verdict { code, fault, message: message.into(), advice: advice.map(str::to_owned), exit_status }
}
