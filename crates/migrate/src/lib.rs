//! Turns settings of agent-stack-k8s, a file of Helm values or the controller's configuration, into values of the operator's chart.
//!
//! Nothing is dropped silently: every setting of the file is in the report, with what became of it.
//!
//! - [`settings`]: every setting of the controller
//! - [`agent`]: those of the agent, below `agent-config`
//! - [`chart`]: the chart's own values
//! - [`convert`]: values that are written differently here

mod agent;
mod chart;
mod convert;
mod settings;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use bk_api::{
    config::{Config, ConfigError},
    spelling,
};
use serde_json::{Map, Value};

/// What became of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is there, under this path of the chart's values.
    Kept {
        /// The path.
        to: String,
        /// What is different about it, if something is.
        note: Option<String>,
    },
    /// It is of no use here, and why.
    NotNeeded(String),
    /// There is nothing like it here, and what to do.
    NotSupported(String),
    /// The file says nothing, and the default is another here.
    Default(String),
    /// Nobody knows it.
    Unknown(Option<String>),
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The setting, by its path in the file.
    pub setting: String,
    /// What became of it.
    pub fate: Fate,
}

/// What a file becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// Values for the operator's chart.
    pub values: Value,
    /// What became of each setting.
    pub report: Vec<Entry>,
}

impl Migration {
    /// The configuration among the values, as the ConfigMap has it.
    pub fn data(&self) -> BTreeMap<String, String> {
        let config = self.values.get("config").and_then(Value::as_object);
        let document = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => serde_saphyr::to_string(other).unwrap_or_default(),
        };
        config.into_iter().flatten().map(|(key, value)| (key.clone(), document(value))).collect()
    }

    /// Whether the file has settings, and none that anybody knows: it is another file than was meant.
    pub fn is_of_another_kind(&self) -> bool {
        let mut given = self.report.iter().filter(|entry| !matches!(entry.fate, Fate::Default(_))).peekable();
        given.peek().is_some() && given.all(|entry| matches!(entry.fate, Fate::Unknown(_)))
    }

    /// Whether the operator takes the result.
    pub fn check(&self) -> Result<(), ConfigError> {
        Config::from_data(&self.data()).map(drop)
    }
}

/// Translates a document, which is a file of Helm values if it has any of theirs, and otherwise the controller's configuration.
pub fn migrate(document: &Map<String, Value>) -> Migration {
    let mut draft = Draft::default();
    let is_values = document.iter().any(|(key, value)| chart::is_value(key, value));
    let config =
        if is_values { document.get("config").cloned().unwrap_or_default() } else { document.clone().into() };
    draft.prefix = if is_values { "config." } else { "" };
    match config {
        Value::Object(config) => settings::translate(&config, &mut draft),
        Value::Null => settings::translate(&Map::new(), &mut draft),
        _ => draft.say("", Fate::Unknown(Some("it must be a map".to_owned()))),
    }
    if is_values {
        draft.prefix = "";
        chart::translate(document, &mut draft);
    }
    Migration { values: Value::Object(draft.values), report: draft.report }
}

/// What has been translated so far.
#[derive(Debug, Default)]
struct Draft {
    /// What paths in the report begin with.
    prefix: &'static str,
    values: Map<String, Value>,
    report: Vec<Entry>,
}

impl Draft {
    /// Puts a value at a path of the chart's values.
    fn put(&mut self, path: &str, value: Value) {
        let mut keys = path.split('.').peekable();
        let mut place = &mut self.values;
        while let Some(key) = keys.next() {
            if keys.peek().is_none() {
                place.insert(key.to_owned(), value);
                return;
            }
            let below = place.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            let Value::Object(map) = below else { return };
            place = map;
        }
    }

    fn say(&mut self, setting: &str, fate: Fate) {
        let setting = format!("{}{setting}", self.prefix).trim_end_matches('.').to_owned();
        self.report.push(Entry { setting, fate });
    }

    /// Puts a value, and says so.
    fn keep(&mut self, setting: &str, to: &str, value: Value, note: Option<&str>) {
        self.put(to, value);
        self.say(setting, Fate::Kept { to: to.to_owned(), note: note.map(str::to_owned) });
    }

    /// Says that nobody knows a setting, and which may be meant.
    fn unknown<'a>(&mut self, setting: &str, key: &str, known: impl Iterator<Item = &'a str>) {
        let hint = spelling::nearest(key, known).map(|nearest| format!("did you mean `{nearest}`?"));
        self.say(setting, Fate::Unknown(hint));
    }
}

/// The report, a line for each setting: those first that somebody has to look at.
pub fn report(entries: &[Entry]) -> String {
    let rank = |fate: &Fate| match fate {
        Fate::Unknown(_) => 0,
        Fate::NotSupported(_) => 1,
        Fate::Kept { note: Some(_), .. } => 2,
        Fate::Default(_) => 3,
        Fate::NotNeeded(_) => 4,
        Fate::Kept { note: None, .. } => 5,
    };
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| rank(&entry.fate));
    let mut text = String::new();
    let mut last = "";
    for entry in sorted {
        let title = title(&entry.fate);
        if title != last {
            let gap = if last.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{title}:");
            last = title;
        }
        let _ = writeln!(text, "  {entry}");
    }
    text
}

fn title(fate: &Fate) -> &'static str {
    match fate {
        Fate::Unknown(_) => "Unknown, and left out",
        Fate::NotSupported(_) => "Not supported",
        Fate::Kept { note: Some(_), .. } => "Carried over, with a difference",
        Fate::Default(_) => "Not set, with another default here",
        Fate::NotNeeded(_) => "Not needed",
        Fate::Kept { note: None, .. } => "Carried over",
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        match &self.fate {
            Fate::Kept { to, note: None } if to == setting => f.write_str(setting),
            Fate::Kept { to, note: None } => write!(f, "{setting} → {to}"),
            Fate::Kept { to, note: Some(note) } if to == setting => write!(f, "{setting}: {note}"),
            Fate::Kept { to, note: Some(note) } => write!(f, "{setting} → {to}: {note}"),
            Fate::NotNeeded(why) | Fate::NotSupported(why) | Fate::Default(why) => {
                write!(f, "{setting}: {why}")
            }
            Fate::Unknown(Some(hint)) => write!(f, "{setting}: {hint}"),
            Fate::Unknown(None) => f.write_str(setting),
        }
    }
}

#[cfg(test)]
mod tests;
