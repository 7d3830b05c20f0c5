//! The attributes of a step that jobs of its build may read and change.

use serde_json::{Map, Value, json};

use super::Build;
use super::verdict::PlacedStep;
use crate::pipeline::step::{Kind, Step};

/// Why an attribute cannot be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttributeProblem {
    /// There is none of this name.
    #[error("a step has no attribute {0:?}")]
    Unknown(String),
    /// It can be read only.
    #[error("the attribute {0:?} of a step cannot be changed; label, notify and priority can")]
    Fixed(String),
    /// Lists and maps have no plain form.
    #[error("{0} is a list or a map; ask for it with the format json")]
    NeedsJson(String),
    /// Nothing but JSON.
    #[error("the format {0:?} is not known; json is")]
    Format(String),
    /// The new value does not fit.
    #[error("{attribute} cannot be {value:?}: {reason}")]
    Value { attribute: &'static str, value: String, reason: &'static str },
}

/// A step as text: one attribute, or all of them when none is named.
pub(crate) fn export(
    build: &Build,
    placed: &PlacedStep,
    attribute: &str,
    format: &str,
) -> Result<String, AttributeProblem> {
    if !["", "json"].contains(&format) {
        return Err(AttributeProblem::Format(format.to_owned()));
    }
    let mut all = describe(build, placed);
    let value = if attribute.is_empty() {
        Value::Object(all)
    } else {
        all.remove(attribute).ok_or_else(|| AttributeProblem::Unknown(attribute.to_owned()))?
    };
    match value {
        value if format == "json" => Ok(value.to_string()),
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) if attribute.is_empty() => {
            Err(AttributeProblem::NeedsJson("a whole step".to_owned()))
        }
        Value::Array(_) | Value::Object(_) => Err(AttributeProblem::NeedsJson(attribute.to_owned())),
    }
}

fn describe(build: &Build, placed: &PlacedStep) -> Map<String, Value> {
    let step = &placed.step;
    let command = match &step.kind {
        Kind::Command(command) => Some(command),
        _ => None,
    };
    let concurrency = command.and_then(|command| command.concurrency.as_ref());
    let depends_on = step.depends_on.as_ref().map(|list| {
        let one = |dependency: &crate::pipeline::step::Dependency| {
            json!({ "step": dependency.step, "allow_failure": dependency.allow_failure })
        };
        list.iter().map(one).collect::<Vec<_>>()
    });
    let attributes = json!({
        "id": placed.id,
        "type": kind_name(&step.kind),
        "key": step.key,
        "label": step.label,
        "state": build.step_state(placed.id).as_str(),
        "outcome": build.step_outcome(placed.id).as_str(),
        "depends_on": depends_on,
        "if": step.condition.as_ref().map(ToString::to_string),
        "notify": step.notify,
        "concurrency_key": concurrency.map(|concurrency| &concurrency.group),
        "concurrency_limit": concurrency.map(|concurrency| concurrency.limit),
        "command": command.map(|command| &command.script),
        "agents": command.map(|command| &command.agents),
        "env": command.map(|command| &command.env),
        "parallelism": command.and_then(|command| command.parallelism),
        "timeout": command.and_then(|command| command.timeout_in_minutes),
        "priority": command.map(|command| command.priority),
    });
    match attributes {
        Value::Object(attributes) => attributes,
        _ => Map::new(),
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Command(_) => "command",
        Kind::Wait { .. } => "wait",
        Kind::Block(_) => "block",
        Kind::Input(_) => "input",
        Kind::Trigger(_) => "trigger",
        Kind::Group => "group",
    }
}

/// Changes an attribute: replaces its value or, with `append`, adds to it.
pub(crate) fn change(
    step: &mut Step,
    attribute: &str,
    value: &str,
    append: bool,
) -> Result<(), AttributeProblem> {
    let refuse =
        |attribute, reason| Err(AttributeProblem::Value { attribute, value: value.to_owned(), reason });
    match attribute {
        "label" if append => {
            step.label.get_or_insert_default().push_str(value);
            Ok(())
        }
        "label" => {
            step.label = Some(value.to_owned());
            Ok(())
        }
        "priority" if append => refuse("priority", "a number cannot be appended to"),
        "priority" => match (&mut step.kind, value.trim().parse()) {
            (Kind::Command(command), Ok(priority)) => {
                command.priority = priority;
                Ok(())
            }
            (Kind::Command(_), Err(_)) => refuse("priority", "it is no whole number"),
            _ => refuse("priority", "only command steps have one"),
        },
        "notify" => match serde_json::from_str::<Vec<Value>>(value) {
            Ok(added) => {
                let kept = match step.notify.take() {
                    Some(Value::Array(kept)) if append => kept,
                    _ => Vec::new(),
                };
                step.notify = Some(kept.into_iter().chain(added).collect());
                Ok(())
            }
            Err(_) => refuse("notify", "it is no list in JSON"),
        },
        "id" | "type" | "key" | "state" | "outcome" | "depends_on" | "command" | "agents" | "env"
        | "parallelism" | "timeout" | "if" | "concurrency_key" | "concurrency_limit" => {
            Err(AttributeProblem::Fixed(attribute.to_owned()))
        }
        other => Err(AttributeProblem::Unknown(other.to_owned())),
    }
}

#[cfg(test)]
mod tests;
