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
pub type Env = BTreeMap<String, String>;

/// One combination of a matrix: dimension to value. The one dimension of a list has the name `""`.
pub type Permutation = BTreeMap<String, String>;

/// A whole pipeline document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Top-level `env`.
    pub env: Env,
    /// Top-level `notify`, as written.
    pub notify: Vec<serde_json::Value>,
    /// The steps in order; groups hold their members.
    pub steps: Vec<StepTree>,
}

/// A step, and its members when it is a group.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTree {
    /// Where it stands in the document, for problems that only show later.
    pub place: Place,
    /// Its path in the document.
    pub path: String,
    /// The step.
    pub step: Step,
    /// The steps of a group.
    pub members: Vec<Self>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What it does.
    pub kind: Kind,
    /// By what other steps name it.
    pub key: Option<String>,
    /// What people call it.
    pub label: Option<String>,
    /// `None`: the implicit dependencies hold. `Some`: exactly these, possibly none.
    pub depends_on: Option<Vec<Dependency>>,
    /// Whether it runs although what it depends on has failed.
    pub allow_dependency_failure: bool,
    /// Why the step is skipped, when it is.
    pub skip: Option<String>,
    /// `if`: the step is wanted only when it holds.
    pub condition: Option<Condition>,
    /// `branches`: the step is wanted only on these.
    pub branches: Option<String>,
    /// As written. Nobody is notified from a laptop.
    pub notify: Option<serde_json::Value>,
}

impl Step {
    /// A step about which nothing more is said.
    pub fn bare(kind: Kind) -> Self {
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
    pub fn parallelism(&self) -> Option<u32> {
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
pub enum Kind {
    /// Runs on an agent.
    Command(Box<Command>),
    /// Waits for the steps before it.
    Wait {
        /// Also after a failure.
        continue_on_failure: bool,
    },
    /// Waits for a person, and holds up what follows.
    Block(Gate),
    /// Waits for a person, and holds up nothing.
    Input(Gate),
    /// Starts a build of another pipeline.
    Trigger(Box<Trigger>),
    /// Holds other steps.
    Group,
}

/// A step that runs on an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// What it runs.
    pub script: String,
    /// Its own variables.
    pub env: Env,
    /// `key=value` agent query rules.
    pub agents: Vec<String>,
    /// Single-key objects with canonical names.
    pub plugins: Vec<serde_json::Value>,
    /// The image in which it runs, for stacks that look at it.
    pub image: Option<String>,
    /// Files that become artifacts.
    pub artifact_paths: Vec<String>,
    /// How many equal jobs it is.
    pub parallelism: Option<u32>,
    /// The combinations that it is a job each for.
    pub matrix: Option<Matrix>,
    /// How many jobs run at once, and with which others.
    pub concurrency: Option<Concurrency>,
    /// Secrets that become variables.
    pub secrets: Vec<Secret>,
    /// How the source is checked out.
    pub checkout: Checkout,
    /// Passed to the agent as it came.
    pub cache: Option<serde_json::Value>,
    /// Which failures do not fail the build.
    pub soft_fail: SoftFail,
    /// When it is tried again.
    pub retry: Retry,
    /// How long it may run.
    pub timeout_in_minutes: Option<u32>,
    /// Higher goes first.
    pub priority: i64,
    /// Whether it ends when the build is about to fail.
    pub cancel_on_build_failing: bool,
    /// Passed to the agent as it came; the agent verifies it.
    pub signature: Option<serde_json::Value>,
}

/// What a build counts as while a block step waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedState {
    #[default]
    /// It is blocked.
    Blocked,
    /// It has passed.
    Passed,
    /// It has failed.
    Failed,
    /// It is running.
    Running,
}

/// How many jobs of a group may run at once, in the whole organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// The group.
    pub group: String,
    /// How many.
    pub limit: u32,
    /// Who goes next.
    pub method: ConcurrencyMethod,
}

/// Who goes next in a concurrency group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConcurrencyMethod {
    /// Strictly in order of creation.
    #[default]
    Ordered,
    /// Whoever is ready, higher priority first.
    Eager,
}

/// An explicit dependency on the step with key `step`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// The key.
    pub step: String,
    /// Whether its failure does not matter.
    pub allow_failure: bool,
}

/// Which failures do not fail the build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SoftFail {
    #[default]
    /// None.
    Never,
    /// All.
    Always,
    /// Those with one of these exit statuses.
    ExitStatus(Vec<ExitMatch>),
}

impl SoftFail {
    /// Whether a failure with this exit status is soft.
    pub fn matches(&self, exit_status: Option<i64>) -> bool {
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
pub enum ExitMatch {
    /// Any that is not 0.
    Any,
    /// This one.
    Is(i64),
}

impl ExitMatch {
    /// Whether a non-zero `status` matches; `*` stands for those in `any`.
    pub fn matches(self, status: i64, any: &RangeInclusive<i64>) -> bool {
        match self {
            Self::Any => status != 0 && any.contains(&status),
            Self::Is(wanted) => status == wanted,
        }
    }
}

/// The retry settings of a command step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Rules by which it happens by itself.
    pub automatic: Vec<RetryRule>,
    /// Whether people may.
    pub manual: ManualRetry,
}

/// One automatic retry rule: all given conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRule {
    /// The exit status.
    pub exit_status: Option<Vec<ExitMatch>>,
    /// The signal.
    pub signal: Option<TextMatch>,
    /// The reason for the signal.
    pub signal_reason: Option<Vec<TextMatch>>,
    /// How often.
    pub limit: u32,
}

/// A signal or signal reason in a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextMatch {
    /// There is one.
    Any,
    /// There is none.
    None,
    /// This one.
    Is(String),
}

impl TextMatch {
    /// Whether what the job ended with matches.
    pub fn matches(&self, value: Option<&str>) -> bool {
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
pub struct ManualRetry {
    /// Whether they may.
    pub allowed: bool,
    /// Also when it has passed.
    pub permit_on_passed: bool,
    /// Why not.
    pub reason: Option<String>,
}

impl Default for ManualRetry {
    fn default() -> Self {
        Self { allowed: true, permit_on_passed: true, reason: None }
    }
}
