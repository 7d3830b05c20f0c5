//! What a controller costs while there is nothing to do.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::calls::Call;
use super::command::Command;
use super::stage::{Setup, Stage};
use crate::figures::Line;

const MINUTE: Duration = Duration::from_mins(1);
/// How long after its start a controller may still be busy with itself.
const SETTLING: Duration = Duration::from_secs(15);
const MAX_IN_FLIGHT: usize = 100;

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let mut controller = stage.start(command, MAX_IN_FLIGHT).await?;
    tokio::time::sleep(SETTLING).await;
    let (mark, cpu) = (Timestamp::now(), controller.cpu()?);
    tokio::time::sleep(MINUTE).await;
    controller.check()?;
    let used = controller.cpu()?.saturating_sub(cpu).as_secs_f64();
    let share = 100.0 * used / MINUTE.as_secs_f64();
    let (memory, peak) = controller.memory()?;
    let api = stage.api_calls(mark)?;
    let watches = api.iter().filter(|call| call.verb == "watch").count();
    let buildkite = stage.buildkite_calls(mark)?.iter().filter(|call| Call::is_of_stack(call)).count();
    stage.strike().await?;
    let processor = Line::value("a minute without jobs: processor", format!("{share:.2} % of a core"));
    Ok(vec![
        processor.with_target("< 0.5 %", share < 0.5),
        Line::value(
            "  requests to the API server",
            format!("{}, and {watches} watches", api.len() - watches),
        ),
        Line::value("  requests to Buildkite", buildkite.to_string()),
        Line::value("  memory", format!("{memory} MB, at most {peak} MB")),
    ])
}
