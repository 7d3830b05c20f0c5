//! Documents: the top level, and telling the kinds of steps apart.

use uuid::Uuid;

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::commands::{self, Defaults};
use super::gate::{self, Gate};
use super::interpolate::interpolate;
use super::node::{Node, Value};
use super::step::{Document, Env, Kind, Step, StepTree};
use super::{checkout, matrix, rules, secrets, trigger};

/// Reads a pipeline written in YAML.
pub fn from_yaml(text: &str) -> Result<Document, PipelineProblem> {
    document(&Node::from_yaml(text)?)
}

/// Reads a pipeline written in YAML for a build that knows these variables.
pub fn from_stored(text: &str, known: &Env) -> Result<Document, PipelineProblem> {
    let root = Node::from_yaml(text)?;
    document(&interpolate(root.clone(), known).map_err(|problem| problem.within(&root))?)
}

/// Reads a pipeline as `buildkite-agent pipeline upload` sends it.
pub fn from_json(json: serde_json::Value) -> Result<Document, PipelineProblem> {
    document(&Node::from_json(json))
}

fn document(root: &Node) -> Result<Document, PipelineProblem> {
    let (document, problems) = examine(root);
    problems.into_iter().next().map_or(Ok(document), Err)
}

/// What can be read of a pipeline, and what is wrong with the rest: one problem for each step that cannot be.
pub fn examine(root: &Node) -> (Document, Vec<PipelineProblem>) {
    let mut problems = Vec::new();
    let read = match &root.value {
        Value::List(steps) => {
            let steps = trees(steps, &Defaults::default(), &mut problems);
            Ok(Document { steps, ..Document::default() })
        }
        Value::Map(_) => map_document(Attributes::of(root), &mut problems),
        _ => {
            let text = format!("a pipeline must be a map with steps or a list of steps, not {}", root.kind());
            Err(PipelineProblem::at(root, text))
        }
    };
    let mut document = read.unwrap_or_else(|problem| {
        problems.push(problem);
        Document::default()
    });
    for tree in &mut document.steps {
        tree.path = root.path_to(tree.place).unwrap_or_default();
        for one in &mut tree.members {
            one.path = root.path_to(one.place).unwrap_or_default();
        }
    }
    (document, problems.into_iter().map(|problem| problem.within(root)).collect())
}

fn map_document(
    mut attributes: Attributes,
    problems: &mut Vec<PipelineProblem>,
) -> Result<Document, PipelineProblem> {
    let notify = rules::notify(&mut attributes)?;
    let env = attributes.env()?;
    let defaults = Defaults {
        agents: rules::agents(&mut attributes)?.unwrap_or_default(),
        image: attributes.text(&["image"])?,
        priority: attributes.number(&["priority"], i64::MIN)?.unwrap_or_default(),
        secrets: secrets::secrets(&mut attributes)?,
        checkout: checkout::checkout(&mut attributes, false)?,
    };
    // Other top-level keys hold anchors and notes of the author's; Buildkite lets them be.
    let Some(steps) = attributes.take(&["steps"])? else {
        return Err(attributes.problem("the pipeline has no steps"));
    };
    let Value::List(steps) = &steps.value else { return Err(wrong(&steps, "steps", "a list")) };
    let notify = notify.and_then(|list| list.as_array().cloned()).unwrap_or_default();
    Ok(Document { env, notify, steps: trees(steps, &defaults, problems) })
}

/// The steps that can be read; what is wrong with the others goes to `problems`.
fn trees(nodes: &[Node], defaults: &Defaults, problems: &mut Vec<PipelineProblem>) -> Vec<StepTree> {
    let mut trees = Vec::new();
    for node in nodes {
        match tree(node, defaults, problems) {
            Ok(tree) => trees.push(tree),
            Err(problem) => problems.push(problem),
        }
    }
    trees
}

fn tree(
    node: &Node,
    defaults: &Defaults,
    problems: &mut Vec<PipelineProblem>,
) -> Result<StepTree, PipelineProblem> {
    let alone = |step| StepTree { place: node.place, path: String::new(), step, members: Vec::new() };
    let mut attributes = match &node.value {
        Value::Text(word) => return Ok(alone(word_step(node, word)?)),
        Value::Map(_) => Attributes::of(node),
        _ => return Err(wrong(node, "a step", "a map or one of wait, block, input")),
    };
    match step_type(node, &mut attributes)? {
        StepType::Group => {
            let (step, members) = group(attributes, defaults, problems)?;
            Ok(StepTree { members, ..alone(step) })
        }
        other => Ok(alone(single(other, attributes, defaults)?)),
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
    Ok(Step::bare(kind))
}

#[derive(Clone, Copy, PartialEq)]
enum StepType {
    Command,
    Wait,
    Block,
    Input,
    Trigger,
    Group,
}

/// The first of these that a step has tells its type.
const TELLING: [(&str, StepType); 10] = [
    ("command", StepType::Command),
    ("commands", StepType::Command),
    ("plugins", StepType::Command),
    ("wait", StepType::Wait),
    ("waiter", StepType::Wait),
    ("block", StepType::Block),
    ("manual", StepType::Block),
    ("input", StepType::Input),
    ("trigger", StepType::Trigger),
    ("group", StepType::Group),
];

/// An explicit `type`, else the first telling key.
fn step_type(node: &Node, attributes: &mut Attributes) -> Result<StepType, PipelineProblem> {
    if let Some(explicit) = attributes.text(&["type"])? {
        return match explicit.as_str() {
            "command" | "commands" | "script" => Ok(StepType::Command),
            "wait" | "waiter" => Ok(StepType::Wait),
            "block" | "manual" => Ok(StepType::Block),
            "input" => Ok(StepType::Input),
            "trigger" => Ok(StepType::Trigger),
            "group" => Ok(StepType::Group),
            other => Err(PipelineProblem::at(node, format!("unknown step type {other:?}"))),
        };
    }
    TELLING.iter().find(|(key, _)| attributes.has(key)).map(|(_, kind)| *kind).ok_or_else(|| {
        if let Some(slip) = attributes.slip(&TELLING.map(|(key, _)| key)) {
            return slip;
        }
        let keys = match &node.value {
            Value::Map(entries) => entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", "),
            _ => String::new(),
        };
        PipelineProblem::at(
            node,
            format!("cannot tell what kind of step this is: none of command, commands, plugins, wait, block, input, trigger or group among its attributes ({keys})"),
        )
    })
}

fn single(kind: StepType, mut attributes: Attributes, defaults: &Defaults) -> Result<Step, PipelineProblem> {
    let (kind, own_label) = match kind {
        StepType::Command => (Kind::Command(Box::new(commands::command(&mut attributes, defaults)?)), None),
        StepType::Trigger => (Kind::Trigger(Box::new(trigger::trigger(&mut attributes)?)), None),
        StepType::Wait => {
            attributes.take(&["wait", "waiter"])?;
            let continue_on_failure = attributes.flag(&["continue_on_failure"])?;
            (Kind::Wait { continue_on_failure }, None)
        }
        StepType::Block => {
            let label = attributes.text(&["block", "manual"])?;
            (Kind::Block(gate::gate(&mut attributes)?), label)
        }
        StepType::Input => {
            let label = attributes.text(&["input"])?;
            (Kind::Input(gate::gate(&mut attributes)?), label)
        }
        StepType::Group => {
            return Err(attributes.problem("a group cannot hold another group"));
        }
    };
    common(kind, own_label, attributes)
}

fn group(
    mut attributes: Attributes,
    defaults: &Defaults,
    problems: &mut Vec<PipelineProblem>,
) -> Result<(Step, Vec<StepTree>), PipelineProblem> {
    let label = attributes.text(&["group"])?;
    let Some(steps) = attributes.take(&["steps"])? else {
        return Err(attributes.problem("a group needs steps"));
    };
    let Value::List(nodes) = &steps.value else { return Err(wrong(&steps, "steps", "a list")) };
    let mut members = trees(nodes, defaults, problems);
    if let Some(inner) = members.iter().find(|tree| tree.step.kind == Kind::Group) {
        problems.push(PipelineProblem::place(inner.place, "a group cannot hold another group"));
    }
    members.retain(|tree| tree.step.kind != Kind::Group);
    Ok((common(Kind::Group, label, attributes)?, members))
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
        return Err(attributes.problem(format!("key {key:?} looks like a UUID")));
    }
    let (condition, branches) = rules::filters(&mut attributes)?;
    let step = Step {
        kind,
        key: key.filter(|key| !key.is_empty()),
        label: attributes.text(&["label", "name"])?.or(own_label),
        depends_on: rules::depends_on(&mut attributes)?,
        allow_dependency_failure: attributes.flag(&["allow_dependency_failure"])?,
        skip: rules::skip(&mut attributes)?,
        condition,
        branches,
        notify: rules::notify(&mut attributes)?,
    };
    matrix::check_placeholders(&step).map_err(|reason| attributes.problem(reason))?;
    attributes.finish()?;
    Ok(step)
}
