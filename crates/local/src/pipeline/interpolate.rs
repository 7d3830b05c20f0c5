//! Variables in a stored pipeline.
//!
//! What a build knows when it is created is filled in here; every other variable is left for the shell of
//! the job. Uploaded pipelines were interpolated by the agent and do not come this way.

use super::node::{Node, Value};
use super::step::Env;

/// Fills the known variables into every string of the document, keys included.
pub(crate) fn interpolate(node: Node, known: &Env) -> Node {
    let value = match node.value {
        Value::Text(text) => Value::Text(fill(&text, known)),
        Value::List(items) => Value::List(items.into_iter().map(|item| interpolate(item, known)).collect()),
        Value::Map(entries) => Value::Map(
            entries.into_iter().map(|(key, value)| (fill(&key, known), interpolate(value, known))).collect(),
        ),
        other => other,
    };
    Node { place: node.place, value }
}

/// `$NAME`, `${NAME}` and `${NAME:-default}` of known variables; `$$` and `\$` stand for a dollar sign.
fn fill(text: &str, known: &Env) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        filled.push_str(&rest[..at]);
        let here = &rest[at..];
        if let Some(after) = here.strip_prefix("$$").or_else(|| here.strip_prefix("\\$")) {
            filled.push('$');
            rest = after;
        } else if let Some((value, after)) = expansion(here, known) {
            filled.push_str(value);
            rest = after;
        } else {
            filled.push_str(&here[..1]);
            rest = &here[1..];
        }
    }
    filled.push_str(rest);
    filled
}

/// The value of the variable that `text` begins with, and what follows it.
fn expansion<'a>(text: &'a str, known: &'a Env) -> Option<(&'a str, &'a str)> {
    let after = text.strip_prefix('$')?;
    let braced = after.strip_prefix('{');
    let body = braced.unwrap_or(after);
    let length = body.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(body.len());
    let (name, tail) = body.split_at(length);
    let value = known.get(name)?;
    if braced.is_none() {
        return Some((value, tail));
    }
    if let Some(after) = tail.strip_prefix('}') {
        return Some((value, after));
    }
    let default = tail.strip_prefix(":-").or_else(|| tail.strip_prefix('-'))?;
    let (default, after) = default.split_once('}')?;
    let use_default = value.is_empty() && tail.starts_with(":-");
    Some((if use_default { default } else { value }, after))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("on $B.", "on main.")]
    #[case("${B}x ${B:-y} ${EMPTY:-y} ${EMPTY-y}", "mainx main y ")]
    #[case("$$B \\$B $$$B", "$B $B $main")]
    #[case("$OTHER ${OTHER:-x} $(pwd) $? a\\nb $", "$OTHER ${OTHER:-x} $(pwd) $? a\\nb $")]
    #[case("${B ${B:0:2}", "${B ${B:0:2}")]
    fn known_variables_are_filled_in(#[case] text: &str, #[case] expected: &str) {
        let known = Env::from([("B".into(), "main".into()), ("EMPTY".into(), String::new())]);
        assert_eq!(fill(text, &known), expected);
    }
}
