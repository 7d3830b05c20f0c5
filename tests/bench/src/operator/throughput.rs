//! As many jobs as come: from the queue to pods, and then through the whole of their lives.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::agents::Agents;
use super::calls;
use super::command::Command;
use super::stage::{Goal, Setup, Stage, span};
use crate::figures::Line;

/// How many jobs come at once.
const FLOODS: [usize; 2] = [1_000, 5_000];
/// How long the pods of all of them may take, and their lives, which depend on agents that are played a few at a time.
const LIMIT: Duration = Duration::from_mins(4);
const LIVES: Duration = Duration::from_mins(10);
/// What is expected of the larger flood.
const PODS_PER_SECOND: f64 = 90.0;
const MEGABYTES: u64 = 80;

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for jobs in FLOODS {
        lines.extend(flood(setup, command, jobs).await.with_context(|| format!("with {jobs} jobs"))?);
    }
    Ok(lines)
}

async fn flood(setup: &Setup, command: &Command, jobs: usize) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let kwok = stage.nodes()?;
    let mut controller = stage.start(command, jobs).await?;
    let (mark, cpu) = (Timestamp::now(), controller.cpu()?);

    // No agent takes a job before all pods are there, so that all jobs are live at the same time.
    let meter = stage.meter(&controller, &kwok)?;
    let first = stage.fill(&kwok, jobs).await?[0].scheduled;
    eprintln!("  {jobs} jobs wait");
    stage.until_all(LIMIT, &mut controller, None, Goal::created(jobs), || stage.pods.created()).await?;
    let processors = meter.lines()?;
    let created = stage.pods.created();
    let took = span(first, stage.pods.last_created().unwrap_or(first));
    let rate = per_second(created, took);
    let text = format!("{created} in {:.1} s, {rate:.1} per second", took.as_secs_f64());
    let line = Line::value(format!("{jobs} jobs: pods created"), text);
    let mut lines = vec![line.with_target(">= 90/s", rate >= PODS_PER_SECOND)];
    lines.extend(processors);
    let (memory, _) = controller.memory()?;
    let line = Line::value(format!("  memory with {created} live jobs"), format!("{memory} MB"));
    lines.push(line.with_target("< 80 MB", memory < MEGABYTES));

    let began = Timestamp::now();
    let meter = stage.meter(&controller, &kwok)?;
    let agents = Agents::play(&stage);
    stage.until_all(LIVES, &mut controller, Some(&agents), Goal::gone(created), || stage.pods.gone()).await?;
    let processors = meter.lines()?;
    let took = span(began, stage.pods.last_gone().unwrap_or(began));
    let gone = stage.pods.gone();
    let text = format!("{gone} in {:.1} s, {:.1} per second", took.as_secs_f64(), per_second(gone, took));
    lines.push(Line::value("  then: agents come, jobs end, pods go", text));
    lines.extend(processors);
    stage.cleared(jobs).await?;
    let cpu = controller.cpu()?.saturating_sub(cpu).as_secs_f64();
    lines.push(Line::value(
        "  controller: processor per 1,000 jobs",
        format!("{:.2} s", cpu / thousands(jobs)),
    ));
    let (memory, peak) = controller.memory()?;
    lines.push(Line::value("  controller: memory", format!("{memory} MB, at most {peak} MB")));
    drop(agents);
    lines.extend(calls::of_cluster(&stage.api_calls(mark)?, jobs));
    lines.extend(calls::of_buildkite(&stage.buildkite_calls(mark)?, jobs));
    kwok.remove()?;
    stage.strike().await?;
    Ok(lines)
}

#[allow(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(f64::EPSILON)
}

#[allow(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
fn thousands(count: usize) -> f64 {
    count as f64 / 1000.0
}
