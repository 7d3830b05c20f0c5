//! What a field changes in a pod, and nothing else of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// The lines that `new` has and `old` has not, with `+`, and the other way round, with `-`. A line is the path of a value and
/// the value. What has a name is addressed by it, so that a new neighbour moves nothing.
pub(crate) fn between(old: &Pod, new: &Pod) -> String {
    let (old, new) = (lines(old), lines(new));
    let gone = old.iter().filter(|(path, value)| new.get(*path) != Some(value));
    let come = new.iter().filter(|(path, value)| old.get(*path) != Some(value));
    let mut all: Vec<_> = gone
        .map(|(path, value)| (path, '-', value))
        .chain(come.map(|(path, value)| (path, '+', value)))
        .collect();
    all.sort_by_key(|(path, sign, _)| (*path, *sign == '+'));
    let lines = all.into_iter().map(|(path, sign, value)| format!("{sign} {path}: {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn lines(pod: &Pod) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    flatten("", &serde_json::to_value(pod).expect("a pod can be written as JSON"), &mut lines);
    lines
}

fn flatten(path: &str, value: &Value, lines: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let order: Vec<_> = items.iter().map(name).collect();
            if order.iter().any(Option::is_some) && order.len() > 1 && path.ends_with("ontainers") {
                lines.insert(
                    format!("{path} (order)"),
                    order.iter().flatten().copied().collect::<Vec<_>>().join(", "),
                );
            }
            for (index, item) in items.iter().enumerate() {
                let mut item = item.clone();
                let at = take_name(&mut item).unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}[{at}]"), &item, lines);
            }
        }
        Value::String(text) => {
            lines.insert(path.to_owned(), text.clone());
        }
        other => {
            lines.insert(path.to_owned(), other.to_string());
        }
    }
}

/// What an item of a list is known by.
const KEYS: [&str; 3] = ["mountPath", "name", "key"];

fn name(item: &Value) -> Option<&str> {
    KEYS.iter().find_map(|key| item.get(key)?.as_str())
}

/// The path says it already.
fn take_name(item: &mut Value) -> Option<String> {
    let key = KEYS.iter().find(|key| item.get(**key).is_some_and(Value::is_string))?;
    item.as_object_mut()?.remove(*key)?.as_str().map(str::to_owned)
}
