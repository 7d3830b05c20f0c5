//! Labels of nodes, and taints, on a few characters: as kubectl writes them.

use bk_api::names;
use serde_json::{Value, json};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `key=a,b`, `key!=a,b`, `key`, `!key`, `key>1` or `key<1`.
pub(super) fn requirement(text: &str) -> Result<Value, String> {
    let (key, operator, values) = parts(text);
    let key = key.trim();
    if !names::is_label_key(key) {
        return Err(format!(
            "`{text}` is not a requirement such as disk=ssd, zone=a,b, arch!=arm64, gpu, !spot or cores>8"
        ));
    }
    let values: Vec<&str> =
        values.map(|values| values.split(',').map(str::trim).collect()).unwrap_or_default();
    if let Some(value) = values.iter().find(|value| !names::is_label_value(value)) {
        return Err(format!("`{value}` in `{text}` cannot be the value of a label"));
    }
    Ok(json!({ "key": key, "operator": operator, "values": values }))
}

fn parts(text: &str) -> (&str, &'static str, Option<&str>) {
    if let Some(key) = text.strip_prefix('!') {
        return (key, "DoesNotExist", None);
    }
    let Some(at) = text.find(['=', '!', '<', '>']) else {
        return (text, "Exists", None);
    };
    let (key, rest) = text.split_at(at);
    for (sign, operator) in [("==", "In"), ("=", "In"), ("!=", "NotIn"), (">", "Gt"), ("<", "Lt")] {
        if let Some(values) = rest.strip_prefix(sign) {
            return (key, operator, Some(values));
        }
    }
    // A lone exclamation mark inside: no key has one.
    (text, "Exists", None)
}

/// A requirement, with a weight before it or without.
pub(super) fn preference(text: &str) -> Result<Value, String> {
    let weighted = text.split_once(' ').and_then(|(weight, rest)| Some((weight.parse::<i32>().ok()?, rest)));
    let (weight, rest) = weighted.unwrap_or((1, text));
    Ok(json!({ "weight": weight, "requirements": [requirement(rest.trim())?] }))
}

/// `key=value:effect`, each but the key optional: without a value any value, without an effect any effect.
pub(super) fn toleration(text: &str) -> Result<Value, String> {
    let (taint, effect) =
        text.split_once(':').map_or((text, None), |(taint, effect)| (taint, Some(effect.trim())));
    let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value.trim())));
    let key = key.trim();
    if !names::is_label_key(key) || value.is_some_and(|value| !names::is_label_value(value)) {
        return Err(format!(
            "`{text}` is not a toleration such as dedicated=ci:NoSchedule, gpu:NoExecute or spot"
        ));
    }
    if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
        return Err(format!("`{effect}` in `{text}` is none of the effects {}", EFFECTS.join(", ")));
    }
    let mut toleration = match value {
        Some(value) => json!({ "key": key, "operator": "Equal", "value": value }),
        None => json!({ "key": key, "operator": "Exists" }),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    Ok(toleration)
}
