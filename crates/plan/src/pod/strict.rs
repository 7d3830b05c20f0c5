//! Reading JSON that people wrote into types, without losing what does not fit.
//!
//! Kubernetes' own types ignore what they do not know. Their schemas tell it.

use std::sync::LazyLock;

use bk_api::spelling;
use k8s_openapi::serde::de::DeserializeOwned;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

use super::RenderError;
use crate::plugin::KubernetesPlugin;

/// Keys that only patches have begin with this.
const DIRECTIVE: char = '$';
/// How many known keys an error lists.
const LISTED: usize = 20;

/// The schemas of the plugin and of everything in it, and so of every type that a pod consists of, by name.
static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<KubernetesPlugin>();
    let mut schemas = generator.take_definitions(false);
    schemas.values_mut().for_each(prune);
    schemas
});

/// Leaves of a schema only which keys there are: descriptions are most of it, and it stays in memory.
fn prune(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    schema.retain(|key, _| {
        ["$ref", "properties", "additionalProperties", "items", "anyOf", "allOf"].contains(&key.as_str())
    });
    for (key, value) in schema {
        match value {
            Value::Object(properties) if key == "properties" => properties.values_mut().for_each(prune),
            Value::Array(choices) => choices.iter_mut().for_each(prune),
            value => prune(value),
        }
    }
}

/// Reads `value`, which stands at `path`, as a `T`. Nulls count as absent. A field of the wrong type and a field that `T` does
/// not have are refused with their path.
///
/// `T` is the plugin or part of it, or of a pod.
pub(crate) fn read<T: DeserializeOwned + JsonSchema>(value: &Value, path: &str) -> Result<T, RenderError> {
    let value = without_nulls(value);
    check::<T>(&value, path)?;
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { join(path, &inner) };
        RenderError { path, problem: error.into_inner().to_string() }
    })
}

/// Refuses keys of `value`, which stands at `path`, that a `T` does not have; directives of patches pass.
pub(crate) fn check<T: JsonSchema>(value: &Value, path: &str) -> Result<(), RenderError> {
    let mut unknown = Vec::new();
    let name = T::schema_name();
    if let Some(schema) = SCHEMAS.get(name.as_ref()) {
        find_unknown(value, schema, path, &mut unknown);
    }
    let mut unknown = unknown.into_iter();
    let Some(mut first) = unknown.next() else { return Ok(()) };
    for RenderError { path, problem } in unknown {
        first.problem = format!("{}; also {path}: {problem}", first.problem);
    }
    Err(first)
}

fn find_unknown(value: &Value, schema: &Value, path: &str, unknown: &mut Vec<RenderError>) {
    let schema = resolve(schema);
    match value {
        Value::Object(object) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            for (key, value) in object.iter().filter(|(key, _)| !key.starts_with(DIRECTIVE)) {
                let below = join(path, key);
                match (known.and_then(|known| known.get(key)).or(others), known) {
                    (Some(schema), _) => find_unknown(value, schema, &below, unknown),
                    (None, Some(known)) => {
                        unknown.push(RenderError { path: below, problem: stranger(key, known) });
                    }
                    // Anything goes.
                    (None, None) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                for (index, value) in list.iter().enumerate() {
                    find_unknown(value, items, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

/// The schema itself, where `schema` refers to another or leaves the choice between one and null.
fn resolve(schema: &Value) -> &Value {
    let named = |schema: &'_ Value| {
        let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        SCHEMAS.get(name)
    };
    let choices = ["anyOf", "allOf"].iter().find_map(|key| schema.get(key)?.as_array());
    named(schema).or_else(|| choices.into_iter().flatten().find_map(named)).unwrap_or(schema)
}

/// What to say about a key that nobody knows.
fn stranger(key: &str, known: &Map<String, Value>) -> String {
    match spelling::nearest(key, known.keys().map(String::as_str)) {
        Some(nearest) => format!("unknown key `{key}`; did you mean `{nearest}`?"),
        None if known.len() <= LISTED => {
            let known: Vec<_> = known.keys().map(String::as_str).collect();
            format!("unknown key `{key}`; known: {}", known.join(", "))
        }
        None => format!("unknown key `{key}`"),
    }
}

/// `value` without the keys whose value is null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn join(path: &str, inner: &str) -> String {
    if inner.starts_with('[') { format!("{path}{inner}") } else { format!("{path}.{inner}") }
}

#[cfg(test)]
mod tests;
