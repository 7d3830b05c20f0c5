//! Why jobs wait that nobody would take: said once, with what helps.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::super::client::{Build, Client};

/// How long a job may wait before somebody has to be told why, and how often the reasons are asked for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has been said.
pub(super) struct Reasons {
    asked: Instant,
    said: HashSet<String>,
}

/// A build as the page sees it.
#[derive(Deserialize)]
struct Seen {
    steps: Vec<SeenStep>,
}

#[derive(Deserialize)]
struct SeenStep {
    jobs: Vec<SeenJob>,
}

#[derive(Deserialize)]
struct SeenJob {
    name: String,
    waits: Option<Waits>,
}

#[derive(Deserialize)]
struct Waits {
    why: String,
    mend: Option<Mend>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mend {
    StartAgent(Vec<String>),
    ResumeQueue(String),
}

impl Reasons {
    pub(super) fn new() -> Self {
        Self { asked: Instant::now(), said: HashSet::new() }
    }

    /// What has not been said yet. A server that does not tell reasons is no problem.
    pub(super) async fn new_ones(&mut self, client: &Client, build: &Build) -> Vec<String> {
        let waits = build.jobs.iter().any(|job| job.state == "scheduled");
        if !waits || self.asked.elapsed() < PATIENCE {
            return Vec::new();
        }
        self.asked = Instant::now();
        let Ok(seen) = client.seen_by_the_page::<Seen>(build.slug(), build.number).await else {
            return Vec::new();
        };
        let told = in_words(&seen, client.server());
        told.into_iter().filter(|text| self.said.insert(text.clone())).collect()
    }
}

/// Each reason that somebody has to do something about, with the first job that waits for it.
fn in_words(seen: &Seen, server: &str) -> Vec<String> {
    let mut known = HashSet::new();
    let mut told = Vec::new();
    for job in seen.steps.iter().flat_map(|step| &step.jobs) {
        let Some(Waits { why, mend: Some(mend) }) = &job.waits else { continue };
        let helps = how_to_mend(mend, server);
        if known.insert((why, helps.clone())) {
            told.push(format!("{} waits: {why} {helps}", job.name));
        }
    }
    told
}

fn how_to_mend(mend: &Mend, server: &str) -> String {
    match mend {
        Mend::ResumeQueue(queue) => format!("Resume it: buildkite-local queue resume {queue}"),
        Mend::StartAgent(tags) => {
            let tags = if tags.is_empty() { String::new() } else { format!(" --tags {}", tags.join(",")) };
            let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
            let local = local.iter().any(|start| server.starts_with(start));
            let token = if local { "local-agent-token" } else { "$BUILDKITE_AGENT_TOKEN" };
            format!(
                "Start one: buildkite-agent start --endpoint {server}/v3 --token {token} --build-path /tmp/builds{tags}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_once_with_what_helps() {
        let job = |name: &str, waits: serde_json::Value| serde_json::json!({ "name": name, "waits": waits });
        let start = |tags: &[&str]| serde_json::json!({ "why": "No agent is there.", "mend": { "start_agent": tags } });
        let seen = serde_json::json!({ "steps": [
            { "jobs": [job("a", start(&[])), job("b", start(&[])), job("c", serde_json::Value::Null)] },
            { "jobs": [job("d", start(&["queue=big", "gpu=true"])), job("e", serde_json::json!({ "why": "Waits for a." }))] },
            { "jobs": [job("f", serde_json::json!({ "why": "Queue q is paused.", "mend": { "resume_queue": "q" } }))] },
        ] });
        let told = in_words(&serde_json::from_value(seen).unwrap(), "http://127.0.0.1:8384");
        let agent = "buildkite-agent start --endpoint http://127.0.0.1:8384/v3 --token local-agent-token --build-path /tmp/builds";
        assert_eq!(
            told,
            [
                format!("a waits: No agent is there. Start one: {agent}"),
                format!("d waits: No agent is there. Start one: {agent} --tags queue=big,gpu=true"),
                "f waits: Queue q is paused. Resume it: buildkite-local queue resume q".to_owned(),
            ]
        );
    }

    #[test]
    fn the_token_of_a_server_elsewhere_is_not_known() {
        let text = how_to_mend(&Mend::StartAgent(Vec::new()), "https://ci.example");
        assert!(text.contains("--token $BUILDKITE_AGENT_TOKEN"), "{text}");
    }
}
