//! Which variables of a Buildkite job that an agent elsewhere runs go with it into the pod.
//!
//! Those that Buildkite gave to the job, as far as they describe it. Not those of the agent's machine; not those that steer an agent, as
//! the pod has its own; and none that may hold a secret, as everybody who may look at BuildJobs would see it.

use super::Hook;
use crate::pattern;

/// Variables that are the pod's own business.
const OWN: [&str; 18] = [
    "BUILDKITE",
    "BUILDKITE_ARTIFACT_PATHS",
    "BUILDKITE_BOOTSTRAP_PHASES",
    "BUILDKITE_BRANCH",
    "BUILDKITE_COMMAND",
    "BUILDKITE_COMMAND_EVAL",
    "BUILDKITE_COMMIT",
    "BUILDKITE_CONTAINER_ID",
    "BUILDKITE_ENV_FILE",
    "BUILDKITE_ENV_JSON_FILE",
    "BUILDKITE_IMAGE",
    "BUILDKITE_PLUGINS",
    "BUILDKITE_REDACTED_VARS",
    "BUILDKITE_REPO",
    "BUILDKITE_SHELL",
    "BUILDKITE_SKIP_CHECKOUT",
    "BUILDKITE_TIMEOUT",
    "CI",
];
/// Beginnings of the names of others.
const OWN_PREFIXES: [&str; 6] = [
    "BUILDKITE_AGENT_",
    "BUILDKITE_GIT_",
    "BUILDKITE_HOOKS_",
    "BUILDKITE_LOCAL_HOOKS_",
    "BUILDKITE_PLUGIN_",
    "BUILDKITE_PLUGINS_",
];
/// Paths are those of the agent's machine.
const PATH: &str = "_PATH";

/// Names of variables that hold secrets, where the agent does not say: its own defaults.
const SECRETS: &str =
    "*_PASSWORD,*_SECRET,*_TOKEN,*_PRIVATE_KEY,*_ACCESS_KEY,*_SECRET_KEY,*_CONNECTION_STRING,*_API_KEY";

/// What becomes of a job's variables.
pub(super) struct Inherited {
    pub(super) passed: Vec<(String, String)>,
    pub(super) withheld: Vec<String>,
}

pub(super) fn of(hook: &Hook) -> Inherited {
    let said = hook.env.get("BUILDKITE_REDACTED_VARS").map_or("", String::as_str);
    let patterns: Vec<&str> = SECRETS.split(',').chain(said.split(',')).map(str::trim).collect();
    let mut inherited = Inherited { passed: Vec::new(), withheld: Vec::new() };
    for (name, value) in hook.env.iter().filter(|(name, _)| describes_job(name, hook)) {
        if patterns.iter().any(|pattern| pattern::matches(pattern, name)) {
            inherited.withheld.push(name.clone());
        } else {
            inherited.passed.push((name.clone(), value.clone()));
        }
    }
    inherited
}

fn describes_job(name: &str, hook: &Hook) -> bool {
    let is_given = match &hook.given {
        Some(given) => given.contains(name),
        None => name.starts_with("BUILDKITE"),
    };
    let is_own = OWN.contains(&name)
        || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || (name.starts_with("BUILDKITE_") && name.ends_with(PATH));
    is_given && !is_own
}
