//! `secrets`: which secrets the agent puts into which variables.

use serde::{Deserialize, Serialize};

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::node::{Node, Value};

/// A secret that the agent fetches before the command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// The secret's name.
    pub key: String,
    /// The variable that its value goes into.
    pub environment_variable: String,
}

/// Reads `secrets`: names, a map from variables to names, or the form in which the agent uploads them.
pub(crate) fn secrets(attributes: &mut Attributes) -> Result<Vec<Secret>, PipelineProblem> {
    let Some(node) = attributes.take(&["secrets"])? else { return Ok(Vec::new()) };
    let secrets: Vec<Secret> = match &node.value {
        Value::Null => Vec::new(),
        Value::List(items) => items.iter().map(secret).collect::<Result<_, _>>()?,
        Value::Map(entries) => entries
            .iter()
            .map(|(variable, name)| match &name.value {
                Value::Text(name) => Ok(Secret { key: name.clone(), environment_variable: variable.clone() }),
                _ => Err(wrong(name, "a secret", "the name of a secret")),
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong(&node, "secrets", "a list of names or a map of variables to names")),
    };
    match secrets.iter().find(|secret| secret.key.is_empty() || secret.environment_variable.is_empty()) {
        Some(_) => Err(PipelineProblem::at(&node, "a secret needs a name and a variable")),
        None => Ok(secrets),
    }
}

fn secret(node: &Node) -> Result<Secret, PipelineProblem> {
    match &node.value {
        Value::Text(name) => Ok(Secret { key: name.clone(), environment_variable: name.clone() }),
        Value::Map(_) => {
            let mut attributes = Attributes::of(node);
            let key = attributes
                .text(&["key"])?
                .ok_or_else(|| PipelineProblem::at(node, "a secret needs a key"))?;
            let variable = attributes.text(&["environment_variable"])?;
            attributes.finish()?;
            Ok(Secret { environment_variable: variable.unwrap_or_else(|| key.clone()), key })
        }
        _ => Err(wrong(node, "a secret", "the name of a secret")),
    }
}

/// The pipeline's secrets with the step's: a step decides about its own variables.
pub(crate) fn merged(pipeline: &[Secret], step: &[Secret]) -> Vec<Secret> {
    let kept = pipeline
        .iter()
        .filter(|outer| step.iter().all(|own| own.environment_variable != outer.environment_variable));
    kept.cloned().chain(step.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Vec<Secret>, PipelineProblem> {
        secrets(&mut Attributes::of(&Node::from_yaml(yaml).unwrap()))
    }

    #[test]
    fn every_spelling_and_the_merge() {
        let listed = read("secrets: [A, {key: B, environment_variable: C}, {key: D}]").unwrap();
        let shown = |list: &[Secret]| -> Vec<String> {
            list.iter().map(|one| format!("{}={}", one.environment_variable, one.key)).collect()
        };
        assert_eq!(shown(&listed), ["A=A", "C=B", "D=D"]);
        let mapped = read("secrets: {C: other, E: e}").unwrap();
        assert_eq!(shown(&merged(&listed, &mapped)), ["A=A", "D=D", "C=other", "E=e"]);
        assert!(read("secrets: [1]").unwrap_err().to_string().contains("must be the name of a secret"));
        assert!(read("secrets: {A: ''}").unwrap_err().to_string().contains("needs a name"));
        assert!(
            read("secrets: [{key: A, env: B}]").unwrap_err().to_string().contains("unknown attribute env")
        );
    }
}
