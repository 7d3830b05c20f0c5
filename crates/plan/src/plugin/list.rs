//! The plugin in the list of plugins that `BUILDKITE_PLUGINS` holds.

use serde_json::{Map, Value};

/// Names under which the plugin may appear: canonical, as Buildkite sends it, and short.
const NAMES: [&str; 2] = ["github.com/buildkite-plugins/kubernetes-buildkite-plugin", "kubernetes"];

/// A list of plugins that is not one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PluginError {
    /// Not JSON, or not an array of objects.
    #[error("BUILDKITE_PLUGINS is not a list of plugins: {0}")]
    NotAList(String),
    /// One entry has the wrong shape.
    #[error("BUILDKITE_PLUGINS[{index}] must be an object with exactly one key, the plugin's name")]
    NotOneKey {
        /// Position in the list.
        index: usize,
    },
    /// The plugin's content is not an object.
    #[error("the configuration of the kubernetes plugin must be an object, not {found}")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
}

/// The content of the `kubernetes` plugin in the JSON list that `BUILDKITE_PLUGINS` holds. If it is there
/// several times, later keys win.
pub fn kubernetes(plugins: &str) -> Result<Option<Map<String, Value>>, PluginError> {
    if plugins.trim().is_empty() {
        return Ok(None);
    }
    let list: Vec<Value> =
        serde_json::from_str(plugins).map_err(|error| PluginError::NotAList(error.to_string()))?;
    let mut merged: Option<Map<String, Value>> = None;
    for (index, entry) in list.iter().enumerate() {
        let (name, content) = single_entry(entry).ok_or(PluginError::NotOneKey { index })?;
        if !is_kubernetes(name) {
            continue;
        }
        let merged = merged.get_or_insert_default();
        match content {
            Value::Null => {}
            Value::Object(content) => merged.extend(content.clone()),
            other => return Err(PluginError::NotAnObject { found: kind(other) }),
        }
    }
    Ok(merged)
}

fn single_entry(entry: &Value) -> Option<(&str, &Value)> {
    match entry {
        Value::Object(object) if object.len() == 1 => {
            object.iter().next().map(|(name, content)| (name.as_str(), content))
        }
        _ => None,
    }
}

fn is_kubernetes(name: &str) -> bool {
    let without_version = name.split('#').next().unwrap_or(name);
    NAMES.contains(&without_version)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("")]
    #[case("[]")]
    #[case(r#"[{"github.com/buildkite-plugins/docker-buildkite-plugin#v5": null}]"#)]
    fn other_jobs_have_none(#[case] plugins: &str) {
        assert_eq!(kubernetes(plugins), Ok(None));
    }

    #[rstest]
    #[case(r#"[{"github.com/buildkite-plugins/kubernetes-buildkite-plugin": {"podSpec": {}}}]"#)]
    #[case(r#"[{"kubernetes": {"podSpec": {}}}]"#)]
    #[case(r#"[{"kubernetes#v1": {"podSpec": {}}}]"#)]
    fn every_spelling_is_found(#[case] plugins: &str) {
        let content = kubernetes(plugins).unwrap().unwrap();
        assert_eq!(Value::Object(content), json!({"podSpec": {}}));
    }

    #[test]
    fn later_entries_win_per_key() {
        let plugins = r#"[{"kubernetes": {"a": 1, "b": 1}}, {"kubernetes": {"b": 2}}]"#;
        assert_eq!(Value::Object(kubernetes(plugins).unwrap().unwrap()), json!({"a": 1, "b": 2}));
    }

    #[rstest]
    #[case("{", "BUILDKITE_PLUGINS is not a list of plugins")]
    #[case(r#"["kubernetes"]"#, "BUILDKITE_PLUGINS[0] must be an object with exactly one key")]
    #[case(r#"[{"a": 1, "b": 2}]"#, "BUILDKITE_PLUGINS[0] must be an object with exactly one key")]
    #[case(r#"[{"kubernetes": [1]}]"#, "must be an object, not a list")]
    fn what_is_wrong_is_said(#[case] plugins: &str, #[case] expected: &str) {
        let error = kubernetes(plugins).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
