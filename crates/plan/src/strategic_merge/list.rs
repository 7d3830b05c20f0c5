//! Merging lists.

use serde_json::{Map, Value};

use super::{
    PATCH, SET_ORDER, Verb, added, kind, merge_keys, order, refuse,
    shape::{ListRule, Shape},
    verb,
};
use crate::pod::RenderError;

/// Merges the list `patch`, which stands at `at`, into `original`. With `wanted`, the list is in that order.
pub(super) fn merge(
    mut original: Vec<Value>,
    patch: &[Value],
    wanted: Option<&[Value]>,
    rule: ListRule,
    at: &str,
) -> Result<Vec<Value>, RenderError> {
    let (merged, before, named) = match rule {
        ListRule::Replace => return replaced(patch, at),
        ListRule::Values => {
            let before = original.clone();
            let patch = replaced(patch, at)?;
            let new: Vec<_> = patch.iter().filter(|value| !before.contains(value)).cloned().collect();
            original.extend(new);
            (original, before, patch)
        }
        ListRule::Elements(key, shape) => {
            let patch = Elements::of(patch, key, at)?;
            if patch.replace {
                return patch.merged.iter().map(|element| element.added(shape)).collect();
            }
            original.retain(|item| !item.get(key).is_some_and(|value| patch.deleted.contains(&value)));
            let before = identities(&original, rule);
            for element in &patch.merged {
                match original.iter_mut().find(|item| item.get(key) == Some(element.identity)) {
                    Some(Value::Object(found)) => merge_keys(found, element.content, shape, &element.at)?,
                    _ => original.push(element.added(shape)?),
                }
            }
            let named = patch.merged.iter().map(|element| element.identity.clone()).collect();
            (original, before, named)
        }
    };
    let wanted = match wanted {
        None => named,
        Some(wanted) => {
            let wanted = identities(wanted, rule);
            if let Some(missing) = named.iter().find(|identity| !wanted.contains(identity)) {
                let problem = format!("`{SET_ORDER}` must name every element of the patch, also {missing}");
                return Err(refuse(at, &problem));
            }
            wanted
        }
    };
    Ok(order::arrange(merged, &wanted, &before, |item| rule.identity(item)))
}

/// A list that does not merge with another. An element that only says so is not part of it.
fn replaced(patch: &[Value], at: &str) -> Result<Vec<Value>, RenderError> {
    let mut list = Vec::with_capacity(patch.len());
    for (index, value) in patch.iter().enumerate() {
        let at = format!("{at}[{index}]");
        match value {
            Value::Null => return Err(refuse(&at, "must not be null")),
            Value::Array(inner) => list.push(Value::Array(replaced(inner, &at)?)),
            Value::Object(element) => match verb(element, &at)? {
                Verb::Replace if element.len() == 1 => {}
                Verb::Merge => list.push(Value::Object(added(element, Shape::Other, &at)?)),
                _ => {
                    let problem =
                        "elements of this list cannot be told apart: the patch's list replaces all of it";
                    return Err(refuse(&at, problem));
                }
            },
            scalar => list.push(scalar.clone()),
        }
    }
    Ok(list)
}

/// Puts a list in the order that a patch wants, without merging anything.
pub(super) fn reorder(items: Vec<Value>, wanted: &[Value], rule: ListRule) -> Vec<Value> {
    let before = identities(&items, rule);
    order::arrange(items, &identities(wanted, rule), &before, |item| rule.identity(item))
}

fn identities(items: &[Value], rule: ListRule) -> Vec<Value> {
    items.iter().map(|item| rule.identity(item).clone()).collect()
}

/// The elements of a patch's list, by what they do.
struct Elements<'a> {
    replace: bool,
    deleted: Vec<&'a Value>,
    merged: Vec<Element<'a>>,
}

/// An element that is merged with the one of the same identity, or added.
struct Element<'a> {
    identity: &'a Value,
    content: &'a Map<String, Value>,
    at: String,
}

impl<'a> Elements<'a> {
    fn of(patch: &'a [Value], key: &str, at: &str) -> Result<Self, RenderError> {
        let mut elements = Self { replace: false, deleted: Vec::new(), merged: Vec::new() };
        for (index, element) in patch.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Value::Object(content) = element else {
                return Err(refuse(&at, &format!("must be an object, not {}", kind(element))));
            };
            let verb = verb(content, &at)?;
            if verb == Verb::Replace {
                if content.len() > 1 {
                    let problem = format!(
                        "`{PATCH}: replace` in a list replaces the whole list; it stands in an element of its own"
                    );
                    return Err(refuse(&at, &problem));
                }
                elements.replace = true;
                continue;
            }
            let identity = content.get(key).filter(|value| !value.is_null()).ok_or_else(|| {
                refuse(&at, &format!("needs `{key}`: elements of this list are told apart by it"))
            })?;
            match verb {
                Verb::Delete => elements.deleted.push(identity),
                _ => elements.merged.push(Element { identity, content, at }),
            }
        }
        Ok(elements)
    }
}

impl Element<'_> {
    fn added(&self, shape: Shape) -> Result<Value, RenderError> {
        added(self.content, shape, &self.at).map(Value::Object)
    }
}
