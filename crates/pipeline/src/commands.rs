//! Command steps.

use super::PipelineProblem;
use super::attributes::Attributes;
use super::checkout::{self, Checkout};
use super::node::{Node, Value};
use super::secrets::{self, Secret};
use super::step::Command;
use super::{matrix, plugins, rules};

/// Attributes of the document that its command steps inherit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) agents: Vec<String>,
    pub(crate) image: Option<String>,
    pub(crate) priority: i64,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) checkout: Checkout,
}

/// Reads what is particular to a command step.
pub(crate) fn command(attributes: &mut Attributes, defaults: &Defaults) -> Result<Command, PipelineProblem> {
    let text = script(attributes)?;
    let plugins = match attributes.take(&["plugins"])? {
        Some(node) => plugins::plugins(&node)?,
        None => Vec::new(),
    };
    let artifact_paths = match attributes.take(&["artifact_paths", "artifacts"])? {
        Some(node) => rules::texts(&node, "artifact_paths")?,
        None => Vec::new(),
    };
    let parallelism = rules::count(attributes, &["parallelism"])?;
    let matrix = matrix::matrix(attributes)?;
    if parallelism.is_some() && matrix.is_some() {
        return Err(attributes.problem("a step has either parallelism or a matrix, not both"));
    }
    Ok(Command {
        script: text,
        env: attributes.env()?,
        agents: rules::agents(attributes)?.unwrap_or_else(|| defaults.agents.clone()),
        plugins,
        image: attributes.text(&["image"])?.or_else(|| defaults.image.clone()),
        artifact_paths,
        parallelism,
        matrix,
        concurrency: rules::concurrency(attributes)?,
        secrets: secrets::merged(&defaults.secrets, &secrets::secrets(attributes)?),
        checkout: checkout::merged(&defaults.checkout, checkout::checkout(attributes, true)?),
        cache: attributes.take(&["cache"])?.map(|node| node.to_json()).filter(|cache| !cache.is_null()),
        soft_fail: rules::soft_fail(attributes)?,
        retry: rules::retry(attributes)?,
        timeout_in_minutes: rules::count(attributes, &["timeout_in_minutes", "timeout"])?,
        priority: attributes.number(&["priority"], i64::MIN)?.unwrap_or(defaults.priority),
        cancel_on_build_failing: attributes.flag(&["cancel_on_build_failing"])?,
        signature: attributes.take(&["signature"])?.map(|node| node.to_json()),
    })
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
