//! Many agents register by way of the operator, at a steady pace: what that costs its process. Their pods are on nodes that cost nothing.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bk_e2e::agent::Broker;
use bk_e2e::kwok::Kwok;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::command::{Command, Controller};
use super::stage::{Goal, Setup, Stage};
use crate::figures::{Line, spread};

/// Registrations per second, and how many.
const PACE: u32 = 100;
const AGENTS: usize = 1_500;
/// How many pods are prepared at once.
const CONCURRENCY: usize = 32;
/// How long the operator is watched before, with all pods there.
const BEFORE: Duration = Duration::from_secs(10);
/// How long it has to come to rest when the last pod runs: it waits for 15 s before it puts on record that an agent has not registered.
const REST: Duration = Duration::from_secs(25);
const LIMIT: Duration = Duration::from_mins(5);
/// What registrations may take of a core.
const TARGET: f64 = 0.1;

/// How pods prove who they are.
#[derive(Clone, Copy)]
enum Proof {
    Address,
    ServiceAccount,
}

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for proof in [Proof::Address, Proof::ServiceAccount] {
        lines.extend(with(setup, command, proof).await?);
    }
    Ok(lines)
}

async fn with(setup: &Setup, command: &Command, proof: Proof) -> Result<Vec<Line>> {
    let (config, name) = match proof {
        Proof::Address => ("registrationProof: address", "by address"),
        Proof::ServiceAccount => ("registrationProof: serviceAccount", "by service account"),
    };
    let stage = Stage::set(setup).await?;
    stage.world.cluster.configure("pod_config", config).await?;
    let kwok = stage.nodes()?;
    let command = command.with(&stage.world.broker_flags().join(" "));
    let mut controller = stage.start(&command, AGENTS).await?;
    let broker = Broker::of(&stage.world).await?;
    eprintln!("  {name}: making {AGENTS} pods");
    stage.fill(&kwok, AGENTS).await?;
    let goal = Goal { what: "pods run", all: AGENTS };
    let all = stage.until_all(LIMIT, &mut controller, None, goal, || stage.pods.running().len()).await?;
    ensure!(all, "{} pods run", stage.pods.running().len());
    let shown = shown(&stage, &broker, proof).await?;
    tokio::time::sleep(REST).await;

    let meter = (controller.cpu()?, Instant::now());
    tokio::time::sleep(BEFORE).await;
    let idle = share(&controller, meter)?.1;
    eprintln!("  {name}: {PACE} registrations per second");
    let lines = register(&stage, &kwok, &controller, &broker, shown, name, idle).await?;

    drop(controller);
    stage.strike().await?;
    // What goes must not be in the way of what is measured next.
    bk_e2e::eventually_for(
        AGENTS,
        "no pod is left",
        async || Ok((stage.pods.gone() >= AGENTS).then_some(())),
    )
    .await?;
    kwok.remove()?;
    Ok(lines)
}

/// The address that calls from this machine to itself come from: not the one that they go to, where it hides them behind another.
fn seen_as(host: IpAddr) -> Result<IpAddr> {
    let listener = TcpListener::bind((host, 0))?;
    let _call = TcpStream::connect(listener.local_addr()?)?;
    Ok(listener.accept()?.1.ip())
}

/// What the agents of all pods show.
async fn shown(stage: &Stage, broker: &Broker, proof: Proof) -> Result<Vec<String>> {
    let cluster = &stage.world.cluster;
    let api = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.namespace);
    let host = seen_as(stage.world.environment.host)?;
    let show = cluster.pods().await?.into_iter().map(|pod| {
        let (api, broker) = (api.clone(), broker.clone());
        async move {
            match proof {
                Proof::Address => {
                    let status = json!({ "status": { "podIP": host, "podIPs": [{ "ip": host }] } });
                    let patch = Patch::Merge(status);
                    api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
                    Broker::ticket(&pod)
                }
                Proof::ServiceAccount => broker.proven_ticket(&pod).await,
            }
        }
    });
    stream::iter(show).buffer_unordered(CONCURRENCY).try_collect().await
}

/// All of them register, each on a connection of its own.
async fn register(
    stage: &Stage,
    kwok: &Kwok<'_>,
    controller: &Controller,
    broker: &Broker,
    shown: Vec<String>,
    name: &str,
    idle: f64,
) -> Result<Vec<Line>> {
    let mark = Timestamp::now();
    let meter = stage.meter(controller, kwok)?;
    let used = (controller.cpu()?, Instant::now());
    let mut beat = interval(Duration::from_secs(1) / PACE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut agents = JoinSet::new();
    for shown in shown {
        beat.tick().await;
        let broker = broker.clone();
        agents.spawn(async move {
            let begun = Instant::now();
            broker.register(&shown).await?;
            anyhow::Ok(begun.elapsed())
        });
    }
    let mut times = Vec::new();
    while let Some(agent) = agents.join_next().await {
        times.push(agent?.context("an agent cannot register")?);
    }
    let took = used.1.elapsed();
    let (cpu, cores) = share(controller, used)?;
    let processors = meter.lines()?;
    let calls = stage.api_calls(mark)?;
    let writes = calls.iter().filter(|call| call.is_write() && call.resource == "secrets").count();
    #[allow(clippy::cast_precision_loss, reason = "a few thousand at the most")]
    let (count, secrets) = (times.len() as f64, writes as f64);
    let percent = |share: f64| format!("{:.1} % of a core", share * 100.0);
    let added = cores - idle;
    let line = Line::value(format!("{name}: added to the operator's processor"), percent(added));
    let mut lines = vec![
        line.with_target("< 10 %", added < TARGET),
        Line::value(
            "  its processor, before and meanwhile",
            format!("{}, {}", percent(idle), percent(cores)),
        ),
        Line::value(
            "  registered",
            format!("{count} in {:.1} s, {:.0} per second", took.as_secs_f64(), count / took.as_secs_f64()),
        ),
        Line::value("  its processor for each", format!("{:.2} ms", cpu.as_secs_f64() * 1000.0 / count)),
        Line::value("  a registration", spread(times).0),
        Line::value("  writes to Secrets", format!("{writes}, {:.2} per registration", secrets / count)),
    ];
    lines.extend(processors);
    Ok(lines)
}

/// The processor time that a controller has used since, and its share of a core.
fn share(controller: &Controller, (before, begun): (Duration, Instant)) -> Result<(Duration, f64)> {
    let used = controller.cpu()?.saturating_sub(before);
    Ok((used, used.as_secs_f64() / begun.elapsed().as_secs_f64()))
}
