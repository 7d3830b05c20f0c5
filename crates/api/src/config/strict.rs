//! Finding what a typed value has lost. Kubernetes' own types ignore fields that they do not know.

use serde::Serialize;
use serde_json::Value;

/// The path of the first thing in `given` that `typed`, which was read from it, does not hold. Empty values may be
/// missing: they mean nothing.
pub fn unknown_field<T: Serialize>(given: &Value, typed: &T) -> Option<String> {
    // Types that were read from JSON can be written as JSON.
    let known = serde_json::to_value(typed).ok()?;
    missing(given, &known).map(|path| path.trim_start_matches('.').to_owned())
}

fn missing(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(key, value)| {
            let below = match known.get(key) {
                Some(known) => missing(value, known)?,
                None if is_empty(value) => return None,
                None => String::new(),
            };
            Some(format!(".{key}{below}"))
        }),
        (Value::Array(given), Value::Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(index, (given, known))| Some(format!("[{index}]{}", missing(given, known)?))),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.values().all(is_empty),
        _ => false,
    }
}
