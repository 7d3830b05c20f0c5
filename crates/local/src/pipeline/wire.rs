//! A command step in the form in which agents know it.

use serde_json::{Value as Json, json};

use super::step::{Command, Step};

/// The step as it was uploaded, before a matrix was filled in: what an agent verifies a signature against, and
/// where it finds secrets and cache paths.
pub(crate) fn agent_step(step: &Step, command: &Command) -> Json {
    let mut shown = json!({
        "command": command.script,
        "env": command.env,
        "plugins": command.plugins,
    });
    let mut add = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            shown[name] = value;
        }
    };
    add("key", step.key.clone().map(Json::String));
    add("label", step.label.clone().map(Json::String));
    add("matrix", command.matrix.as_ref().map(|matrix| matrix.source.clone()));
    add("cache", command.cache.clone());
    add("signature", command.signature.clone());
    add(
        "checkout",
        Some(&command.checkout).filter(|checkout| !checkout.is_empty()).map(|checkout| json!(checkout)),
    );
    // An empty list, never null: the agent cannot read that.
    add(
        "secrets",
        Some(&command.secrets).filter(|secrets| !secrets.is_empty()).map(|secrets| json!(secrets)),
    );
    shown
}
