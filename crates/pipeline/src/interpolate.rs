//! Variables in a stored pipeline.
//!
//! What a build knows when it is created is filled in here, by the rules that the agent follows when it
//! uploads: `$X`, `${X}`, `${X:-default}`, `${X-default}`, `${X?message}`, `${X:?message}`, `${X:offset}` and
//! `${X:offset:length}`; `$$` and `\$` stand for a dollar sign. Every other variable is left as it is for the
//! shell of the job. Uploaded pipelines were interpolated by the agent and do not come this way.

use super::PipelineProblem;
use super::node::{Node, Value};
use super::step::Env;

/// How deeply defaults and messages may hold variables with defaults of their own.
const MAX_DEPTH: usize = 50;

/// Fills the known variables into every string of the document, keys included.
pub fn interpolate(node: Node, known: &Env) -> Result<Node, PipelineProblem> {
    let Node { place, key, .. } = node;
    let fill = |text: &str| fill(text, known).map_err(|reason| PipelineProblem::place(place, reason));
    let value = match node.value {
        Value::Text(text) => Value::Text(fill(&text)?),
        Value::List(items) => {
            Value::List(items.into_iter().map(|item| interpolate(item, known)).collect::<Result<_, _>>()?)
        }
        Value::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| Ok((fill(&key)?, interpolate(value, known)?)))
                .collect::<Result<_, _>>()?,
        ),
        other => other,
    };
    Ok(Node { place, key, value })
}

/// Whether a text holds a variable: `$X` or `${X…`.
pub fn names_variable(text: &str) -> bool {
    text.split('$').skip(1).any(|rest| {
        let name = rest.strip_prefix('{').unwrap_or(rest);
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
    })
}

/// A text with its variables filled in, or why it cannot be.
type Filled = Result<String, String>;

fn fill(text: &str, known: &Env) -> Filled {
    let mut reader = Reader { rest: text, known, depth: 0 };
    let mut filled = String::with_capacity(text.len());
    while !reader.rest.is_empty() {
        let before = reader.rest;
        if let Some(piece) = reader.piece(None) {
            filled.push_str(&piece?);
        } else {
            // Not ours to understand: the shell may.
            let (dollar, after) = before.split_at(1);
            filled.push_str(dollar);
            reader = Reader { rest: after, known, depth: 0 };
        }
    }
    Ok(filled)
}

struct Reader<'a> {
    rest: &'a str,
    known: &'a Env,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, prefix: &str) -> bool {
        let after = self.rest.strip_prefix(prefix);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn take_until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let (taken, after) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = after;
        taken
    }

    /// The next stretch of text, escape or variable. None, if it begins like a variable and is none.
    fn piece(&mut self, stop: Option<char>) -> Option<Filled> {
        for (written, meant) in [("\\\\", "\\\\"), ("\\$", "$"), ("$$", "$"), ("$(", "$("), ("\\", "\\")] {
            if self.take(written) {
                return Some(Ok(meant.to_owned()));
            }
        }
        if self.rest.starts_with('$') {
            return self.variable();
        }
        let text = self.take_until(|c| c == '$' || c == '\\' || Some(c) == stop);
        Some(Ok(text.to_owned()))
    }

    fn variable(&mut self) -> Option<Filled> {
        let start = self.rest;
        self.take("$");
        let braced = self.take("{");
        let starts_name = self.rest.starts_with(char::is_alphabetic);
        if !starts_name {
            return (!braced).then(|| Ok("$".to_owned()));
        }
        let name = self.take_until(|c| !(c.is_alphanumeric() || c == '_'));
        let value = self.known.get(name).map(String::as_str);
        let filled = if braced {
            self.operation(name, value.unwrap_or_default())?
        } else {
            Ok(value.unwrap_or_default().to_owned())
        };
        let untouched = || Ok(start[..start.len() - self.rest.len()].to_owned());
        Some(if value.is_some() { filled } else { untouched() })
    }

    /// What follows the name of a known variable inside braces, up to the closing one.
    fn operation(&mut self, name: &str, value: &str) -> Option<Filled> {
        if self.take("}") {
            return Some(Ok(value.to_owned()));
        }
        let is_empty = value.is_empty();
        let filled = if self.take(":-") {
            let default = self.content()?;
            if is_empty { default } else { Ok(value.to_owned()) }
        } else if self.take(":?") {
            let message = self.content()?;
            if is_empty { Err(refusal(name, message)) } else { Ok(value.to_owned()) }
        } else if self.take("-") || self.take("?") {
            // It is set, if only to nothing.
            self.content()?.ok();
            Ok(value.to_owned())
        } else if self.take(":") {
            Ok(self.substring(value)?)
        } else {
            return None;
        };
        self.take("}").then_some(filled)
    }

    /// A default or a message, up to the closing brace.
    fn content(&mut self) -> Option<Filled> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let mut filled = Ok(String::new());
        while !self.rest.is_empty() && !self.rest.starts_with('}') {
            let piece = self.piece(Some('}'))?;
            filled = filled.and_then(|text| Ok(text + &piece?));
        }
        self.depth -= 1;
        Some(filled)
    }

    /// `offset` or `offset:length`, counted in characters; from the end, where negative.
    fn substring(&mut self, value: &str) -> Option<String> {
        let number = |text: &str| text.trim().parse::<i64>().ok();
        let count = i64::try_from(value.chars().count()).ok()?;
        let offset = number(self.take_until(|c| c == ':' || c == '}'))?;
        let from = if offset < 0 { offset.saturating_add(count) } else { offset }.clamp(0, count);
        let to = if self.take(":") {
            let length = number(self.take_until(|c| c == '}'))?;
            let base = if length < 0 { count } else { from };
            base.saturating_add(length).clamp(from, count)
        } else {
            count
        };
        let (from, length) = (usize::try_from(from).ok()?, usize::try_from(to - from).ok()?);
        Some(value.chars().skip(from).take(length).collect())
    }
}

fn refusal(name: &str, message: Filled) -> String {
    match message {
        Ok(message) if message.is_empty() => format!("${name}: not set"),
        Ok(message) => format!("${name}: {message}"),
        Err(problem) => problem,
    }
}

#[cfg(test)]
mod tests;
