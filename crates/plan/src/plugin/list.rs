//! Plugins for the operator in the list of plugins that `BUILDKITE_PLUGINS` holds.

use serde_json::{Map, Value};

use crate::options::Problem;

/// What messages call the plugin that carries a step's options.
pub const OPERATOR: &str = "buildkite-operator plugin";
/// Its short name.
const OPERATOR_SHORT: &str = "buildkite-operator";
/// The name of its repository, whoever keeps it.
const OPERATOR_REPOSITORY: &str = "buildkite-operator-buildkite-plugin";

/// What Buildkite makes of the `kubernetes` plugin's short name, without the host.
const REPOSITORY: &str = "buildkite-plugins/kubernetes-buildkite-plugin";
/// Names that Buildkite makes long ones of.
const SHORT: [&str; 2] = ["kubernetes", "buildkite-plugins/kubernetes"];

/// What a step says to the operator, and is not understood or not permitted.
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
    #[error("the configuration of the {plugin} must be an object, not {found}")]
    NotAnObject {
        /// The plugin.
        plugin: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// Options that nobody knows, or whose values are not what they should be.
    #[error("{}", listed(.0))]
    Options(Vec<Problem>),
    /// Options that may not be set here, as their author wrote them.
    #[error("the operator's configuration forbids this queue's jobs to set {}", .0.join(", "))]
    Forbidden(Vec<String>),
}

fn listed(problems: &[Problem]) -> String {
    let problems = problems.iter().map(|Problem { place, problem }| format!("{place}: {problem}"));
    problems.collect::<Vec<_>>().join("; also ")
}

/// The content of the `kubernetes` plugin in the JSON list that `BUILDKITE_PLUGINS` holds. If it is there
/// several times, later keys win.
pub fn kubernetes(plugins: &str) -> Result<Option<Map<String, Value>>, PluginError> {
    content(plugins, "kubernetes plugin", is_kubernetes)
}

/// The content of the `buildkite-operator` plugin in the same list, in the same way.
pub(crate) fn operator(plugins: &str) -> Result<Option<Map<String, Value>>, PluginError> {
    content(plugins, OPERATOR, is_operator)
}

fn content(
    plugins: &str,
    plugin: &'static str,
    is_it: fn(&str) -> bool,
) -> Result<Option<Map<String, Value>>, PluginError> {
    if plugins.trim().is_empty() {
        return Ok(None);
    }
    let list: Vec<Value> =
        serde_json::from_str(plugins).map_err(|error| PluginError::NotAList(error.to_string()))?;
    let mut merged: Option<Map<String, Value>> = None;
    for (index, entry) in list.iter().enumerate() {
        let (name, content) = single_entry(entry).ok_or(PluginError::NotOneKey { index })?;
        if !is_it(name) {
            continue;
        }
        let merged = merged.get_or_insert_default();
        match content {
            Value::Null => {}
            Value::Object(content) => merged.extend(content.clone()),
            other => return Err(PluginError::NotAnObject { plugin, found: kind(other) }),
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
pub fn is_kubernetes(source: &str) -> bool {
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

/// Whether a plugin's source is the one that carries a step's options, whoever keeps its repository and wherever.
pub fn is_operator(source: &str) -> bool {
    let source = source.split('#').next().unwrap_or(source).trim_end_matches('/');
    let is_short = !source.starts_with(['/', '.', '\\']) && !source.contains(':');
    match source.split('/').collect::<Vec<_>>()[..] {
        [name] | [_, name] if is_short && name == OPERATOR_SHORT => true,
        _ => {
            let address = source.strip_suffix(".git").unwrap_or(source);
            address.rsplit(['/', ':', '\\']).next() == Some(OPERATOR_REPOSITORY)
        }
    }
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

    #[rstest]
    #[case("buildkite-operator")]
    #[case("buildkite-operator#v0.0.1")]
    #[case("acme/buildkite-operator#v0.0.1")]
    #[case("github.com/buildkite-plugins/buildkite-operator-buildkite-plugin#v0.0.1")]
    #[case("https://github.com/acme/buildkite-operator-buildkite-plugin.git#v0.0.1")]
    #[case("git@github.com:acme/buildkite-operator-buildkite-plugin.git")]
    #[case("file:///srv/git/buildkite-operator-buildkite-plugin#main")]
    #[case("./plugins/buildkite-operator-buildkite-plugin")]
    fn the_operators_own_has_many_spellings(#[case] source: &str) {
        assert!(is_operator(source));
    }

    #[rstest]
    #[case("buildkite-operator-buildkite-plugin-x")]
    #[case("my-buildkite-operator")]
    #[case("./buildkite-operator")]
    #[case("github.com/acme/buildkite-operator")]
    #[case("kubernetes")]
    fn others_are_not_the_operators(#[case] source: &str) {
        assert!(!is_operator(source));
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
