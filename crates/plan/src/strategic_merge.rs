//! Kubernetes' strategic merge patch, on the JSON of a pod spec.
//!
//! Objects merge key by key and null removes a key. Most lists are replaced as a whole. Lists whose elements have a key
//! of their own ([`shape`]) merge element by element: what the patch has in common with the original is merged in its place, and
//! what is new comes before the elements it is compared with. Directives change that:
//!
//! | directive | where | effect |
//! |---|---|---|
//! | `$patch: delete` | object, element | it is removed |
//! | `$patch: replace` | object | it becomes what the patch says |
//! | `$patch: replace` | element of its own | the list becomes what the patch says |
//! | `$patch: merge` | object, element | as without it |
//! | `$retainKeys: […]` | object | other keys are removed |
//! | `$deleteFromPrimitiveList/f: […]` | object | these values are removed from the list `f` |
//! | `$setElementOrder/f: […]` | object | the elements of the list `f` stand in this order |
//!
//! Where Kubernetes loses something silently, this is stricter or does what was meant: `$patch: replace` of an object that
//! was not there gives that object, an object that is deleted leaves no empty one behind, and an element that carries
//! `$patch: replace` next to other keys is refused rather than dropped.

mod list;
mod order;
mod shape;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::shape::Shape;
use crate::pod::RenderError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges `patch`, which stands at `at`, into a pod spec.
pub(crate) fn merge(
    spec: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    at: &str,
) -> Result<(), RenderError> {
    match verb(patch, at)? {
        Verb::Delete => spec.clear(),
        Verb::Replace => *spec = added(patch, Shape::Pod, at)?,
        Verb::Merge => merge_keys(spec, patch, Shape::Pod, at)?,
    }
    Ok(())
}

/// What a patch does to an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Merge,
    Replace,
    Delete,
}

fn verb(patch: &Map<String, Value>, at: &str) -> Result<Verb, RenderError> {
    match patch.get(PATCH).map(Value::as_str) {
        None | Some(Some("merge")) => Ok(Verb::Merge),
        Some(Some("replace")) => Ok(Verb::Replace),
        Some(Some("delete")) => Ok(Verb::Delete),
        Some(_) => Err(refuse(&format!("{at}.{PATCH}"), "must be `delete`, `replace` or `merge`")),
    }
}

/// Merges an object key by key, whatever its `$patch` says.
fn merge_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    shape: Shape,
    at: &str,
) -> Result<(), RenderError> {
    retain_keys(original, patch, at)?;
    for (field, values) in directed(patch, DELETE_VALUES) {
        let values = expect_list(values, &format!("{at}.{DELETE_VALUES}{field}"))?;
        if let Some(Value::Array(original)) = original.get_mut(field) {
            original.retain(|value| !values.contains(value));
        }
    }
    for (key, value) in patch {
        let at = format!("{at}.{key}");
        if key.starts_with('$') {
            check_directive(key, &at)?;
        } else {
            let wanted = patch.get(&format!("{SET_ORDER}{key}"));
            merge_key(original, key, value, wanted, shape, &at)?;
        }
    }
    for (field, wanted) in directed(patch, SET_ORDER).filter(|(field, _)| !patch.contains_key(*field)) {
        let wanted = expect_list(wanted, &format!("{at}.{SET_ORDER}{field}"))?;
        if let Some(Value::Array(items)) = original.get_mut(field) {
            *items = list::reorder(std::mem::take(items), wanted, shape.list(field));
        }
    }
    Ok(())
}

fn merge_key(
    original: &mut Map<String, Value>,
    key: &str,
    patch: &Value,
    wanted: Option<&Value>,
    shape: Shape,
    at: &str,
) -> Result<(), RenderError> {
    let present = original.get_mut(key).filter(|value| !value.is_null());
    if let Some(present) = &present
        && !patch.is_null()
        && kind(present) != kind(patch)
    {
        return Err(refuse(at, &format!("must be {}, not {}", kind(present), kind(patch))));
    }
    let merged = match (present, patch) {
        (_, Value::Null) => None,
        (present, Value::Object(patch)) => match (verb(patch, at)?, present) {
            (Verb::Delete, _) => None,
            (Verb::Merge, Some(Value::Object(present))) => {
                return merge_keys(present, patch, shape.object(key), at);
            }
            _ => Some(Value::Object(added(patch, shape.object(key), at)?)),
        },
        (present, Value::Array(patch)) => {
            let wanted = wanted.map(|wanted| expect_list(wanted, at)).transpose()?;
            let present = present.and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
            Some(Value::Array(list::merge(present, patch, wanted, shape.list(key), at)?))
        }
        (_, value) => Some(value.clone()),
    };
    match merged {
        None => original.remove(key),
        Some(value) => original.insert(key.to_owned(), value),
    };
    Ok(())
}

/// What a patch makes of nothing.
fn added(patch: &Map<String, Value>, shape: Shape, at: &str) -> Result<Map<String, Value>, RenderError> {
    let mut added = Map::new();
    merge_keys(&mut added, patch, shape, at)?;
    Ok(added)
}

/// Removes what `$retainKeys` does not name. It has to name what the patch itself brings.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    at: &str,
) -> Result<(), RenderError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let at = format!("{at}.{RETAIN_KEYS}");
    let retained = expect_list(retained, &at)?;
    let is_retained = |key: &str| retained.iter().any(|retained| retained == key);
    let brought = patch.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    if let Some((key, _)) = brought.into_iter().find(|(key, _)| !is_retained(key)) {
        return Err(refuse(&at, &format!("must name every key of the patch, also `{key}`")));
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// The directives of a kind, by the field that they are about.
fn directed<'a>(
    patch: &'a Map<String, Value>,
    directive: &'static str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    patch.iter().filter_map(move |(key, value)| Some((key.strip_prefix(directive)?, value)))
}

fn check_directive(key: &str, at: &str) -> Result<(), RenderError> {
    let known = key == PATCH
        || key == RETAIN_KEYS
        || [DELETE_VALUES, SET_ORDER].iter().any(|prefix| key.starts_with(prefix));
    if known {
        return Ok(());
    }
    let problem =
        "unknown directive; known: $patch, $retainKeys, $deleteFromPrimitiveList/…, $setElementOrder/…";
    Err(refuse(at, problem))
}

fn expect_list<'a>(value: &'a Value, at: &str) -> Result<&'a [Value], RenderError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(refuse(at, &format!("must be a list, not {}", kind(other)))),
    }
}

/// What merges with what: scalars replace one another, whatever they are.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::Null => "null",
        _ => "a single value",
    }
}

fn refuse(at: &str, problem: &str) -> RenderError {
    RenderError { path: at.to_owned(), problem: problem.to_owned() }
}
