//! Steps as they are kept for a build: parsed, checked, with defaults applied.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::checkout::Checkout;
use super::condition::Condition;
use super::gate::Gate;
use super::matrix::Matrix;
use super::node::Place;
use super::secrets::Secret;
use super::trigger::Trigger;

/// Environment variables by name.
pub(crate) type Env = BTreeMap<String, String>;

/// One combination of a matrix: dimension to value. The one dimension of a list has the name `""`.
pub(crate) type Permutation = BTreeMap<String, String>;

/// A whole pipeline document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    /// Top-level `env`.
    pub(crate) env: Env,
    /// Top-level `notify`, as written.
    pub(crate) notify: Vec<serde_json::Value>,
    /// The steps in order; groups hold their members.
    pub(crate) steps: Vec<StepTree>,
}

/// A step, and its members when it is a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepTree {
    /// Where it stands in the document, for problems that only show later.
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) step: Step,
    pub(crate) members: Vec<Self>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) key: Option<String>,
    pub(crate) label: Option<String>,
    /// `None`: the implicit dependencies hold. `Some`: exactly these, possibly none.
    pub(crate) depends_on: Option<Vec<Dependency>>,
    pub(crate) allow_dependency_failure: bool,
    /// Why the step is skipped, when it is.
    pub(crate) skip: Option<String>,
    /// `if`: the step is wanted only when it holds.
    pub(crate) condition: Option<Condition>,
    /// `branches`: the step is wanted only on these.
    pub(crate) branches: Option<String>,
    /// As written. Nobody is notified from a laptop.
    pub(crate) notify: Option<serde_json::Value>,
}

impl Step {
    /// A step about which nothing more is said.
    pub(crate) fn bare(kind: Kind) -> Self {
        Self {
            kind,
            key: None,
            label: None,
            depends_on: None,
            allow_dependency_failure: false,
            skip: None,
            condition: None,
            branches: None,
            notify: None,
        }
    }

    /// How many jobs `parallelism` asks for.
    pub(crate) fn parallelism(&self) -> Option<u32> {
        match &self.kind {
            Kind::Command(command) => command.parallelism,
            Kind::Trigger(trigger) => trigger.parallelism,
            _ => None,
        }
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Command(Box<Command>),
    Wait { continue_on_failure: bool },
    Block(Gate),
    Input(Gate),
    Trigger(Box<Trigger>),
    Group,
}

/// A step that runs on an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Command {
    pub(crate) script: String,
    pub(crate) env: Env,
    /// `key=value` agent query rules.
    pub(crate) agents: Vec<String>,
    /// Single-key objects with canonical names.
    pub(crate) plugins: Vec<serde_json::Value>,
    pub(crate) image: Option<String>,
    pub(crate) artifact_paths: Vec<String>,
    pub(crate) parallelism: Option<u32>,
    pub(crate) matrix: Option<Matrix>,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) checkout: Checkout,
    /// Passed to the agent as it came.
    pub(crate) cache: Option<serde_json::Value>,
    pub(crate) soft_fail: SoftFail,
    pub(crate) retry: Retry,
    pub(crate) timeout_in_minutes: Option<u32>,
    pub(crate) priority: i64,
    pub(crate) cancel_on_build_failing: bool,
    /// Passed to the agent as it came; the agent verifies it.
    pub(crate) signature: Option<serde_json::Value>,
}

/// What a build counts as while a block step waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BlockedState {
    #[default]
    Blocked,
    Passed,
    Failed,
    Running,
}

/// How many jobs of a group may run at once, in the whole organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Concurrency {
    pub(crate) group: String,
    pub(crate) limit: u32,
    pub(crate) method: ConcurrencyMethod,
}

/// Who goes next in a concurrency group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConcurrencyMethod {
    /// Strictly in order of creation.
    #[default]
    Ordered,
    /// Whoever is ready, higher priority first.
    Eager,
}

/// An explicit dependency on the step with key `step`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) step: String,
    pub(crate) allow_failure: bool,
}

/// Which failures do not fail the build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SoftFail {
    #[default]
    Never,
    Always,
    ExitStatus(Vec<ExitMatch>),
}

impl SoftFail {
    /// Whether a failure with this exit status is soft.
    pub(crate) fn matches(&self, exit_status: Option<i64>) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::ExitStatus(list) => exit_status
                .is_some_and(|status| list.iter().any(|one| one.matches(status, &(i64::MIN..=i64::MAX)))),
        }
    }
}

/// An exit status in a rule: a number, or `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExitMatch {
    Any,
    Is(i64),
}

impl ExitMatch {
    /// Whether a non-zero `status` matches; `*` stands for those in `any`.
    pub(crate) fn matches(self, status: i64, any: &RangeInclusive<i64>) -> bool {
        match self {
            Self::Any => status != 0 && any.contains(&status),
            Self::Is(wanted) => status == wanted,
        }
    }
}

/// The retry settings of a command step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retry {
    pub(crate) automatic: Vec<RetryRule>,
    pub(crate) manual: ManualRetry,
}

/// One automatic retry rule: all given conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryRule {
    pub(crate) exit_status: Option<Vec<ExitMatch>>,
    pub(crate) signal: Option<TextMatch>,
    pub(crate) signal_reason: Option<Vec<TextMatch>>,
    pub(crate) limit: u32,
}

/// A signal or signal reason in a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextMatch {
    Any,
    None,
    Is(String),
}

impl TextMatch {
    /// Whether what the job ended with matches.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::Any, value) => value.is_some(),
            (Self::None, value) => value.is_none(),
            (Self::Is(wanted), Some(value)) => wanted == value,
            (Self::Is(_), None) => false,
        }
    }
}

/// Whether people may retry a job by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManualRetry {
    pub(crate) allowed: bool,
    pub(crate) permit_on_passed: bool,
    pub(crate) reason: Option<String>,
}

impl Default for ManualRetry {
    fn default() -> Self {
        Self { allowed: true, permit_on_passed: true, reason: None }
    }
}
