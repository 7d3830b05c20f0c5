//! A controller that is killed at work, and another that stands by for it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use super::command::Command;
use super::stage::{Goal, Setup, Stage, span};
use crate::figures::{Line, spread};

const JOBS: usize = 200;
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_mins(2);
const TARGET: Duration = Duration::from_secs(10);

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let kwok = stage.nodes()?;
    let replica = command.with("--lease=buildkite-operator");
    let mut leader = stage.start(&replica, JOBS).await?;
    let jobs = stage.fill(&kwok, JOBS).await?;
    let goal = Goal::created(JOBS);
    let all = stage.until_all(LIMIT, &mut leader, None, goal, || stage.pods.created()).await?;
    ensure!(all, "{} pods were created", stage.pods.created());

    let mut times = Vec::new();
    for job in &jobs[..ROUNDS] {
        let mut standby = replica.start(&stage, JOBS).await?;
        let log = standby.log().to_owned();
        let stands_by = || Ok(fs::read_to_string(&log)?.contains("stands by"));
        ensure!(stage.until(LIMIT, &mut standby, None, stands_by).await?, "nobody stands by");
        let killed = Timestamp::now();
        drop(leader);
        // What there is to do, as nothing else happens to jobs that nobody ends.
        stage.world.buildkite.cancel(job.id).await?;
        let took =
            stage.until(LIMIT, &mut standby, None, || Ok(first_work(&stage, killed)?.is_some())).await?;
        ensure!(took, "nobody has taken over: {}", standby.last_words());
        times.push(span(killed, first_work(&stage, killed)?.context("somebody has taken over")?));
        leader = standby;
    }
    drop(leader);
    kwok.remove()?;
    stage.strike().await?;
    let met = times.iter().all(|time| *time < TARGET);
    let (text, _) = spread(times);
    let name = format!("{JOBS} jobs: killed → another works for a job");
    Ok(vec![Line::value(name, text).with_target("< 10 s", met)])
}

/// When something was first written for a job after `mark`. The Lease is no job's.
fn first_work(stage: &Stage, mark: Timestamp) -> Result<Option<Timestamp>> {
    let calls = stage.api_calls(mark)?;
    let work = calls.iter().filter(|call| call.is_write() && call.resource != "leases" && call.code < 300);
    Ok(work.map(|call| call.at).min())
}
