//! A YAML or JSON value that remembers its line and the order of its keys.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::PipelineProblem;

/// One value of the document. Line 0 means that the line is not known, as in uploaded JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

/// What a [`Node`] holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Reads one YAML document.
    pub(crate) fn from_yaml(text: &str) -> Result<Self, PipelineProblem> {
        // Booleans as Go's YAML reads them: `yes` and `on` are strings.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options).map(Self::from).map_err(
            |error| {
                let line = error.location().map_or(0, |location| location.line());
                PipelineProblem::line(line, format!("invalid YAML: {error}"))
            },
        )
    }

    /// A scalar as text: `8080`, `true` and `null` are what an environment variable would hold.
    pub(crate) fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Null => Some(String::new()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Int(value) => Some(value.to_string()),
            Value::Float(value) => Some(value.to_string()),
            Value::Text(value) => Some(value.clone()),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// What kind of value this is, for error texts.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The same value as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Float(value) => Json::from(*value),
            Value::Text(value) => Json::String(value.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect())
            }
        }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { line: spanned.referenced.line(), value: spanned.value }
    }
}

impl From<serde_json::Value> for Node {
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(value),
            Json::Number(number) => number
                .as_i64()
                .map(Value::Int)
                .or_else(|| number.as_f64().map(Value::Float))
                .unwrap_or_else(|| Value::Text(number.to_string())),
            Json::String(value) => Value::Text(value),
            Json::Array(items) => Value::List(items.into_iter().map(Self::from).collect()),
            Json::Object(entries) => {
                Value::Map(entries.into_iter().map(|(key, value)| (key, Self::from(value))).collect())
            }
        };
        Self { line: 0, value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element::<Spanned<Value>>()? {
            items.push(Node::from(item));
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Spanned<Value>>()? {
            entries.push((key, Node::from(value)));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_keeps_lines_order_and_go_booleans() {
        let node = Node::from_yaml("b: yes\na:\n  - 1\n  - x: ~\n").unwrap();
        let Value::Map(entries) = node.value else { panic!("not a map") };
        assert_eq!(entries[0].0, "b");
        assert_eq!(entries[0].1, Node { line: 1, value: Value::Text("yes".into()) });
        let Value::List(items) = &entries[1].1.value else { panic!("not a list") };
        assert_eq!(items[0], Node { line: 3, value: Value::Int(1) });
        assert_eq!(items[1].line, 4);
    }

    #[test]
    fn anchors_and_merges_are_resolved() {
        let node = Node::from_yaml("base: &b {a: 1}\nuse:\n  <<: *b\n  c: 2\n").unwrap();
        assert_eq!(node.to_json()["use"], serde_json::json!({"a": 1, "c": 2}));
    }

    #[test]
    fn broken_yaml_names_the_line() {
        let problem = Node::from_yaml("steps:\n  - command: [\n").unwrap_err().to_string();
        assert!(problem.contains("line") && problem.contains("invalid YAML"), "{problem}");
    }
}
