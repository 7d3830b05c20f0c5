//! Why a container cannot run, or how it ended.

use bk_api::{Verdict, VerdictCode};

use super::{image, secrets, start::Blocker};
use crate::{
    facts::{ContainerFacts, ContainerState, Ended},
    pod::{AGENT_CONTAINER, CHECKOUT_CONTAINER},
};

/// How many times a sidecar may fail while the job waits for it.
const SIDECAR_TRIES: i32 = 3;

/// Words by which the kubelet says that something a container refers to is not there.
const MISSING: [&str; 5] = [
    "not found",
    "couldn't find key",
    "non-existent secret key",
    "non-existent config key",
    "does not exist",
];

/// Words by which kubelet and runtime say that they will not run a container as it asks.
const SECURITY: [&str; 7] = [
    "runasnonroot",
    "non-root policy",
    "no users found",
    "unable to find user",
    "no matching entries in passwd",
    "seccomp",
    "apparmor",
];

/// What keeps a container from starting, if it is more than a matter of time.
pub(super) fn blocked(container: &ContainerFacts) -> Option<Blocker> {
    if let Some(blocker) = failing_sidecar(container) {
        return Some(blocker);
    }
    let ContainerState::Waiting { reason, message } = &container.state else {
        return None;
    };
    if let Some(code) = image::problem(reason, message) {
        return Some(image::blocker(container, code, reason, message));
    }
    let code = match reason.as_str() {
        "CreateContainerConfigError" => config_problem(message),
        "CreateContainerError" | "RunContainerError" => security_problem(message),
        "PreCreateHookError" | "PreStartHookError" | "PostStartHookError" => VerdictCode::ContainerNotStarted,
        _ => return None,
    };
    let what = if is_missing(message) { "lacks what it refers to" } else { "cannot be started" };
    let text = format!("container {} {what}: {reason}: {message}", container.name);
    Some(Blocker::new(Verdict::new(code, secrets::hidden(&text))))
}

fn config_problem(message: &str) -> VerdictCode {
    if is_missing(message) { VerdictCode::MissingReference } else { security_problem(message) }
}

fn security_problem(message: &str) -> VerdictCode {
    let lower = message.to_ascii_lowercase();
    if SECURITY.iter().any(|word| lower.contains(word)) {
        VerdictCode::InvalidSecurityContext
    } else if is_foreign(message) {
        VerdictCode::ImageWrongArchitecture
    } else {
        VerdictCode::ContainerNotStarted
    }
}

/// Whether a message says that a Secret, a ConfigMap or a key in one does not exist.
pub(super) fn is_missing(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    let names_one = lower.contains("secret") || lower.contains("configmap") || lower.contains("config key");
    names_one && MISSING.iter().any(|word| lower.contains(word))
}

/// Whether a program is for another architecture.
fn is_foreign(message: &str) -> bool {
    message.contains("exec format error")
}

/// A sidecar that has failed too often while the job waits for it. Its memory limit will not be another the next time.
fn failing_sidecar(container: &ContainerFacts) -> Option<Blocker> {
    let tries = if container.ran_out_of_memory() { 0 } else { SIDECAR_TRIES };
    if !container.sidecar || container.lets_others_start() || container.restarts < tries {
        return None;
    }
    Some(Blocker { permanent: true, ..Blocker::new(sidecar(container, container.end()?)) })
}

/// What a sidecar's end means to a job that waits for it.
fn sidecar(container: &ContainerFacts, end: &Ended) -> Verdict {
    let ContainerFacts { name, restarts, .. } = container;
    if container.ran_out_of_memory() {
        return out_of_memory(container, end.exit_status);
    }
    let words = last_words(end).map(|words| format!(": {words}")).unwrap_or_default();
    let message = format!(
        "sidecar {name} was started again {restarts} times, and ended with exit status {}{words}",
        end.exit_status
    );
    Verdict::new(VerdictCode::SidecarFailed, message).of_container(end.exit_status)
}

/// A container of the job ended with a status other than 0, by itself.
pub(super) fn ended(container: &ContainerFacts, status: i32) -> Verdict {
    if container.ran_out_of_memory() {
        return out_of_memory(container, status);
    }
    let name = &container.name;
    let words = container.end().and_then(last_words);
    if words.as_deref().is_some_and(is_foreign) {
        let message = format!("container {name} cannot execute its program: {}", words.unwrap_or_default());
        return Verdict::new(VerdictCode::ImageWrongArchitecture, message);
    }
    if container.could_not_be_executed() {
        let message = format!("container {name} cannot be started: {}", words.unwrap_or_default());
        return Verdict::new(VerdictCode::ContainerNotStarted, message).of_container(status);
    }
    let message = format!("container {name} ended with exit status {status}");
    Verdict::new(VerdictCode::CommandFailed, message).of_container(status)
}

/// An init container ended with a status other than 0, by itself.
pub(super) fn init_ended(container: &ContainerFacts, status: i32) -> Verdict {
    let mut verdict = ended(container, status);
    if verdict.code == VerdictCode::CommandFailed {
        let words = container.end().and_then(last_words).map(|words| format!(": {words}"));
        let message = format!(
            "init container {} ended with exit status {status}{}",
            container.name,
            words.unwrap_or_default()
        );
        verdict = Verdict::new(VerdictCode::InitFailed, message).of_container(status);
    }
    verdict
}

/// A container was killed for the memory it used.
pub(super) fn out_of_memory(container: &ContainerFacts, status: i32) -> Verdict {
    let name = &container.name;
    let kind = if container.sidecar { "sidecar" } else { "container" };
    let message =
        format!("{kind} {name} was killed because it used more memory than its limit (exit status {status})");
    if is_own(name) {
        return Verdict::new(VerdictCode::AgentOutOfMemory, message).of_container(status);
    }
    Verdict::new(VerdictCode::OutOfMemory, message).of_container(status)
}

/// Whether a container is the operator's own, and its resources are in the operator's configuration.
fn is_own(name: &str) -> bool {
    [AGENT_CONTAINER, CHECKOUT_CONTAINER, "copy-agent"].contains(&name) || name.starts_with("imagecheck-")
}

/// The last line that a container left behind, if it left any.
pub(super) fn last_words(end: &Ended) -> Option<String> {
    let line = end.message.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(secrets::hidden(line))
}
