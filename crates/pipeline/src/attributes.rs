//! Reading the attributes of one map: each is taken once, and what is left over is refused by name.

use super::PipelineProblem;
use super::node::{Node, Place, Value};
use super::step::Env;

/// The attributes of a step or of the document, taken one by one.
pub(crate) struct Attributes {
    place: Place,
    entries: Vec<(String, Node)>,
    /// Every name that was asked for, to suggest the nearest for an unknown one.
    known: Vec<&'static str>,
}

impl Attributes {
    /// The attributes of a map; none of anything else.
    pub(crate) fn of(node: &Node) -> Self {
        let entries = match &node.value {
            Value::Map(entries) => entries.clone(),
            _ => Vec::new(),
        };
        Self { place: node.place, entries, known: Vec::new() }
    }

    /// A problem with the map itself.
    pub(crate) fn problem(&self, reason: impl Into<String>) -> PipelineProblem {
        PipelineProblem::place(self.place, reason)
    }

    /// Whether an attribute of this name is present, without taking it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| key == name)
    }

    /// The first attribute whose name is a slip of one of these.
    pub(crate) fn slip(&self, of: &[&'static str]) -> Option<PipelineProblem> {
        let slip = self.entries.iter().find(|(name, _)| nearest(name, of).is_some());
        slip.map(|(name, node)| unknown(name, node, of))
    }

    /// Takes the attribute under the first of its names that is present. Two spellings at once are refused.
    pub(crate) fn take(&mut self, names: &[&'static str]) -> Result<Option<Node>, PipelineProblem> {
        self.known.extend(names);
        let mut found: Option<(String, Node)> = None;
        for name in names {
            let Some(index) = self.entries.iter().position(|(key, _)| key == name) else { continue };
            let (key, node) = self.entries.remove(index);
            if let Some((first, _)) = &found {
                return Err(PipelineProblem::at(&node, format!("{first} and {key} mean the same; give one")));
            }
            found = Some((key, node));
        }
        Ok(found.map(|(_, node)| node))
    }

    /// A string or another scalar as text; null counts as absent.
    pub(crate) fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, PipelineProblem> {
        let Some(node) = self.take(names)? else { return Ok(None) };
        match (&node.value, node.scalar()) {
            (Value::Null, _) => Ok(None),
            (_, Some(text)) => Ok(Some(text)),
            (_, None) => Err(wrong(&node, names[0], "a string")),
        }
    }

    /// A boolean, `false` when absent. `"true"` and `"false"` count, as they do for Buildkite.
    pub(crate) fn flag(&mut self, names: &[&'static str]) -> Result<bool, PipelineProblem> {
        self.flag_or(names, false)
    }

    /// A boolean with the value it has when absent.
    pub(crate) fn flag_or(&mut self, names: &[&'static str], absent: bool) -> Result<bool, PipelineProblem> {
        let Some(node) = self.take(names)? else { return Ok(absent) };
        boolean(&node).ok_or_else(|| wrong(&node, names[0], "true or false"))
    }

    /// A whole number of at least `lowest`.
    pub(crate) fn number(
        &mut self,
        names: &[&'static str],
        lowest: i64,
    ) -> Result<Option<i64>, PipelineProblem> {
        let Some(node) = self.take(names)? else { return Ok(None) };
        match integer(&node) {
            Some(value) if value >= lowest => Ok(Some(value)),
            Some(value) => Err(PipelineProblem::at(
                &node,
                format!("{} must be at least {lowest}, not {value}", names[0]),
            )),
            None if node.value == Value::Null => Ok(None),
            None => Err(wrong(&node, names[0], "a whole number")),
        }
    }

    /// An `env` map.
    pub(crate) fn env(&mut self) -> Result<Env, PipelineProblem> {
        self.strings("env")
    }

    /// A map of names to strings.
    pub(crate) fn strings(&mut self, name: &'static str) -> Result<Env, PipelineProblem> {
        let Some(node) = self.take(&[name])? else { return Ok(Env::new()) };
        match &node.value {
            Value::Null => Ok(Env::new()),
            Value::Map(entries) => entries
                .iter()
                .map(|(key, value)| {
                    let text =
                        value.scalar().ok_or_else(|| wrong(value, &format!("{name} {key}"), "a string"))?;
                    Ok((key.clone(), text))
                })
                .collect(),
            _ => Err(wrong(&node, name, "a map of names to strings")),
        }
    }

    /// Refuses whatever was not taken.
    pub(crate) fn finish(self) -> Result<(), PipelineProblem> {
        let Some((name, node)) = self.entries.first() else { return Ok(()) };
        Err(unknown(name, node, &self.known))
    }
}

/// "NAME must be WANTED, not a list".
pub(crate) fn wrong(node: &Node, name: &str, wanted: &str) -> PipelineProblem {
    PipelineProblem::at(node, format!("{name} must be {wanted}, not {}", node.kind()))
}

/// A boolean, also when quoted.
pub(crate) fn boolean(node: &Node) -> Option<bool> {
    match &node.value {
        Value::Bool(value) => Some(*value),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// A whole number, also when quoted.
pub(crate) fn integer(node: &Node) -> Option<i64> {
    match &node.value {
        Value::Int(value) => Some(*value),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// An attribute that nobody asked for.
fn unknown(name: &str, node: &Node, known: &[&'static str]) -> PipelineProblem {
    let hint = nearest(name, known).map(|known| format!("; did you mean {known}?")).unwrap_or_default();
    PipelineProblem::at_key(node, format!("unknown attribute {name}{hint}"))
}

/// The known name closest to `name`, when it is close enough to be a slip.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len() / 4))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_get_a_suggestion_and_nonsense_does_not() {
        let known = ["command", "artifact_paths", "key"];
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("artifacts_path", &known), Some("artifact_paths"));
        assert_eq!(nearest("zzzzzzz", &known), None);
    }
}
