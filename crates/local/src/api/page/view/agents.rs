//! Who is there to run jobs: agents, stacks, queues.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;

use super::super::super::Shared;
use super::super::super::error::ApiResult;
use super::{Millis, answer, name};
use crate::dispatch::queue_of;
use crate::store::facts;
use crate::store::overview::{self, AgentLine, JobPlace, QueueLine};
use crate::store::stacks::StackRow;

#[derive(Serialize)]
struct Runners {
    /// The cluster that the queues are in.
    cluster: uuid::Uuid,
    queues: Vec<QueueView>,
    agents: Vec<AgentView>,
    stacks: Vec<StackView>,
}

#[derive(Serialize)]
struct QueueView {
    id: Option<uuid::Uuid>,
    key: String,
    paused: bool,
    scheduled: i64,
    reserved: i64,
    running: i64,
    /// Connected agents and stacks that serve it.
    served_by: usize,
}

#[derive(Serialize)]
struct AgentView {
    id: uuid::Uuid,
    name: String,
    hostname: String,
    version: String,
    queue: String,
    tags: Vec<String>,
    state: String,
    stopping: bool,
    paused: bool,
    connected_at: Millis,
    last_seen: Millis,
    job: Option<JobLink>,
}

/// A job where people find it.
#[derive(Serialize)]
struct JobLink {
    id: uuid::Uuid,
    name: String,
    pipeline: String,
    number: i64,
}

#[derive(Serialize)]
struct StackView {
    key: String,
    kind: String,
    queue: String,
    state: &'static str,
    last_seen: Millis,
    reserved: i64,
}

impl From<JobPlace> for JobLink {
    fn from(place: JobPlace) -> Self {
        let name = name::of_job(&place.step, place.matrix.as_ref(), place.parallel);
        Self { id: place.job, name, pipeline: place.pipeline, number: place.number }
    }
}

fn render(
    cluster: uuid::Uuid,
    queues: Vec<QueueLine>,
    agents: Vec<AgentLine>,
    stacks: Vec<(StackRow, i64)>,
    now: Timestamp,
) -> Runners {
    let served_by = |key: &str| {
        let agents = agents.iter().filter(|agent| agent.state == "connected" && queue_of(&agent.tags) == key);
        let stacks = stacks.iter().filter(|(stack, _)| stack.state(now) == "connected" && stack.queue == key);
        agents.count() + stacks.count()
    };
    let queues = queues
        .into_iter()
        .map(|queue| QueueView {
            id: queue.id,
            served_by: served_by(&queue.key),
            key: queue.key,
            paused: queue.paused,
            scheduled: queue.scheduled,
            reserved: queue.reserved,
            running: queue.running,
        })
        .collect();
    let agents = agents
        .into_iter()
        .map(|agent| AgentView {
            id: agent.id,
            name: agent.name,
            hostname: agent.hostname,
            version: agent.version,
            queue: queue_of(&agent.tags).to_owned(),
            tags: agent.tags.into_iter().filter(|tag| !tag.starts_with("queue=")).collect(),
            state: agent.state,
            stopping: agent.stopping,
            paused: agent.paused,
            connected_at: Millis(agent.created_at),
            last_seen: Millis(agent.last_seen),
            job: agent.job.map(JobLink::from),
        })
        .collect();
    let stacks = stacks
        .into_iter()
        .map(|(stack, reserved)| StackView {
            state: stack.state(now),
            key: stack.key,
            kind: stack.kind,
            queue: stack.queue,
            last_seen: Millis(stack.last_seen),
            reserved,
        })
        .collect();
    Runners { cluster, queues, agents, stacks }
}

pub(in super::super) async fn show(State(app): State<Shared>, headers: HeaderMap) -> ApiResult<Response> {
    answer(&app, &headers, |transaction| {
        let agents = overview::agents(transaction)?;
        let (queues, stacks) = (overview::queues(transaction)?, overview::stacks(transaction)?);
        let cluster = facts::id_of(transaction, "cluster")?;
        Ok(render(cluster, queues, agents, stacks, Timestamp::now()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn agent(name: &str, tags: &[&str], state: &str) -> AgentLine {
        AgentLine {
            id: uuid::Uuid::nil(),
            name: name.to_owned(),
            hostname: "host".to_owned(),
            version: "3.138.0".to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            state: state.to_owned(),
            stopping: false,
            paused: false,
            created_at: Timestamp::UNIX_EPOCH,
            last_seen: Timestamp::UNIX_EPOCH,
            job: None,
        }
    }

    #[test]
    fn queues_count_the_agents_and_stacks_that_are_there() {
        let queue = |key: &str| QueueLine {
            id: Some(uuid::Uuid::nil()),
            key: key.to_owned(),
            paused: false,
            scheduled: 1,
            reserved: 2,
            running: 3,
        };
        let stack = |key: &str, minutes: i64| StackRow {
            id: uuid::Uuid::nil(),
            key: key.to_owned(),
            kind: "custom".to_owned(),
            queue: "linux".to_owned(),
            metadata: BTreeMap::new(),
            registered: true,
            last_seen: Timestamp::from_second(minutes * 60).unwrap(),
        };
        let agents = vec![
            agent("a", &["queue=linux", "os=debian"], "connected"),
            agent("b", &[], "connected"),
            agent("c", &["queue=linux"], "lost"),
        ];
        let now = Timestamp::from_second(3600).unwrap();
        let stacks = vec![(stack("k8s", 59), 2), (stack("silent", 5), 0)];
        insta::assert_json_snapshot!(render(
            uuid::Uuid::nil(),
            vec![queue("default"), queue("linux")],
            agents,
            stacks,
            now
        ));
    }
}
