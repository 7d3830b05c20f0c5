//! What three hundred jobs at once need.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::NODES;
use super::agents::Agents;
use super::command::Command;
use super::stage::{Goal, Setup, Stage};
use crate::figures::Line;

const JOBS: usize = 300;
const LIMIT: Duration = Duration::from_mins(2);
const MEGABYTES: u64 = 60;

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let kwok = stage.nodes()?;
    let mut controller = stage.start(command, JOBS).await?;
    let (before, _) = controller.memory()?;
    stage.fill(&kwok, JOBS).await?;
    let all =
        stage.until_all(LIMIT, &mut controller, None, Goal::created(JOBS), || stage.pods.created()).await?;
    ensure!(all, "{} pods were created", stage.pods.created());
    let (full, _) = controller.memory()?;
    let agents = Agents::play(&stage);
    let all = stage
        .until_all(LIMIT, &mut controller, Some(&agents), Goal::gone(JOBS), || stage.pods.gone())
        .await?;
    ensure!(all, "{} pods are gone", stage.pods.gone());
    stage.cleared(JOBS).await?;
    let (after, peak) = controller.memory()?;
    kwok.remove()?;
    stage.strike().await?;
    let line = Line::value(
        format!("{JOBS} jobs at once on {NODES} nodes: most memory"),
        format!("{peak} MB ({before} before, {full} live, {after} after)"),
    );
    Ok(vec![line.with_target("< 60 MB", peak < MEGABYTES)])
}
