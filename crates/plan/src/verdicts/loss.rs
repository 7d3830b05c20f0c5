//! How a pod or its agent was lost.

use bk_api::{Verdict, VerdictCode, verdict::Course};

use super::{container, evidence, secrets};
use crate::{
    facts::{ContainerFacts, Ended, NodeFacts, PodFacts, Taken, Told},
    pod::AGENT_CONTAINER,
};

/// What is said about a pod that somebody has deleted.
const DELETED: &str = "its pod was deleted";
/// What is said about a pod that the cluster took away without a word.
const UNEXPLAINED: &str = "the cluster took its pod away and does not say why";

/// What the agent ends with when Buildkite refuses to give it the job, or has the job wait for others.
const REFUSED: [i32; 2] = [27, 28];

/// What a container ends with when its agent is gone, or has cancelled the job.
const ABANDONED: i32 = 255;

/// What a container ends with that is killed.
const KILLED: i32 = 137;

/// The pod, or the agent in it, was lost while the job ran. Without facts the pod is gone.
pub fn lost(facts: Option<&PodFacts>) -> Verdict {
    let Some(facts) = facts else {
        return Verdict::new(VerdictCode::PodDeleted, while_running(DELETED));
    };
    let mut verdict = taken(facts).unwrap_or_else(|| agent_ended(facts));
    if verdict.code == VerdictCode::AgentNotRegistered {
        verdict = Verdict::new(VerdictCode::AgentLost, verdict.message);
    }
    verdict.message = while_running(&verdict.message);
    evidence::from(facts, as_it_ended(facts, verdict))
}

/// The verdict, with the exit status of what had failed by then.
fn as_it_ended(facts: &PodFacts, verdict: Verdict) -> Verdict {
    // A container whose agent is gone says nothing about its command.
    match facts.first_failure().filter(|(_, status)| *status != ABANDONED) {
        Some((_, status)) => verdict.of_container(status),
        None => verdict,
    }
}

/// The pod's node was not heard of for too long while the job ran, or is none any more.
pub fn node_lost(facts: &PodFacts, node: &NodeFacts) -> Verdict {
    let what = if node.is_deleted { "was deleted" } else { "no longer answers" };
    let message = while_running(&format!("its node {} {what}", node.name));
    evidence::from(facts, as_it_ended(facts, Verdict::new(VerdictCode::NodeLost, message)))
}

fn while_running(why: &str) -> String {
    format!("the agent was lost while the job ran: {why}")
}

/// The pod of the last of so many attempts ended before an agent took the job. Without facts the pod is gone.
pub fn not_taken(facts: Option<&PodFacts>, attempts: u32) -> Verdict {
    let in_vain = |why: &str| format!("no agent took the job in {attempts} attempts: {why}");
    let Some(facts) = facts else {
        return Verdict::new(VerdictCode::PodDeleted, in_vain(DELETED));
    };
    let why = taken(facts).or_else(|| unable(facts)).or_else(|| agent_killed(facts));
    let mut verdict = why.unwrap_or_else(|| agent_ended(facts));
    if verdict.code.about().course == Course::Replaces {
        verdict.message = in_vain(&verdict.message);
    }
    evidence::from(facts, verdict)
}

/// An agent has the job, and it is not in a pod of this BuildJob.
pub fn agent_elsewhere() -> Verdict {
    let message = "an agent that is not in a pod of this BuildJob has the job";
    Verdict::new(VerdictCode::NotAcquired, message)
}

/// Whether Buildkite did not give the job to the pod's agent.
pub fn was_refused(facts: &PodFacts) -> bool {
    facts.agent.exit_status().is_some_and(|status| REFUSED.contains(&status))
}

/// Why the pod was taken away, if it was.
fn taken(facts: &PodFacts) -> Option<Verdict> {
    let given_up = facts.given_up.as_deref().map(Taken::For);
    match given_up.or_else(|| facts.taken_away())? {
        Taken::Deleted => Some(Verdict::new(VerdictCode::PodDeleted, DELETED)),
        Taken::For(told) => Some(Verdict::new(code_of(told, facts.disrupted.as_deref()), words_of(told))),
    }
}

/// What the cluster says about a pod that it took away. A condition may be there without a word in it.
fn words_of(told: &Told) -> String {
    let words = secrets::hidden(&told.to_string());
    if words.is_empty() { UNEXPLAINED.to_owned() } else { words }
}

/// The cluster's words for why it takes pods away.
fn code_of(told: &Told, disrupted: Option<&Told>) -> VerdictCode {
    match told.reason.as_str() {
        "Evicted" => evicted(&told.message),
        "PreemptionByScheduler" | "Preempting" => VerdictCode::Preempted,
        "EvictionByEvictionAPI" | "Terminated" | "NodeShutdown" | "Shutdown" => VerdictCode::NodeDrained,
        "DeletionByTaintManager" | "DeletionByPodGC" | "NodeLost" => VerdictCode::NodeLost,
        "DeadlineExceeded" => VerdictCode::TimedOut,
        "TerminationByKubelet" => by_kubelet(&told.message),
        "UnexpectedAdmissionError" | "NodeAffinity" | "Taint" => VerdictCode::Unschedulable,
        reason if reason.starts_with("OutOf") || reason.starts_with("PodOS") => VerdictCode::Unschedulable,
        _ => match disrupted {
            Some(disrupted) if disrupted != told => code_of(disrupted, None),
            _ => VerdictCode::NodeLost,
        },
    }
}

/// What an eviction was for: the pod's own limits, the node's disk, or its memory and processes.
fn evicted(message: &str) -> VerdictCode {
    let own_limit =
        ["exceeds the limit", "exceeded its local ephemeral storage limit", "exceeds the total limit"];
    let disk = ["ephemeral-storage", "inodes", "imagefs", "nodefs", "DiskPressure"];
    // The kubelet names the container that used most as well; what was short comes first.
    let short = message.split("Container ").next().unwrap_or(message);
    if own_limit.iter().any(|sign| message.contains(sign)) {
        VerdictCode::StorageLimitExceeded
    } else if disk.iter().any(|sign| short.contains(sign)) {
        VerdictCode::DiskPressure
    } else {
        VerdictCode::Evicted
    }
}

fn by_kubelet(message: &str) -> VerdictCode {
    if message.contains("shutdown") {
        VerdictCode::NodeDrained
    } else if message.contains("critical pod") {
        VerdictCode::Preempted
    } else {
        evicted(message)
    }
}

/// A container that could not run the command, whichever pod it is in.
fn unable(facts: &PodFacts) -> Option<Verdict> {
    let (container, status) = facts.managed.iter().find_map(ContainerFacts::failure)?;
    let verdict = container::ended(container, status);
    (verdict.code != VerdictCode::CommandFailed).then_some(verdict)
}

/// The agent was killed before it took the job, in a pod that nobody takes away: nobody but the kernel does that. The runtime may
/// tell of the end before it has heard why.
fn agent_killed(facts: &PodFacts) -> Option<Verdict> {
    let unexplained = facts.agent.exit_status() == Some(KILLED) && !facts.agent.ran_out_of_memory();
    let message = "container agent was killed by signal 9, as the kernel does for memory (exit status 137)";
    unexplained.then(|| Verdict::new(VerdictCode::AgentOutOfMemory, message).of_container(KILLED))
}

/// How the agent ended; if it did not, what else did.
fn agent_ended(facts: &PodFacts) -> Verdict {
    if facts.agent.ran_out_of_memory() {
        return container::out_of_memory(&facts.agent, facts.agent.exit_status().unwrap_or(137));
    }
    let ended = [&facts.agent].into_iter().chain(&facts.managed).find(|container| container.is_ended());
    let Some((container, end)) = ended.and_then(|container| Some((container, container.end()?))) else {
        return Verdict::new(VerdictCode::AgentNotRegistered, "the agent did not start");
    };
    let refused = container.name == AGENT_CONTAINER && REFUSED.contains(&end.exit_status);
    let code = if refused { VerdictCode::NotAcquired } else { VerdictCode::AgentNotRegistered };
    Verdict::new(code, describe(container, end))
}

fn describe(container: &ContainerFacts, end: &Ended) -> String {
    let who = if container.name == AGENT_CONTAINER {
        "the agent".to_owned()
    } else {
        format!("container {}", container.name)
    };
    let words = [Some(end.reason.clone()), container::last_words(end)];
    let words: Vec<_> = words.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let detail = if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) };
    format!("{who} ended with exit status {}{detail}", end.exit_status)
}
