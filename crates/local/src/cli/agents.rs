//! `buildkite-local agents` and `queue`.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, read};
use super::connection::Connection;
use super::table::{Output, table};
use super::terminal::{Terminal, Tone};

/// Flags of `agents`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// How to print the list
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Output,

    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Have an agent leave after the job that it has
    Stop {
        /// Its name or id
        agent: String,
        /// Cancel its job
        #[arg(long)]
        force: bool,
    },
    /// Have an agent take no further job
    Pause {
        /// Its name or id
        agent: String,
        /// Why
        #[arg(long, default_value = "")]
        note: String,
        /// Minutes after which it goes on by itself
        #[arg(long, default_value_t = 5, value_name = "MINUTES")]
        timeout: u32,
    },
    /// Have a paused agent go on
    Resume {
        /// Its name or id
        agent: String,
    },
}

#[derive(Deserialize)]
struct Agent {
    id: String,
    name: String,
    connection_state: String,
    hostname: String,
    version: String,
    meta_data: Vec<String>,
    #[serde(default)]
    paused: bool,
    job: Option<Working>,
}

#[derive(Deserialize)]
struct Working {
    web_url: String,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let all = client.list("agents").await?;
    let (agent, how, body) = match args.action {
        None => return list(args.output, all),
        Some(Action::Stop { agent, force }) => (agent, "stop", json!({ "force": force })),
        Some(Action::Pause { agent, note, timeout }) => {
            (agent, "pause", json!({ "note": note, "timeout_in_minutes": timeout }))
        }
        Some(Action::Resume { agent }) => (agent, "resume", json!({})),
    };
    let agents: Vec<Agent> = read(all)?;
    let found = named(&agents, &agent)?;
    client.act(Method::PUT, &format!("agents/{}/{how}", found.id), Some(&body)).await?;
    let done = match how {
        "stop" => "leaves after its job",
        "pause" => "is paused",
        _ => "goes on",
    };
    Terminal::stdout().line(Tone::Plain, &format!("agent {} {done}", found.name));
    Ok(ExitCode::SUCCESS)
}

fn named<'a>(agents: &'a [Agent], name: &str) -> anyhow::Result<&'a Agent> {
    let found: Vec<&Agent> = agents.iter().filter(|agent| agent.name == name || agent.id == name).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(anyhow!("no agent {name} is connected; `buildkite-local agents` lists those that are")),
        several => {
            let ids: Vec<&str> = several.iter().map(|agent| agent.id.as_str()).collect();
            bail!("several agents are called {name}: name one by its id: {}", ids.join(", "))
        }
    }
}

fn list(output: Output, all: Value) -> anyhow::Result<ExitCode> {
    let terminal = Terminal::stdout();
    if output == Output::Json {
        terminal.line(Tone::Plain, &serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    let agents: Vec<Agent> = read(all)?;
    if agents.is_empty() {
        terminal.line(Tone::Quiet, "no agent is connected");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = agents
        .into_iter()
        .map(|agent| {
            let state = if agent.paused { "paused".to_owned() } else { agent.connection_state };
            let job = agent.job.map_or_else(|| "-".to_owned(), |job| job.web_url);
            vec![agent.name, state, agent.meta_data.join(","), agent.hostname, agent.version, job]
        })
        .collect();
    terminal.lines(&table(&["AGENT", "STATE", "TAGS", "HOST", "VERSION", "JOB"], &rows));
    Ok(ExitCode::SUCCESS)
}

/// Flags of `queue`.
#[derive(clap::Args)]
pub(super) struct QueueArgs {
    #[command(subcommand)]
    action: QueueAction,

    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum QueueAction {
    /// List the queues
    List,
    /// Hand out none of a queue's jobs
    Pause {
        /// The queue
        key: String,
    },
    /// Hand a queue's jobs out again
    Resume {
        /// The queue
        key: String,
    },
}

#[derive(Deserialize)]
struct Queue {
    id: String,
    key: String,
    dispatch_paused: bool,
}

pub(super) async fn queue(args: QueueArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    let (path, queues) = queues(&client).await?;
    let (key, how, done) = match &args.action {
        QueueAction::List => {
            let state = |queue: &Queue| if queue.dispatch_paused { "paused" } else { "running" }.to_owned();
            let rows: Vec<_> = queues.iter().map(|queue| vec![queue.key.clone(), state(queue)]).collect();
            terminal.lines(&table(&["QUEUE", "STATE"], &rows));
            return Ok(ExitCode::SUCCESS);
        }
        QueueAction::Pause { key } => (key, "pause_dispatch", "is paused"),
        QueueAction::Resume { key } => (key, "resume_dispatch", "goes on"),
    };
    let Some(found) = queues.iter().find(|queue| queue.key == *key) else {
        let known: Vec<&str> = queues.iter().map(|queue| queue.key.as_str()).collect();
        bail!("no queue {key}; there is {}", known.join(", "));
    };
    client.act(Method::POST, &format!("{path}/{}/{how}", found.id), None).await?;
    terminal.line(Tone::Plain, &format!("queue {key} {done}"));
    Ok(ExitCode::SUCCESS)
}

async fn queues(client: &Client) -> anyhow::Result<(String, Vec<Queue>)> {
    let clusters = client.list("clusters").await?;
    let path = format!("clusters/{}/queues", clusters[0]["id"].as_str().unwrap_or_default());
    let queues = read(client.list(&path).await?)?;
    Ok((path, queues))
}
