//! Why a job does not run yet, and what would help. Pure, but for the look into the database.

mod facts;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

pub(super) use facts::of_build;
use serde::Serialize;
use uuid::Uuid;

use super::name;
use crate::build::concurrency::Member;
use crate::build::dependencies::Graph;
use crate::build::job::DEFAULT_QUEUE;
use crate::build::verdict::{Build, Outcome, PlacedStep};
use crate::build::{Job, JobKind, JobState};
use crate::dispatch::{matches, queue_of};
use crate::pipeline::step::{Concurrency, ConcurrencyMethod, Kind};
use crate::store::overview::AgentLine;

/// The rule of jobs that any queue may run.
const ANY_QUEUE: &str = "*";
/// How many steps are named; the others are counted.
const NAMED: usize = 3;

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Waits {
    /// In a sentence.
    why: String,
    /// What somebody has to do, if nothing will happen by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<Mend>,
}

/// What helps a job that nobody would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mend {
    /// To start an agent with these tags.
    StartAgent(Vec<String>),
    /// To resume the queue.
    ResumeQueue(String),
}

/// Who is there to run jobs.
#[derive(Default)]
struct Runners {
    /// Those that are connected.
    agents: Vec<AgentLine>,
    /// The keys of the connected stacks, each with its queue.
    stacks: Vec<(String, String)>,
    paused_queues: HashSet<String>,
}

/// What the jobs of one build wait for.
struct Waiting<'a> {
    steps: HashMap<Uuid, &'a PlacedStep>,
    keys: HashSet<&'a str>,
    /// Steps that somebody has to unblock.
    blocked: HashSet<Uuid>,
    graph: Arc<Graph>,
    own: HashMap<Uuid, Outcome>,
    runners: &'a Runners,
    /// The members of each concurrency group that have not ended, oldest first.
    groups: &'a BTreeMap<String, Vec<Member>>,
    /// What was said of steps that wait for the same: thousands may stand behind one wait.
    said: HashMap<Vec<Uuid>, Option<Waits>>,
}

impl<'a> Waiting<'a> {
    fn new(build: &'a Build, runners: &'a Runners, groups: &'a BTreeMap<String, Vec<Member>>) -> Self {
        let blocked = build.counting().filter(|job| job.state == JobState::Blocked).map(|job| job.step);
        Self {
            steps: build.steps.iter().map(|placed| (placed.id, placed)).collect(),
            keys: build.steps.iter().filter_map(|placed| placed.step.key.as_deref()).collect(),
            blocked: blocked.collect(),
            graph: build.steps.graph(),
            own: build.own_outcomes(),
            runners,
            groups,
            said: HashMap::new(),
        }
    }

    /// Why `job` does not run; nothing if it does, or has ended, or if its state says it all.
    fn of_job(&mut self, job: &Job) -> Option<Waits> {
        match (job.kind, job.state) {
            (JobKind::Waiter, _) => None,
            (_, JobState::Waiting) => self.for_steps(job.step),
            (_, state) if state.is_limited() => {
                let concurrency = job.concurrency.as_ref()?;
                let members = self.groups.get(&concurrency.group).map(Vec::as_slice).unwrap_or_default();
                Some(for_turn(job.id, concurrency, members))
            }
            (JobKind::Command, JobState::Scheduled) => Some(for_runner(job, self.runners)),
            _ => None,
        }
    }

    fn for_steps(&mut self, step: Uuid) -> Option<Waits> {
        if self.graph.misses_a_key(step) {
            let wanted = self.steps.get(&step)?.step.depends_on.iter().flatten();
            let missing = wanted.map(|one| one.step.as_str()).filter(|key| !self.keys.contains(key));
            let missing = missing.collect::<Vec<_>>().join(", ");
            return Some(just(format!(
                "Waits for a step with the key {missing}, which no job has uploaded yet."
            )));
        }
        let direct = self.graph.pending(step, &self.own);
        if let Some(said) = self.said.get(&direct) {
            return said.clone();
        }
        let mut pending = Vec::new();
        self.look_behind_waits(&direct, &mut HashSet::new(), &mut pending);
        let said = self.in_words(&pending);
        self.said.insert(direct, said.clone());
        said
    }

    /// A wait is no reason: what it waits for is.
    fn look_behind_waits(&self, pending: &[Uuid], seen: &mut HashSet<Uuid>, found: &mut Vec<Uuid>) {
        for id in pending {
            if !seen.insert(*id) {
                continue;
            }
            match self.steps.get(id).map(|placed| &placed.step.kind) {
                Some(Kind::Wait { .. }) => {
                    self.look_behind_waits(&self.graph.pending(*id, &self.own), seen, found);
                }
                _ => found.push(*id),
            }
        }
    }

    fn in_words(&self, pending: &[Uuid]) -> Option<Waits> {
        if let Some(block) = pending.iter().find(|id| self.blocked.contains(id)) {
            return Some(just(format!("Waits for somebody to unblock “{}”.", self.name(*block))));
        }
        let named: Vec<String> = pending.iter().take(NAMED).map(|id| self.name(*id)).collect();
        match pending.len().saturating_sub(NAMED) {
            _ if named.is_empty() => None,
            0 => Some(just(format!("Waits for {}.", named.join(", ")))),
            more => Some(just(format!("Waits for {} and {more} more.", named.join(", ")))),
        }
    }

    fn name(&self, id: Uuid) -> String {
        self.steps.get(&id).map_or_else(String::new, |placed| name::of_step(&placed.step))
    }
}

fn just(why: String) -> Waits {
    Waits { why, mend: None }
}

fn for_turn(job: Uuid, concurrency: &Concurrency, members: &[Member]) -> Waits {
    let Concurrency { group, limit, .. } = concurrency;
    let holding = members.iter().filter(|member| member.state.holds_place()).count();
    let before = members.iter().take_while(|member| member.job != job);
    let before = before.filter(|member| !member.state.holds_place()).count();
    let queue = match (concurrency.method == ConcurrencyMethod::Ordered, before) {
        (false, _) | (_, 0) => String::new(),
        (true, 1) => ", 1 job is before it".to_owned(),
        (true, more) => format!(", {more} jobs are before it"),
    };
    just(format!(
        "Waits for its turn in concurrency group {group}: {holding} of {limit} places taken{queue}."
    ))
}

fn for_runner(job: &Job, runners: &Runners) -> Waits {
    let queue = job.queue.as_str();
    let serves = |other: &str| queue == ANY_QUEUE || other == queue;
    if runners.paused_queues.contains(queue) {
        let mend = Some(Mend::ResumeQueue(queue.to_owned()));
        return Waits { why: format!("Queue {queue} is paused."), mend };
    }
    let of_queue: Vec<&AgentLine> =
        runners.agents.iter().filter(|agent| serves(queue_of(&agent.tags))).collect();
    let fitting: Vec<_> = of_queue.iter().filter(|agent| matches(&job.rules, &agent.tags)).collect();
    if fitting.is_empty() {
        if let Some((stack, _)) = runners.stacks.iter().find(|(_, other)| serves(other)) {
            return just(format!("Stack {stack} has not reserved it yet."));
        }
        let why = match (runners.agents.is_empty() && runners.stacks.is_empty(), !of_queue.is_empty()) {
            (true, _) => "No agent is connected.".to_owned(),
            (false, false) => format!("No agent serves queue {queue}."),
            (false, true) => format!("No agent of queue {queue} has the tags {}.", wanted(job).join(", ")),
        };
        return Waits { why, mend: Some(Mend::StartAgent(tags(job))) };
    }
    let able: Vec<_> = fitting.iter().filter(|agent| !agent.paused && !agent.stopping).collect();
    if able.is_empty() {
        let why = "Every agent that could take it is paused or about to stop.".to_owned();
        return Waits { why, mend: Some(Mend::StartAgent(tags(job))) };
    }
    match able.iter().filter(|agent| agent.job.is_none()).count() {
        0 if able.len() == 1 => just(format!("Agent {} is busy.", able[0].name)),
        0 => just(format!("All {} agents that can take it are busy.", able.len())),
        _ => just("An agent takes it as soon as it asks for work.".to_owned()),
    }
}

/// The rules about other things than the queue.
fn wanted(job: &Job) -> Vec<String> {
    job.rules.iter().filter(|rule| *rule != "queue" && !rule.starts_with("queue=")).cloned().collect()
}

/// What an agent has to be tagged with to take the job.
fn tags(job: &Job) -> Vec<String> {
    let queue = Some(&job.queue).filter(|queue| *queue != DEFAULT_QUEUE && *queue != ANY_QUEUE);
    let queue = queue.map(|queue| format!("queue={queue}"));
    // Any value will do.
    let rules = wanted(job).into_iter().map(|rule| match rule.strip_suffix("=*") {
        Some(key) => format!("{key}=true"),
        None => rule,
    });
    queue.into_iter().chain(rules).collect()
}

#[cfg(test)]
mod tests;
