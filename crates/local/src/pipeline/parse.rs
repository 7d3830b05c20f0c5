//! Documents: the top level, and telling the kinds of steps apart.

use uuid::Uuid;

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::commands::{self, Defaults};
use super::interpolate::interpolate;
use super::node::{Node, Value};
use super::rules;
use super::step::{BlockedState, Document, Env, Gate, Kind, Step, StepTree};

/// Reads a pipeline written in YAML.
pub(crate) fn from_yaml(text: &str) -> Result<Document, PipelineProblem> {
    document(Node::from_yaml(text)?)
}

/// Reads a pipeline written in YAML for a build that knows these variables.
pub(crate) fn from_stored(text: &str, known: &Env) -> Result<Document, PipelineProblem> {
    document(interpolate(Node::from_yaml(text)?, known))
}

/// Reads a pipeline as `buildkite-agent pipeline upload` sends it.
pub(crate) fn from_json(json: serde_json::Value) -> Result<Document, PipelineProblem> {
    document(Node::from(json))
}

fn document(root: Node) -> Result<Document, PipelineProblem> {
    match root.value {
        Value::List(steps) => Ok(Document { env: Env::new(), steps: trees(&steps, &Defaults::default())? }),
        Value::Map(entries) => map_document(Attributes::new(root.line, entries)),
        _ => {
            let text = format!("a pipeline must be a map with steps or a list of steps, not {}", root.kind());
            Err(PipelineProblem::at(&root, text))
        }
    }
}

fn map_document(mut attributes: Attributes) -> Result<Document, PipelineProblem> {
    attributes.refuse(&["secrets", "checkout", "cache"])?;
    attributes.take(&["notify"])?;
    let env = attributes.env()?;
    let defaults = Defaults {
        agents: rules::agents(&mut attributes)?.unwrap_or_default(),
        image: attributes.text(&["image"])?,
        priority: attributes.number(&["priority"], i64::MIN)?.unwrap_or_default(),
    };
    // Other top-level keys hold anchors and notes of the author's; Buildkite lets them be.
    let Some(steps) = attributes.take(&["steps"])? else {
        return Err(PipelineProblem::line(attributes.line(), "the pipeline has no steps"));
    };
    let Value::List(steps) = &steps.value else { return Err(wrong(&steps, "steps", "a list")) };
    Ok(Document { env, steps: trees(steps, &defaults)? })
}

fn trees(nodes: &[Node], defaults: &Defaults) -> Result<Vec<StepTree>, PipelineProblem> {
    nodes
        .iter()
        .enumerate()
        .map(|(index, node)| tree(node, defaults).map_err(|problem| problem.in_step(&name(node, index))))
        .collect()
}

/// What to call a step in an error: its label or key, else its position.
fn name(node: &Node, index: usize) -> String {
    let Value::Map(entries) = &node.value else { return format!("{}", index + 1) };
    ["label", "name", "key", "id", "group", "block", "input"]
        .iter()
        .filter_map(|wanted| entries.iter().find(|(key, _)| key == wanted))
        .find_map(|(_, node)| match &node.value {
            Value::Text(text) if !text.is_empty() => Some(format!("{} ({text:?})", index + 1)),
            _ => None,
        })
        .unwrap_or_else(|| format!("{}", index + 1))
}

fn tree(node: &Node, defaults: &Defaults) -> Result<StepTree, PipelineProblem> {
    let mut attributes = match &node.value {
        Value::Text(word) => {
            return Ok(StepTree { step: word_step(node, word)?, members: Vec::new() });
        }
        Value::Map(entries) => Attributes::new(node.line, entries.clone()),
        _ => return Err(wrong(node, "a step", "a map or one of wait, block, input")),
    };
    match step_type(node, &mut attributes)? {
        StepType::Group => group(attributes, defaults),
        other => Ok(StepTree { step: single(other, attributes, defaults)?, members: Vec::new() }),
    }
}

/// `- wait` and its like.
fn word_step(node: &Node, word: &str) -> Result<Step, PipelineProblem> {
    let kind = match word {
        "wait" | "waiter" => Kind::Wait { continue_on_failure: false },
        "block" | "manual" => Kind::Block(Gate::default()),
        "input" => Kind::Input(Gate::default()),
        other => return Err(PipelineProblem::at(node, format!("unknown step {other:?}"))),
    };
    Ok(Step { kind, key: None, label: None, depends_on: None, allow_dependency_failure: false, skip: None })
}

#[derive(Clone, Copy, PartialEq)]
enum StepType {
    Command,
    Wait,
    Block,
    Input,
    Group,
}

/// The first of these that a step has tells its type.
const TELLING: [(&str, StepType); 9] = [
    ("command", StepType::Command),
    ("commands", StepType::Command),
    ("plugins", StepType::Command),
    ("wait", StepType::Wait),
    ("waiter", StepType::Wait),
    ("block", StepType::Block),
    ("manual", StepType::Block),
    ("input", StepType::Input),
    ("group", StepType::Group),
];

/// An explicit `type`, else the first telling key.
fn step_type(node: &Node, attributes: &mut Attributes) -> Result<StepType, PipelineProblem> {
    if attributes.has("trigger") {
        return Err(PipelineProblem::at(node, "trigger steps are not supported by this server; remove it"));
    }
    if let Some(explicit) = attributes.text(&["type"])? {
        return match explicit.as_str() {
            "command" | "commands" | "script" => Ok(StepType::Command),
            "wait" | "waiter" => Ok(StepType::Wait),
            "block" | "manual" => Ok(StepType::Block),
            "input" => Ok(StepType::Input),
            "group" => Ok(StepType::Group),
            other => Err(PipelineProblem::at(node, format!("unknown step type {other:?}"))),
        };
    }
    TELLING.iter().find(|(key, _)| attributes.has(key)).map(|(_, kind)| *kind).ok_or_else(|| {
        let keys = match &node.value {
            Value::Map(entries) => entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", "),
            _ => String::new(),
        };
        PipelineProblem::at(
            node,
            format!("cannot tell what kind of step this is: none of command, commands, plugins, wait, block, input or group among its attributes ({keys})"),
        )
    })
}

fn single(kind: StepType, mut attributes: Attributes, defaults: &Defaults) -> Result<Step, PipelineProblem> {
    let (kind, own_label) = match kind {
        StepType::Command => (commands::command(&mut attributes, defaults)?, None),
        StepType::Wait => {
            attributes.refuse(&["if", "branches"])?;
            attributes.take(&["wait", "waiter"])?;
            let continue_on_failure = attributes.flag(&["continue_on_failure"])?;
            (Kind::Wait { continue_on_failure }, None)
        }
        StepType::Block => {
            let label = attributes.text(&["block", "manual"])?;
            (Kind::Block(gate(&mut attributes)?), label)
        }
        StepType::Input => {
            let label = attributes.text(&["input"])?;
            (Kind::Input(gate(&mut attributes)?), label)
        }
        StepType::Group => {
            return Err(PipelineProblem::line(attributes.line(), "a group cannot hold another group"));
        }
    };
    common(kind, own_label, attributes)
}

fn gate(attributes: &mut Attributes) -> Result<Gate, PipelineProblem> {
    attributes.refuse(&["if", "branches"])?;
    attributes.take(&["allowed_teams", "submit"])?;
    let prompt = attributes.text(&["prompt"])?;
    let fields = match attributes.take(&["fields"])? {
        Some(node) => match &node.value {
            Value::List(fields) => fields.iter().map(Node::to_json).collect(),
            _ => return Err(wrong(&node, "fields", "a list")),
        },
        None => Vec::new(),
    };
    let blocked_state = match attributes.text(&["blocked_state"])?.as_deref() {
        None | Some("blocked") => BlockedState::Blocked,
        Some("passed") => BlockedState::Passed,
        Some("failed") => BlockedState::Failed,
        Some("running") => BlockedState::Running,
        Some(other) => {
            let text = format!("blocked_state must be passed, failed or running, not {other:?}");
            return Err(PipelineProblem::line(attributes.line(), text));
        }
    };
    Ok(Gate { prompt, fields, blocked_state })
}

fn group(mut attributes: Attributes, defaults: &Defaults) -> Result<StepTree, PipelineProblem> {
    attributes.refuse(&["if", "branches"])?;
    attributes.take(&["notify"])?;
    let label = attributes.text(&["group"])?;
    let line = attributes.line();
    let Some(steps) = attributes.take(&["steps"])? else {
        return Err(PipelineProblem::line(line, "a group needs steps"));
    };
    let Value::List(nodes) = &steps.value else { return Err(wrong(&steps, "steps", "a list")) };
    let members = nodes
        .iter()
        .zip(trees(nodes, defaults)?)
        .map(|(node, tree)| match tree.step.kind {
            Kind::Group => Err(PipelineProblem::at(node, "a group cannot hold another group")),
            _ => Ok(tree.step),
        })
        .collect::<Result<_, _>>()?;
    Ok(StepTree { step: common(Kind::Group, label, attributes)?, members })
}

/// What every kind of step has, and the end of its attributes.
fn common(
    kind: Kind,
    own_label: Option<String>,
    mut attributes: Attributes,
) -> Result<Step, PipelineProblem> {
    let key = attributes.text(&["key", "id", "identifier"])?;
    if let Some(key) = &key
        && Uuid::parse_str(key).is_ok()
    {
        return Err(PipelineProblem::line(attributes.line(), format!("key {key:?} looks like a UUID")));
    }
    let step = Step {
        kind,
        key: key.filter(|key| !key.is_empty()),
        label: attributes.text(&["label", "name"])?.or(own_label),
        depends_on: rules::depends_on(&mut attributes)?,
        allow_dependency_failure: attributes.flag(&["allow_dependency_failure"])?,
        skip: rules::skip(&mut attributes)?,
    };
    attributes.finish()?;
    Ok(step)
}
