//! A step as the variables of its job.

use serde_json::Value as Json;

use super::checkout;
use super::step::{Command, Env, Step};

/// What a command step says, in the variables in which its job has it: its own, and those that Buildkite makes of its attributes.
pub fn of_step(step: &Step, command: &Command) -> Env {
    let mut env = command.env.clone();
    env.extend(checkout::variables(&command.checkout));
    let mut set = |name: &str, value: &str| {
        env.insert(name.to_owned(), value.to_owned());
    };
    let key = step.key.as_deref().unwrap_or_default();
    set("BUILDKITE_LABEL", step.label.as_deref().unwrap_or_default());
    set("BUILDKITE_COMMAND", &command.script);
    set("BUILDKITE_SCRIPT_PATH", &command.script);
    set("BUILDKITE_STEP_KEY", key);
    set("BUILDKITE_STEP_IDENTIFIER", key);
    set("BUILDKITE_ARTIFACT_PATHS", &command.artifact_paths.join(";"));
    let timeout = command.timeout_in_minutes.map_or("false".to_owned(), |minutes| minutes.to_string());
    set("BUILDKITE_TIMEOUT", &timeout);
    // Even an empty list makes an agent with `--no-plugins` refuse the job.
    if !command.plugins.is_empty() {
        set("BUILDKITE_PLUGINS", &Json::Array(command.plugins.clone()).to_string());
    }
    if let Some(image) = &command.image {
        set("BUILDKITE_IMAGE", image);
    }
    env
}
