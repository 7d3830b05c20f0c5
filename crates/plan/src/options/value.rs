//! What an option's value may look like, in a variable or in the plugin.

use serde_json::{Value, json};

use super::shorthand;

/// The most entries of a list, unless an option says otherwise.
const MOST: usize = 32;

/// What an option's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text {
        /// How many characters it may have.
        longest: usize,
    },
    /// The name of a Kubernetes object.
    Name,
    /// An absolute path.
    Directory,
    /// `true` or `false`.
    Flag,
    /// A duration such as `1h30m`.
    Duration,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Texts, with `;` between them in a variable.
    Texts {
        /// How many there may be.
        most: usize,
    },
    /// Containers: names of BuildEnvironments, or objects.
    Containers,
    /// Requirements of nodes: in short, or objects.
    Requirements,
    /// Preferences of nodes: in short, or objects.
    Preferences,
    /// Tolerations of taints: in short, or objects.
    Tolerations,
    /// An object; JSON in a variable.
    Object,
}

impl Kind {
    /// Makes of a value what the BuildJob's field takes, or says what it should be. Text stands for other values in the way of
    /// variables, also in the plugin.
    pub(super) fn read(self, given: &Value) -> Result<Value, String> {
        match self {
            Self::Text { longest } => text(given, longest).map(Value::from),
            Self::Name => text(given, 253).and_then(name).map(Value::from),
            Self::Directory => text(given, 4096).and_then(directory).map(Value::from),
            Self::Duration => text(given, 64).and_then(positive).map(Value::from),
            Self::Choice(words) => choice(given, words),
            Self::Flag => flag(given),
            Self::Object => match unfolded(given)? {
                Value::Object(object) => Ok(Value::Object(object)),
                other => Err(format!("must be an object, not {}", brief(&other))),
            },
            Self::Texts { most } => list(given, most, |text| Ok(json!(text))),
            Self::Containers => list(given, MOST, |text| Ok(json!({ "environment": name(text)? }))),
            Self::Requirements => list(given, MOST, shorthand::requirement),
            Self::Preferences => list(given, MOST, shorthand::preference),
            Self::Tolerations => list(given, MOST, shorthand::toleration),
        }
    }

    /// How many entries a list may have; none if it is no list.
    pub fn most(self) -> Option<usize> {
        match self {
            Self::Texts { most } => Some(most),
            Self::Containers | Self::Requirements | Self::Preferences | Self::Tolerations => Some(MOST),
            _ => None,
        }
    }
}

fn text(given: &Value, longest: usize) -> Result<&str, String> {
    match given {
        Value::String(text) if text.trim().is_empty() => Err("must not be empty".to_owned()),
        Value::String(text) if text.chars().count() > longest => {
            Err(format!("must have {longest} characters at most"))
        }
        Value::String(text) => Ok(text.trim()),
        other => Err(format!("must be text, not {}", brief(other))),
    }
}

fn name(text: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = text.len() <= 253
        && text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-' || c == '.');
    if is_name {
        return Ok(text);
    }
    Err(format!("`{text}` is not the name of a BuildEnvironment: small letters, digits, dashes and dots"))
}

fn directory(text: &str) -> Result<&str, String> {
    if text.starts_with('/') && text != "/" {
        return Ok(text);
    }
    Err(format!("`{text}` must be an absolute path of a directory, such as /artifacts"))
}

/// Whether it is a duration at all is found out when the BuildJob is made.
fn positive(text: &str) -> Result<&str, String> {
    let is_nothing = !text.contains(|c: char| c.is_ascii_digit() && c != '0');
    if text.starts_with('-') || is_nothing {
        return Err(format!("`{text}` must be a positive duration such as 90m or 1h30m"));
    }
    Ok(text)
}

fn choice(given: &Value, words: &'static [&'static str]) -> Result<Value, String> {
    let word = given.as_str().unwrap_or_default().trim();
    match words.iter().find(|known| known.eq_ignore_ascii_case(word)) {
        Some(known) => Ok(json!(known)),
        None => Err(format!("must be {}, not {}", words.join(" or "), brief(given))),
    }
}

fn flag(given: &Value) -> Result<Value, String> {
    match given {
        Value::Bool(flag) => Ok(json!(flag)),
        Value::String(text) if text.trim() == "true" => Ok(json!(true)),
        Value::String(text) if text.trim() == "false" => Ok(json!(false)),
        other => Err(format!("must be true or false, not {}", brief(other))),
    }
}

/// JSON that stands in a text.
fn unfolded(given: &Value) -> Result<Value, String> {
    let Value::String(text) = given else { return Ok(given.clone()) };
    serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))
}

/// A list of entries: a JSON list, or texts with `;` between them. Texts are read by `short`; objects stay as they are.
fn list(given: &Value, most: usize, short: fn(&str) -> Result<Value, String>) -> Result<Value, String> {
    let entries = match given {
        Value::Array(entries) => entries.clone(),
        Value::String(text) if text.trim_start().starts_with('[') => match unfolded(given)? {
            Value::Array(entries) => entries,
            other => return Err(format!("must be a list, not {}", brief(&other))),
        },
        Value::String(text) => {
            let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
            entries.map(Value::from).collect()
        }
        other => return Err(format!("must be a list, not {}", brief(other))),
    };
    if entries.len() > most {
        return Err(format!("has {} entries; there may be {most}", entries.len()));
    }
    let read = |(index, entry): (usize, &Value)| match entry {
        Value::String(text) if !text.trim().is_empty() => {
            short(text.trim()).map_err(|problem| format!("entry {}: {problem}", index + 1))
        }
        Value::Object(_) => Ok(entry.clone()),
        other => Err(format!("entry {} is {}", index + 1, brief(other))),
    };
    entries.iter().enumerate().map(read).collect()
}

/// What a value is, in few words.
fn brief(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.trim().is_empty() => "empty".to_owned(),
        // The rest of a long text helps nobody, and may be secret.
        Value::String(text) => format!("`{}`", text.chars().take(40).collect::<String>()),
        other => format!("`{other}`"),
    }
}
