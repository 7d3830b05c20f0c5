//! A YAML or JSON value that remembers its line and the order of its keys.

use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::PipelineProblem;

/// The longest pipeline that is read.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// How deeply values may be nested.
const MAX_DEPTH: usize = 50;
/// The most values of a document, with every alias written out.
const MAX_NODES: usize = 200_000;

/// One value of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where the value stands.
    pub place: Place,
    /// Where the key of a map's entry stands, if this is the entry's value.
    pub key: Option<Place>,
    /// What it is.
    pub value: Value,
}

/// Where a value stands. Line 0 means that the line is not known, as in uploaded JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The line, counted from 1.
    pub line: u64,
    /// The column, counted from 1.
    pub column: u64,
    /// The position in a walk over the document; tells values apart, also when they are copied.
    index: u32,
}

/// What a [`Node`] holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order in which it was written.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Reads one YAML document.
    pub fn from_yaml(text: &str) -> Result<Self, PipelineProblem> {
        let root = serde_saphyr::from_str_with_options::<Spanned<Value>>(checked(text)?, options());
        Ok(Self::numbered(root.map_err(|error| unreadable(&error))?))
    }

    /// Reads every YAML document of a text.
    pub fn all_from_yaml(text: &str) -> Result<Vec<Self>, PipelineProblem> {
        let roots = serde_saphyr::from_multiple_with_options::<Spanned<Value>>(checked(text)?, options());
        Ok(roots.map_err(|error| unreadable(&error))?.into_iter().map(Self::numbered).collect())
    }

    fn numbered(root: impl Into<Self>) -> Self {
        let mut root = root.into();
        root.number(&mut 0);
        root
    }

    /// Reads a document that came as JSON.
    pub fn from_json(json: serde_json::Value) -> Self {
        Self::numbered(json)
    }

    /// Gives every value its index.
    fn number(&mut self, next: &mut u32) {
        self.place.index = *next;
        self.key = self.key.map(|place| Place { index: *next, ..place });
        *next = next.saturating_add(1);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.number(next)),
            Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| value.number(next)),
            _ => {}
        }
    }

    /// The path of the value at `place` below this one: `steps[2].env.A`.
    pub fn path_to(&self, place: Place) -> Option<String> {
        if self.place.index == place.index {
            return Some(String::new());
        }
        let last_before = |nodes: &mut dyn Iterator<Item = (usize, &Self)>| {
            nodes.take_while(|(_, node)| node.place.index <= place.index).last().map(|(at, _)| at)
        };
        match &self.value {
            Value::List(items) => {
                let at = last_before(&mut items.iter().enumerate())?;
                Some(format!("[{at}]{}", dotted(&items[at].path_to(place)?)))
            }
            Value::Map(entries) => {
                let at = last_before(&mut entries.iter().map(|(_, node)| node).enumerate())?;
                let (key, node) = &entries[at];
                Some(format!("{key}{}", dotted(&node.path_to(place)?)))
            }
            _ => None,
        }
    }

    /// The entry of a map under this key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The value at a path such as `steps[2].env.A`, or the last one on the way that there is. Keys may have dots in them.
    pub fn nearest(&self, path: &str) -> &Self {
        let path = path.trim_start_matches('.');
        match &self.value {
            Value::List(items) => {
                let index = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let item =
                    index.and_then(|(index, rest)| Some((items.get(index.parse::<usize>().ok()?)?, rest)));
                item.map_or(self, |(item, rest)| item.nearest(rest))
            }
            Value::Map(entries) => {
                let below = |key: &str| {
                    let rest = path.strip_prefix(key)?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
                };
                let fitting = entries.iter().filter_map(|(key, node)| Some((key.len(), node, below(key)?)));
                let longest = fitting.max_by_key(|(length, ..)| *length);
                longest.map_or(self, |(_, node, rest)| node.nearest(rest))
            }
            _ => self,
        }
    }

    /// A scalar as text: `8080`, `true` and `null` are what an environment variable would hold.
    pub fn scalar(&self) -> Option<String> {
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
    pub fn kind(&self) -> &'static str {
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
    pub fn to_json(&self) -> serde_json::Value {
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

/// A text that is neither too long nor too deep to be read.
fn checked(text: &str) -> Result<&str, PipelineProblem> {
    if text.len() > MAX_BYTES {
        let size = text.len();
        let reason = format!("the pipeline has {size} bytes; at most {MAX_BYTES} are read");
        return Err(PipelineProblem::whole(reason));
    }
    if let Some(line) = text.lines().position(|line| openings(line) > MAX_DEPTH) {
        let place = Place { line: line as u64 + 1, column: 1, index: 0 };
        let reason = format!("invalid YAML: more than {MAX_DEPTH} values are nested on this line");
        return Err(PipelineProblem::place(place, reason));
    }
    Ok(text)
}

/// Booleans as Go's YAML reads them: `yes` and `on` are strings. The limits are far above what people write, and far below what
/// would hurt: aliases can make a small text huge.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            // One anchor may well be used in each of a hundred steps.
            enforce_alias_anchor_ratio: false,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
    }
}

fn unreadable(error: &serde_saphyr::Error) -> PipelineProblem {
    let location = error.location();
    let place = Place {
        line: location.map_or(0, |location| location.line()),
        column: location.map_or(0, |location| location.column()),
        index: 0,
    };
    PipelineProblem::place(place, format!("invalid YAML: {error}"))
}

/// How many lists and maps a line begins with: `- - ? x` opens three. The parser follows each with a call of
/// its own, before any limit is looked at.
fn openings(line: &str) -> usize {
    line.split_ascii_whitespace().take_while(|word| matches!(*word, "-" | "?" | ":")).count()
}

/// A path that follows another: `.key`, or `[0]` as it is.
fn dotted(path: &str) -> String {
    if path.is_empty() || path.starts_with('[') { path.to_owned() } else { format!(".{path}") }
}

impl Place {
    fn of<T>(spanned: &Spanned<T>) -> Self {
        Self { line: spanned.referenced.line(), column: spanned.referenced.column(), index: 0 }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { place: Place::of(&spanned), key: None, value: spanned.value }
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
        Self { place: Place::default(), key: None, value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let _level = Level::enter()
            .ok_or_else(|| D::Error::custom(format_args!("values are nested more than {MAX_DEPTH} deep")))?;
        deserializer.deserialize_any(ValueVisitor)
    }
}

thread_local! {
    static LEVELS: Cell<usize> = const { Cell::new(0) };
}

/// One level of nesting that is being read. The reader's own limit does not see what aliases bring in, and the
/// levels cannot be counted on the way down: [`Spanned`] passes nothing on.
struct Level;

impl Level {
    fn enter() -> Option<Self> {
        LEVELS.with(|levels| {
            let deeper = levels.get() + 1;
            (deeper <= MAX_DEPTH).then(|| {
                levels.set(deeper);
                Self
            })
        })
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        LEVELS.with(|levels| levels.set(levels.get() - 1));
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
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            let place = Place::of(&key);
            entries.push((key.value, Node { key: Some(place), ..Node::from(value) }));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests;
