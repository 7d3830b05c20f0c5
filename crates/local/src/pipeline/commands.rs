//! Command steps.

use super::PipelineProblem;
use super::attributes::Attributes;
use super::node::{Node, Value};
use super::plugins;
use super::rules;
use super::step::{Command, Kind};

/// Attributes of the document that its command steps inherit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) agents: Vec<String>,
    pub(crate) image: Option<String>,
    pub(crate) priority: i64,
}

/// Attributes of command steps that are refused rather than ignored.
const REFUSED: [&str; 9] = [
    "if",
    "if_changed",
    "branches",
    "matrix",
    "concurrency",
    "concurrency_group",
    "concurrency_method",
    "secrets",
    "checkout",
];

/// Reads what is particular to a command step.
pub(crate) fn command(attributes: &mut Attributes, defaults: &Defaults) -> Result<Kind, PipelineProblem> {
    attributes.refuse(&REFUSED)?;
    attributes.refuse(&["cache"])?;
    // Notifications go nowhere from a laptop.
    attributes.take(&["notify"])?;
    let text = script(attributes)?;
    let plugins = match attributes.take(&["plugins"])? {
        Some(node) => plugins::plugins(&node)?,
        None => Vec::new(),
    };
    let artifact_paths = match attributes.take(&["artifact_paths", "artifacts"])? {
        Some(node) => rules::texts(&node, "artifact_paths")?,
        None => Vec::new(),
    };
    let parallelism = small(attributes.number(&["parallelism"], 0)?, attributes, "parallelism")?;
    let timeout =
        small(attributes.number(&["timeout_in_minutes", "timeout"], 0)?, attributes, "timeout_in_minutes")?;
    Ok(Kind::Command(Box::new(Command {
        script: text,
        env: attributes.env()?,
        agents: rules::agents(attributes)?.unwrap_or_else(|| defaults.agents.clone()),
        plugins,
        image: attributes.text(&["image"])?.or_else(|| defaults.image.clone()),
        artifact_paths,
        parallelism: parallelism.filter(|count| *count > 0),
        soft_fail: rules::soft_fail(attributes)?,
        retry: rules::retry(attributes)?,
        timeout_in_minutes: timeout.filter(|minutes| *minutes > 0),
        priority: attributes.number(&["priority"], i64::MIN)?.unwrap_or(defaults.priority),
        cancel_on_build_failing: attributes.flag(&["cancel_on_build_failing"])?,
        signature: attributes.take(&["signature"])?.map(|node| node.to_json()),
    })))
}

/// `command` or `commands`, a string or a list, as one text.
fn script(attributes: &mut Attributes) -> Result<String, PipelineProblem> {
    let Some(node) = attributes.take(&["command", "commands"])? else { return Ok(String::new()) };
    match node {
        Node { value: Value::Map(_), .. } => {
            Err(PipelineProblem::at(&node, "command must be a string or a list of strings, not a map"))
        }
        node => Ok(rules::texts(&node, "command")?.join("\n")),
    }
}

fn small(value: Option<i64>, attributes: &Attributes, name: &str) -> Result<Option<u32>, PipelineProblem> {
    value
        .map(|value| {
            u32::try_from(value).map_err(|_| attributes.problem(format!("{name} {value} is too large")))
        })
        .transpose()
}
