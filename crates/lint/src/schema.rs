//! Documents held against the schema of a custom resource definition, as the API server does it. Its rules in CEL are left to the
//! API server.

use bk_api::spelling;
use bk_pipeline::node::{Node, Value};
use serde_json::Value as Json;

use crate::Finding;

/// How many known fields a message lists.
const LISTED: usize = 20;

/// What the schema does not allow in a document, whose root is at `path`.
pub(crate) fn check(node: &Node, schema: &Json, path: &str, findings: &mut Vec<Finding>) {
    if schema["x-kubernetes-int-or-string"] == true && matches!(node.value, Value::Int(_) | Value::Text(_)) {
        return;
    }
    if node.value == Value::Null {
        // The API server drops nulls, and then misses what it needs.
        return;
    }
    let mut refuse = |message: String| {
        findings.push(Finding::error(node.place, format!("{}{message}", prefix(path))));
    };
    if let Some(wanted) = schema["type"].as_str().filter(|wanted| !is_a(node, wanted)) {
        let wanted = match wanted {
            "object" => "a map",
            "array" => "a list",
            "integer" => "a whole number",
            "boolean" => "true or false",
            "number" => "a number",
            _ => "a string",
        };
        return refuse(format!("must be {wanted}, not {}", node.kind()));
    }
    if let Some(problem) = bounds(node, schema) {
        refuse(problem);
    }
    match &node.value {
        Value::Map(entries) => map(node, entries, schema, path, findings),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                check(item, &schema["items"], &format!("{path}[{index}]"), findings);
            }
        }
        _ => {}
    }
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

fn is_a(node: &Node, wanted: &str) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Bool(_) => wanted == "boolean",
        Value::Int(_) => wanted == "integer" || wanted == "number",
        Value::Float(_) => wanted == "number",
        Value::Text(_) => wanted == "string",
        Value::List(_) => wanted == "array",
        Value::Map(_) => wanted == "object",
    }
}

/// What is wrong with a value of the right type.
fn bounds(node: &Node, schema: &Json) -> Option<String> {
    if let Some(choices) = schema["enum"].as_array() {
        let given = node.to_json();
        if !choices.contains(&given) {
            let words = || choices.iter().filter_map(Json::as_str);
            let hint = given.as_str().and_then(|given| spelling::nearest(given, words()));
            let hint = hint.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
            return Some(format!("must be one of {}{hint}", words().collect::<Vec<_>>().join(", ")));
        }
    }
    let size = match &node.value {
        Value::Text(text) => Some((text.chars().count() as u64, "Length", "characters")),
        Value::List(items) => Some((items.len() as u64, "Items", "entries")),
        Value::Map(entries) => Some((entries.len() as u64, "Properties", "entries")),
        _ => None,
    };
    if let Some((size, what, unit)) = size {
        if let Some(least) = schema[format!("min{what}")].as_u64().filter(|least| size < *least) {
            return Some(format!("must have {least} {unit} at least, not {size}"));
        }
        if let Some(most) = schema[format!("max{what}")].as_u64().filter(|most| size > *most) {
            return Some(format!("must have {most} {unit} at most, not {size}"));
        }
    }
    let number = match node.value {
        Value::Int(number) => Json::from(number).as_f64(),
        Value::Float(number) => Some(number),
        _ => None,
    };
    if let Some(number) = number {
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            return Some(format!("must be {least} at least, not {number}"));
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            return Some(format!("must be {most} at most, not {number}"));
        }
    }
    None
}

fn map(node: &Node, entries: &[(String, Node)], schema: &Json, path: &str, findings: &mut Vec<Finding>) {
    let known = schema["properties"].as_object();
    let any = schema["x-kubernetes-preserve-unknown-fields"] == true || known.is_none();
    for (key, value) in entries {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let others = &schema["additionalProperties"];
        match known.and_then(|known| known.get(key)) {
            Some(schema) => check(value, schema, &below, findings),
            None if others.is_object() => check(value, others, &below, findings),
            None if any => {}
            None => {
                let names = || known.into_iter().flat_map(|known| known.keys().map(String::as_str));
                let hint = match spelling::nearest(key, names()) {
                    Some(nearest) => format!("; did you mean `{nearest}`?"),
                    None if names().count() <= LISTED => {
                        format!("; known: {}", names().collect::<Vec<_>>().join(", "))
                    }
                    None => String::new(),
                };
                let place = value.key.unwrap_or(value.place);
                findings.push(Finding::error(place, format!("{below}: there is no such field{hint}")));
            }
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
    for name in required {
        let is_there = entries.iter().any(|(key, value)| key == name && value.value != Value::Null);
        // The API server fills in what has a default.
        let has_default = known.is_some_and(|known| known[name].get("default").is_some());
        if !is_there && !has_default {
            findings.push(Finding::error(node.place, format!("{}`{name}` is missing", prefix(path))));
        }
    }
}
