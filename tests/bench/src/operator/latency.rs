//! How long a job waits for its pod when jobs come one after another.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bk_api::names;
use bk_e2e::kwok::Kwok;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::agents::Agents;
use super::command::{Command, Controller};
use super::stage::{self, Goal, Job, Setup, Stage, span};
use crate::figures::{Line, spread};

/// Jobs per second, and for how many seconds.
const PACES: [(u32, u32); 3] = [(1, 30), (10, 20), (50, 12)];
/// At this pace half of the jobs have to have a pod within the target.
const TARGET: (u32, Duration) = (10, Duration::from_millis(400));
const MAX_IN_FLIGHT: usize = 1_000;
const LIMIT: Duration = Duration::from_mins(2);

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let kwok = stage.nodes()?;
    let mut controller = stage.start(command, MAX_IN_FLIGHT).await?;
    stage.pipeline(&stage::step(&kwok, 1)).await?;
    let agents = Agents::play(&stage);
    let mut lines = Vec::new();
    for (pace, seconds) in PACES {
        lines.extend(at(&stage, &kwok, &mut controller, &agents, pace, seconds).await?);
    }
    drop(agents);
    kwok.remove()?;
    stage.strike().await?;
    Ok(lines)
}

/// Jobs at one pace, all of which end.
async fn at(
    stage: &Stage,
    kwok: &Kwok<'_>,
    controller: &mut Controller,
    agents: &Agents,
    pace: u32,
    seconds: u32,
) -> Result<Vec<Line>> {
    let (mark, before) = (Timestamp::now(), stage.pods.gone());
    eprintln!("  {pace} jobs per second for {seconds} seconds");
    let meter = stage.meter(controller, kwok)?;
    let jobs = submit(stage, pace, pace * seconds).await?;
    let processors = meter.lines()?;
    let all = before + jobs.len();
    let over =
        stage.until_all(LIMIT, controller, Some(agents), Goal::gone(all), || stage.pods.gone()).await?;
    ensure!(over, "at {pace} jobs per second {} of {all} pods are gone", stage.pods.gone());

    let to_pod = jobs.iter().filter_map(|job| Some(span(job.scheduled, stage.pods.of(job.id)?.created)));
    let (text, median) = spread(to_pod.collect());
    let line = Line::value(format!("{pace} jobs/s: scheduled → pod created"), text);
    let (target_pace, target) = TARGET;
    let line = if pace == target_pace { line.with_target("< 400 ms", median < target) } else { line };
    let calls = stage.api_calls(mark)?;
    let creations = calls.into_iter().filter(|call| call.verb == "create" && call.resource == "buildjobs");
    let made: HashMap<String, Timestamp> = creations.filter_map(|call| Some((call.name?, call.at))).collect();
    let to_build_job: Vec<Duration> = jobs
        .iter()
        .filter_map(|job| Some(span(job.scheduled, *made.get(&names::build_job(&job.id.to_string()))?)))
        .collect();
    let mut lines = vec![line];
    if !to_build_job.is_empty() {
        lines.push(Line::value("  scheduled → BuildJob asked for", spread(to_build_job).0));
    }
    lines.extend(processors);
    Ok(lines)
}

/// Starts so many builds of one job, so many a second, whatever each takes.
async fn submit(stage: &Stage, pace: u32, jobs: u32) -> Result<Vec<Job>> {
    let mut beat = interval(Duration::from_secs(1) / pace);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut builds = JoinSet::new();
    for _ in 0..jobs {
        beat.tick().await;
        let buildkite = stage.world.buildkite.clone();
        builds.spawn(async move { stage::build(&buildkite).await });
    }
    let mut all = Vec::new();
    while let Some(build) = builds.join_next().await {
        all.extend(build??);
    }
    Ok(all)
}
