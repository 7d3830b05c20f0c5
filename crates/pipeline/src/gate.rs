//! Block and input steps: their fields, and what people may answer.

use serde::{Deserialize, Serialize};

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::node::{Node, Value};
use super::rules;
use super::step::{BlockedState, Env};

/// A step that waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// What the person reads.
    pub prompt: Option<String>,
    /// What to ask for; the answers become build meta-data.
    pub fields: Vec<Field>,
    /// What the build counts as while it waits.
    pub blocked_state: BlockedState,
    /// What the button says.
    pub submit: Option<String>,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The meta-data key of the answer.
    pub key: String,
    /// The question.
    pub label: String,
    /// How it is answered.
    pub kind: FieldKind,
    /// What to consider.
    pub hint: Option<String>,
    /// Whether it has to be answered.
    pub required: bool,
    /// The answer when none is given. Several values are joined as an answer is.
    pub default: Option<String>,
}

/// How a question is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// Any text, within a pattern when there is one.
    Text {
        /// The pattern.
        format: Option<String>,
    },
    /// One of the options, or several.
    Select {
        /// What there is to choose from.
        options: Vec<Choice>,
        /// Whether several may be chosen.
        multiple: bool,
    },
}

/// One option of a select field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What the person reads.
    pub label: String,
    /// What the answer is.
    pub value: String,
}

/// Several chosen values are one answer, a line each.
const SEPARATOR: &str = "\n";

impl Gate {
    /// The meta-data that these answers make, with defaults filled in; or what is wrong with them.
    pub fn check(&self, given: &Env) -> Result<Env, String> {
        if let Some(unknown) = given.keys().find(|key| self.fields.iter().all(|field| field.key != **key)) {
            return Err(format!("the step asks for no field {unknown:?}"));
        }
        let mut answers = Env::new();
        for field in &self.fields {
            let answer = given.get(&field.key).filter(|answer| !answer.is_empty()).or(field.default.as_ref());
            match answer {
                Some(answer) => {
                    field.check(answer)?;
                    answers.insert(field.key.clone(), answer.clone());
                }
                None if field.required => {
                    return Err(format!("the field {:?} ({}) needs an answer", field.key, field.label));
                }
                None => {}
            }
        }
        Ok(answers)
    }
}

impl Field {
    fn check(&self, answer: &str) -> Result<(), String> {
        match &self.kind {
            FieldKind::Text { format: Some(pattern) } => {
                let fits = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(answer));
                if fits {
                    Ok(())
                } else {
                    Err(format!("{answer:?} does not fit the format {pattern} of {:?}", self.key))
                }
            }
            FieldKind::Text { format: None } => Ok(()),
            FieldKind::Select { options, multiple } => {
                let parts: Vec<&str> =
                    if *multiple { answer.split(SEPARATOR).collect() } else { vec![answer] };
                match parts.iter().find(|part| options.iter().all(|option| option.value != **part)) {
                    None => Ok(()),
                    Some(part) => {
                        let known: Vec<&str> = options.iter().map(|option| option.value.as_str()).collect();
                        Err(format!(
                            "{part:?} is no option of {:?}; there are {}",
                            self.key,
                            known.join(", ")
                        ))
                    }
                }
            }
        }
    }
}

/// Reads what is particular to a block or input step.
pub(crate) fn gate(attributes: &mut Attributes) -> Result<Gate, PipelineProblem> {
    // Everybody at this laptop is in every team.
    attributes.take(&["allowed_teams"])?;
    let submit = attributes.text(&["submit"])?;
    let prompt = attributes.text(&["prompt"])?;
    let fields = match attributes.take(&["fields"])? {
        Some(Node { value: Value::Null, .. }) | None => Vec::new(),
        Some(node) => match &node.value {
            Value::List(items) => items.iter().map(field).collect::<Result<_, _>>()?,
            _ => return Err(wrong(&node, "fields", "a list")),
        },
    };
    let blocked_state = match attributes.take(&["blocked_state"])? {
        None => BlockedState::Blocked,
        Some(node) => match node.scalar().as_deref() {
            Some("" | "blocked") => BlockedState::Blocked,
            Some("passed") => BlockedState::Passed,
            Some("failed") => BlockedState::Failed,
            Some("running") => BlockedState::Running,
            _ => return Err(wrong(&node, "blocked_state", "passed, failed or running")),
        },
    };
    Ok(Gate { prompt, fields, blocked_state, submit })
}

fn field(node: &Node) -> Result<Field, PipelineProblem> {
    let Value::Map(_) = &node.value else {
        return Err(wrong(node, "a field", "a map with text or select"));
    };
    let mut attributes = Attributes::of(node);
    let (text, select) = (attributes.text(&["text"])?, attributes.text(&["select"])?);
    let Some(key) = attributes.text(&["key"])?.filter(|key| !key.is_empty()) else {
        return Err(PipelineProblem::at(node, "a field needs a key, under which its answer is kept"));
    };
    if !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_/.:".contains(c)) {
        let text = format!("the field key {key:?} may only have letters, digits and - _ / . :");
        return Err(PipelineProblem::at(node, text));
    }
    let (label, kind) = match (text, select) {
        (Some(label), None) => (label, FieldKind::Text { format: format(&mut attributes)? }),
        (None, Some(label)) => (label, select_kind(&mut attributes, node)?),
        _ => return Err(PipelineProblem::at(node, "a field has either text or select")),
    };
    let default = match attributes.take(&["default"])? {
        Some(node) => Some(rules::texts(&node, "default")?.join(SEPARATOR)).filter(|text| !text.is_empty()),
        None => None,
    };
    let field = Field {
        key,
        label,
        kind,
        hint: attributes.text(&["hint"])?,
        required: attributes.flag_or(&["required"], true)?,
        default,
    };
    attributes.finish()?;
    if let Some(problem) = field.default.as_ref().and_then(|default| field.check(default).err()) {
        return Err(PipelineProblem::at(node, format!("default: {problem}")));
    }
    Ok(field)
}

fn format(attributes: &mut Attributes) -> Result<Option<String>, PipelineProblem> {
    let Some(node) = attributes.take(&["format"])? else { return Ok(None) };
    let pattern = node.scalar().ok_or_else(|| wrong(&node, "format", "a regular expression"))?;
    match regex::Regex::new(&pattern) {
        Ok(_) => Ok(Some(pattern)),
        Err(_) => Err(PipelineProblem::at(&node, format!("format {pattern:?} is no regular expression"))),
    }
}

fn select_kind(attributes: &mut Attributes, node: &Node) -> Result<FieldKind, PipelineProblem> {
    let multiple = attributes.flag(&["multiple"])?;
    let Some(list) = attributes.take(&["options"])? else {
        return Err(PipelineProblem::at(node, "a select field needs options"));
    };
    let Value::List(items) = &list.value else { return Err(wrong(&list, "options", "a list")) };
    if items.is_empty() {
        return Err(PipelineProblem::at(&list, "a select field needs at least one option"));
    }
    let options = items.iter().map(choice).collect::<Result<_, _>>()?;
    Ok(FieldKind::Select { options, multiple })
}

fn choice(node: &Node) -> Result<Choice, PipelineProblem> {
    if let (false, Some(text)) = (matches!(node.value, Value::Null), node.scalar()) {
        return Ok(Choice { label: text.clone(), value: text });
    }
    let Value::Map(_) = &node.value else {
        return Err(wrong(node, "an option", "a string or a map with label and value"));
    };
    let mut attributes = Attributes::of(node);
    let label = attributes.text(&["label"])?;
    let value = attributes.text(&["value"])?;
    attributes.take(&["hint"])?;
    attributes.take(&["required"])?;
    attributes.finish()?;
    match (label, value) {
        (Some(label), Some(value)) => Ok(Choice { label, value }),
        _ => Err(PipelineProblem::at(node, "an option needs a label and a value")),
    }
}

#[cfg(test)]
mod tests;
