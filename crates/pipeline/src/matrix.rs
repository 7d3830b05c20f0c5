//! `matrix`: one step, a job for each combination of values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::node::{Node, Value};
use super::rules;
use super::step::{Command, Kind, Permutation, SoftFail, Step};

const MAX_DIMENSIONS: usize = 6;
const MAX_VALUES: usize = 25;
const MAX_ADJUSTMENTS: usize = 12;
const MAX_JOBS: usize = 50;

/// `{{matrix}}` and `{{ matrix.os }}`.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*matrix(?:\.([\w.-]+))?\s*\}\}").expect("a fixed pattern that is tested")
});

/// The combinations that a step asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// In order; a plain list is one dimension called `""`.
    dimensions: Vec<(String, Vec<String>)>,
    adjustments: Vec<Adjustment>,
    /// As it was written, for the agent.
    pub source: Json,
}

/// What is different about one combination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Adjustment {
    with: Permutation,
    skip: Option<String>,
    soft_fail: Option<SoftFail>,
}

impl Matrix {
    /// Every combination in order, those that adjustments add last; with the reason when it is skipped.
    pub fn permutations(&self) -> Vec<(Permutation, Option<String>)> {
        let mut all = vec![Permutation::new()];
        for (name, values) in &self.dimensions {
            all = all
                .iter()
                .flat_map(|so_far| {
                    values.iter().map(|value| {
                        let mut next = so_far.clone();
                        next.insert(name.clone(), value.clone());
                        next
                    })
                })
                .collect();
        }
        for adjustment in &self.adjustments {
            if !all.contains(&adjustment.with) {
                all.push(adjustment.with.clone());
            }
        }
        all.into_iter()
            .map(|permutation| {
                let skip = self.adjustment(&permutation).and_then(|adjustment| adjustment.skip.clone());
                (permutation, skip)
            })
            .collect()
    }

    fn adjustment(&self, permutation: &Permutation) -> Option<&Adjustment> {
        self.adjustments.iter().find(|adjustment| adjustment.with == *permutation)
    }

    fn size(&self) -> usize {
        let product: usize = self.dimensions.iter().map(|(_, values)| values.len()).product();
        let added = |adjustment: &&Adjustment| {
            self.dimensions
                .iter()
                .any(|(name, values)| adjustment.with.get(name).is_none_or(|value| !values.contains(value)))
        };
        product + self.adjustments.iter().filter(added).count()
    }
}

impl Command {
    /// Which failures of the job with this combination are soft.
    pub fn soft_fail_of(&self, permutation: Option<&Permutation>) -> &SoftFail {
        let own = match (&self.matrix, permutation) {
            (Some(matrix), Some(permutation)) => matrix.adjustment(permutation),
            _ => None,
        };
        own.and_then(|adjustment| adjustment.soft_fail.as_ref()).unwrap_or(&self.soft_fail)
    }
}

impl Step {
    /// The step as the job with this combination sees it: with every placeholder filled in.
    pub fn permuted(&self, permutation: Option<&Permutation>) -> Cow<'_, Self> {
        let (Some(permutation), Kind::Command(command)) = (permutation, &self.kind) else {
            return Cow::Borrowed(self);
        };
        let fill = |text: &str| fill(text, permutation);
        let command = Command {
            script: fill(&command.script),
            env: command.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
            agents: command.agents.iter().map(|rule| fill(rule)).collect(),
            plugins: command.plugins.iter().map(|plugin| fill_json(plugin, &fill)).collect(),
            ..(**command).clone()
        };
        Cow::Owned(Self {
            label: self.label.as_deref().map(fill),
            kind: Kind::Command(Box::new(command)),
            ..self.clone()
        })
    }
}

fn fill(text: &str, permutation: &Permutation) -> String {
    let value = |captures: &Captures<'_>| {
        let name = captures.get(1).map_or("", |name| name.as_str());
        // An unknown name was refused when the step was read.
        permutation.get(name).cloned().unwrap_or_default()
    };
    PLACEHOLDER.replace_all(text, value).into_owned()
}

fn fill_json(json: &Json, fill: &impl Fn(&str) -> String) -> Json {
    match json {
        Json::String(text) => Json::String(fill(text)),
        Json::Array(items) => Json::Array(items.iter().map(|item| fill_json(item, fill)).collect()),
        Json::Object(entries) => {
            Json::Object(entries.iter().map(|(key, value)| (fill(key), fill_json(value, fill))).collect())
        }
        other => other.clone(),
    }
}

/// Reads `matrix`.
pub(crate) fn matrix(attributes: &mut Attributes) -> Result<Option<Matrix>, PipelineProblem> {
    let Some(node) = attributes.take(&["matrix"])? else { return Ok(None) };
    let (setup, adjustments) = match &node.value {
        Value::Null => return Ok(None),
        Value::List(_) => (node.clone(), Vec::new()),
        Value::Map(_) => {
            let mut parts = Attributes::of(&node);
            let setup = parts.take(&["setup"])?;
            let adjustments = match parts.take(&["adjustments"])? {
                Some(Node { value: Value::List(items), .. }) => items,
                Some(Node { value: Value::Null, .. }) | None => Vec::new(),
                Some(other) => return Err(wrong(&other, "adjustments", "a list")),
            };
            parts.finish()?;
            let setup = setup.ok_or_else(|| PipelineProblem::at(&node, "a matrix needs a setup"))?;
            (setup, adjustments)
        }
        _ => return Err(wrong(&node, "matrix", "a list of values, or a map with setup")),
    };
    let dimensions = dimensions(&setup)?;
    if adjustments.len() > MAX_ADJUSTMENTS {
        let text = format!("{} adjustments; at most {MAX_ADJUSTMENTS} are allowed", adjustments.len());
        return Err(PipelineProblem::at(&node, text));
    }
    let adjustments =
        adjustments.iter().map(|item| adjustment(item, &dimensions)).collect::<Result<Vec<_>, _>>()?;
    let matrix = Matrix { dimensions, adjustments, source: node.to_json() };
    if matrix.size() > MAX_JOBS {
        let text = format!("the matrix has {} combinations; at most {MAX_JOBS} are allowed", matrix.size());
        return Err(PipelineProblem::at(&node, text));
    }
    Ok(Some(matrix))
}

fn dimensions(setup: &Node) -> Result<Vec<(String, Vec<String>)>, PipelineProblem> {
    match &setup.value {
        Value::List(_) => Ok(vec![(String::new(), values(setup)?)]),
        Value::Map(entries) if entries.is_empty() => {
            Err(PipelineProblem::at(setup, "setup has no dimensions"))
        }
        Value::Map(entries) if entries.len() > MAX_DIMENSIONS => Err(PipelineProblem::at(
            setup,
            format!("{} dimensions; at most {MAX_DIMENSIONS} are allowed", entries.len()),
        )),
        Value::Map(entries) => entries
            .iter()
            .map(|(name, list)| {
                if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
                    let text = format!("the dimension {name:?} may only have letters, digits and _ - .");
                    return Err(PipelineProblem::at(list, text));
                }
                Ok((name.clone(), values(list)?))
            })
            .collect(),
        _ => Err(wrong(setup, "setup", "a list of values, or a map of dimensions")),
    }
}

fn values(list: &Node) -> Result<Vec<String>, PipelineProblem> {
    let Value::List(items) = &list.value else { return Err(wrong(list, "a dimension", "a list of values")) };
    if items.is_empty() || items.len() > MAX_VALUES {
        let text = format!("a dimension has between 1 and {MAX_VALUES} values, not {}", items.len());
        return Err(PipelineProblem::at(list, text));
    }
    let mut values = Vec::new();
    for item in items {
        let value = scalar(item)?;
        if values.contains(&value) {
            return Err(PipelineProblem::at(item, format!("the value {value:?} is there twice")));
        }
        values.push(value);
    }
    Ok(values)
}

fn scalar(node: &Node) -> Result<String, PipelineProblem> {
    match &node.value {
        Value::Null => Err(wrong(node, "a matrix value", "a string, a number or a boolean")),
        _ => node.scalar().ok_or_else(|| wrong(node, "a matrix value", "a string, a number or a boolean")),
    }
}

fn adjustment(node: &Node, dimensions: &[(String, Vec<String>)]) -> Result<Adjustment, PipelineProblem> {
    let Value::Map(_) = &node.value else { return Err(wrong(node, "an adjustment", "a map with with")) };
    let mut attributes = Attributes::of(node);
    let with =
        attributes.take(&["with"])?.ok_or_else(|| PipelineProblem::at(node, "an adjustment needs with"))?;
    let skip = rules::skip(&mut attributes)?;
    let softens = attributes.has("soft_fail");
    let soft_fail = Some(rules::soft_fail(&mut attributes)?).filter(|_| softens);
    attributes.finish()?;
    let combination: Permutation = match &with.value {
        Value::Map(entries) => entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), scalar(value)?)))
            .collect::<Result<_, _>>()?,
        _ => BTreeMap::from([(String::new(), scalar(&with)?)]),
    };
    let complete = combination.len() == dimensions.len()
        && dimensions.iter().all(|(name, _)| combination.contains_key(name));
    if !complete {
        let names: Vec<&str> = dimensions.iter().map(|(name, _)| name.as_str()).collect();
        let text = match names[..] {
            [""] => "with must be one value: the matrix is a plain list".to_owned(),
            _ => format!("with must have exactly the dimensions {}", names.join(", ")),
        };
        return Err(PipelineProblem::at(&with, text));
    }
    Ok(Adjustment { with: combination, skip, soft_fail })
}

/// Refuses placeholders that no dimension fills, in everything they are filled into.
pub(crate) fn check_placeholders(step: &Step) -> Result<(), String> {
    let Kind::Command(command) = &step.kind else { return Ok(()) };
    let Some(matrix) = &command.matrix else { return Ok(()) };
    let known = |name: &str| matrix.dimensions.iter().any(|(dimension, _)| dimension == name);
    let mut unknown = None;
    let mut look = |text: &str| {
        for captures in PLACEHOLDER.captures_iter(text) {
            let name = captures.get(1).map_or("", |name| name.as_str());
            if !known(name) && unknown.is_none() {
                unknown = Some(captures[0].to_owned());
            }
        }
    };
    step.label.iter().for_each(|label| look(label));
    look(&command.script);
    command.env.values().for_each(|value| look(value));
    command.agents.iter().for_each(|rule| look(rule));
    let plugins = command.plugins.iter().map(ToString::to_string);
    plugins.for_each(|plugin| look(&plugin));
    match unknown {
        Some(placeholder) => Err(format!("{placeholder} names no dimension of the matrix")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
