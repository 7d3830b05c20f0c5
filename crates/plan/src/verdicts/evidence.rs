//! What was seen on a pod, on a few short lines: the pod will be gone when somebody reads the verdict.

use bk_api::Verdict;

use super::{container, secrets};
use crate::facts::{ContainerFacts, ContainerState, PodFacts};

/// The most lines of evidence.
const LINES: usize = 8;
/// The most characters of a line.
const WIDTH: usize = 240;

/// The verdict, with what its pod shows.
pub(super) fn from(facts: &PodFacts, mut verdict: Verdict) -> Verdict {
    verdict.evidence = lines(facts);
    verdict
}

fn lines(facts: &PodFacts) -> Vec<String> {
    let told =
        [("pod", &facts.given_up), ("disrupted", &facts.disrupted), ("unscheduled", &facts.unscheduled)];
    let told = told.into_iter().filter_map(|(what, told)| Some(format!("{what}: {}", told.as_ref()?)));
    let node = facts.node.iter().map(|node| format!("node: {node}"));
    let containers = facts.containers().filter_map(of_container);
    let events = facts.events.iter().rev().filter(|event| event.warning);
    let events = events.map(|event| format!("event {}: {}", event.reason, event.message));
    told.chain(containers).chain(events).chain(node).take(LINES).map(|line| short(&line)).collect()
}

/// A container that has not simply run.
fn of_container(facts: &ContainerFacts) -> Option<String> {
    let name = &facts.name;
    let line = match &facts.state {
        ContainerState::Waiting { reason, .. } if ordinary(reason) && facts.restarts == 0 => return None,
        ContainerState::Waiting { reason, message } => {
            format!("container {name}: waiting, {reason} {message}")
        }
        ContainerState::Running if facts.restarts == 0 => return None,
        ContainerState::Running => {
            format!("container {name}: running, started again {} times", facts.restarts)
        }
        ContainerState::Ended(end) => {
            let words = container::last_words(end).map(|words| format!(": {words}")).unwrap_or_default();
            format!("container {name}: exit status {} {}{words}", end.exit_status, end.reason)
        }
    };
    Some(line)
}

/// The steps of every start.
fn ordinary(reason: &str) -> bool {
    matches!(reason, "" | "ContainerCreating" | "PodInitializing")
}

fn short(line: &str) -> String {
    let line = secrets::hidden(line.trim());
    let line = line.replace('\n', " ");
    if line.chars().count() <= WIDTH {
        return line;
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}
