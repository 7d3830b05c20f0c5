//! The plugin in the list of plugins that `BUILDKITE_PLUGINS` holds.

use serde_json::{Map, Value};

/// What Buildkite makes of the plugin's short name, without the host.
const REPOSITORY: &str = "buildkite-plugins/kubernetes-buildkite-plugin";
/// Names that Buildkite makes long ones of.
const SHORT: [&str; 2] = ["kubernetes", "buildkite-plugins/kubernetes"];

/// A list of plugins that is not one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PluginError {
    /// Not JSON, or not an array of objects.
    #[error("BUILDKITE_PLUGINS is not a list of plugins: {0}")]
    NotAList(String),
    /// One entry has the wrong shape.
    #[error(
        "BUILDKITE_PLUGINS[{index}] must be a plugin's name, or an object with exactly one key, which is that name"
    )]
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
        Value::String(name) => Some((name, &Value::Null)),
        Value::Object(object) if object.len() == 1 => {
            object.iter().next().map(|(name, content)| (name.as_str(), content))
        }
        _ => None,
    }
}

/// Whether a plugin's source is ours, however it is spelt: short or long, over HTTPS or SSH, with a version or without.
pub(crate) fn is_kubernetes(source: &str) -> bool {
    let source = source.split('#').next().unwrap_or(source);
    if SHORT.contains(&source) {
        return true;
    }
    let address = source.split_once("://").map_or(source, |(_, address)| address);
    let address = address.rsplit_once('@').map_or(address, |(_, address)| address);
    let address = address.trim_end_matches('/');
    let address = address.strip_suffix(".git").unwrap_or(address);
    address.strip_prefix("github.com").is_some_and(|rest| rest.strip_prefix(['/', ':']) == Some(REPOSITORY))
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
    #[case(r#"["docker#v5", {"kubernetes": {"podSpec": {}}}]"#)]
    fn it_is_found_in_a_list(#[case] plugins: &str) {
        let content = kubernetes(plugins).unwrap().unwrap();
        assert_eq!(Value::Object(content), json!({"podSpec": {}}));
    }

    #[rstest]
    #[case("kubernetes")]
    #[case("kubernetes#v1.0.0")]
    #[case("buildkite-plugins/kubernetes#main")]
    #[case("github.com/buildkite-plugins/kubernetes-buildkite-plugin")]
    #[case("github.com/buildkite-plugins/kubernetes-buildkite-plugin#v1.0.0")]
    #[case("https://github.com/buildkite-plugins/kubernetes-buildkite-plugin")]
    #[case("https://github.com/buildkite-plugins/kubernetes-buildkite-plugin.git#v1")]
    #[case("https://token@github.com/buildkite-plugins/kubernetes-buildkite-plugin.git")]
    #[case("ssh://git@github.com/buildkite-plugins/kubernetes-buildkite-plugin.git#v1")]
    #[case("git@github.com:buildkite-plugins/kubernetes-buildkite-plugin.git")]
    fn it_has_many_spellings(#[case] source: &str) {
        assert!(is_kubernetes(source));
    }

    #[rstest]
    #[case("docker")]
    #[case("kubernetes-buildkite-plugin")]
    #[case("acme/kubernetes#v1")]
    #[case("./kubernetes")]
    #[case("github.com/acme/kubernetes-buildkite-plugin")]
    #[case("github.com.example.org/buildkite-plugins/kubernetes-buildkite-plugin")]
    #[case("https://example.org/?x=@github.com/buildkite-plugins/kubernetes-buildkite-plugin-x")]
    fn others_are_others(#[case] source: &str) {
        assert!(!is_kubernetes(source));
    }

    #[test]
    fn later_entries_win_per_key() {
        let plugins = r#"[{"kubernetes": {"a": 1, "b": 1}}, {"kubernetes": {"b": 2}}]"#;
        assert_eq!(Value::Object(kubernetes(plugins).unwrap().unwrap()), json!({"a": 1, "b": 2}));
    }

    #[rstest]
    #[case("{", "BUILDKITE_PLUGINS is not a list of plugins")]
    #[case("[1]", "BUILDKITE_PLUGINS[0] must be a plugin's name, or an object with exactly one key")]
    #[case(r#"["a", {"a": 1, "b": 2}]"#, "BUILDKITE_PLUGINS[1] must be a plugin's name, or an object")]
    #[case(r#"[{"kubernetes": [1]}]"#, "must be an object, not a list")]
    fn what_is_wrong_is_said(#[case] plugins: &str, #[case] expected: &str) {
        let error = kubernetes(plugins).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
