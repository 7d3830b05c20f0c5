//! Faults on demand: which requests go wrong, and how. Deciding is pure; `api::faults` carries it out.

mod matching;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use matching::Armed;

/// A fault: the requests it strikes, what happens to them, and for how long.
///
/// ```
/// let rule: buildkite_local::Fault = serde_json::from_str(
///     r#"{"method": "PUT", "path": "/v3/jobs/*/finish", "action": {"answer": {"status": 503}}, "times": 2}"#,
/// )?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The method; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, by segments. `*` and `{name}` stand for one segment, a final `**` for the rest.
    pub path: String,
    /// What happens.
    pub action: Action,
    /// So many matching requests are spared first.
    #[serde(default)]
    pub skip: u64,
    /// Then so many are struck; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// The fault ends so many seconds after it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How likely it is that a request is struck, between 0 and 1; certain when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Where the chance begins: the same seed strikes the same requests again.
    #[serde(default)]
    pub seed: u64,
}

impl Fault {
    /// Strikes every request of this path, whatever the method.
    pub fn always(path: &str, action: Action) -> Self {
        Self {
            method: None,
            path: path.to_owned(),
            action,
            skip: 0,
            times: None,
            seconds: None,
            probability: None,
            seed: 0,
        }
    }
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Answered with this; the server does not see the request.
    Answer(Answer),
    /// So many seconds pass, then the server sees the request.
    WaitBefore(f64),
    /// The server handles the request; its answer leaves so many seconds later.
    WaitAfter(f64),
    /// The server handles the request; the connection ends instead of an answer.
    LoseAnswer,
    /// The server handles the request; the connection ends half-way through the answer's body.
    CutBody,
    /// The connection ends; the server does not see the request.
    Close,
}

/// An answer that is made up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body: a string as it is, anything else as JSON. When absent, a JSON object with a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// Headers, such as `Retry-After`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// A fault as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// What to remove it by.
    pub id: u64,
    /// The fault itself.
    #[serde(flatten)]
    pub fault: Fault,
    /// How many requests matched.
    pub matched: u64,
    /// How many of them were struck.
    pub hits: u64,
    /// Whether it will never strike again.
    pub spent: bool,
}

/// A fault that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the fault cannot be used: {0}")]
pub struct BadFault(String);

/// The faults of a server. Clones share them, so a test that keeps one can add to a running server.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<Armed>>>);

impl Faults {
    /// Adds a fault; returns its id. Where several match a request, the oldest that strikes decides.
    pub fn add(&self, fault: Fault) -> Result<u64, BadFault> {
        matching::check(&fault).map_err(BadFault)?;
        self.with(|armed| {
            let id = armed.last().map_or(1, |last| last.id + 1);
            armed.push(Armed::new(id, fault, Instant::now()));
            Ok(id)
        })
    }

    /// The faults, oldest first; spent ones stay until they are removed.
    pub fn list(&self) -> Vec<Standing> {
        let now = Instant::now();
        self.with(|armed| armed.iter().map(|one| one.standing(now)).collect())
    }

    /// Removes a fault; says whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        self.with(|armed| {
            let before = armed.len();
            armed.retain(|one| one.id != id);
            armed.len() < before
        })
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.with(Vec::clear);
    }

    /// What happens to this request; counts it.
    pub(crate) fn strike(&self, method: &str, path: &str) -> Option<Action> {
        let now = Instant::now();
        self.with(|armed| armed.iter_mut().find_map(|one| one.strike(method, path, now)))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Armed>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Action {
    /// Waits of a test; longer ones are a mistake of the unit.
    const LONGEST: f64 = 3600.0;

    fn check(&self) -> Result<(), String> {
        match self {
            Self::WaitBefore(seconds) | Self::WaitAfter(seconds) => {
                if (0.0..=Self::LONGEST).contains(seconds) {
                    return Ok(());
                }
                Err(format!("a wait of {seconds} s is not between 0 and {} s", Self::LONGEST))
            }
            Self::Answer(answer) if !(200..=599).contains(&answer.status) => {
                Err(format!("status {} is not between 200 and 599", answer.status))
            }
            Self::Answer(answer) => answer.headers.iter().try_for_each(|(name, value)| {
                let fits = axum::http::HeaderName::try_from(name.as_str()).is_ok()
                    && axum::http::HeaderValue::try_from(value.as_str()).is_ok();
                if fits { Ok(()) } else { Err(format!("{name:?}: {value:?} is no header")) }
            }),
            Self::LoseAnswer | Self::CutBody | Self::Close => Ok(()),
        }
    }
}

/// Seconds that were checked.
pub(crate) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
