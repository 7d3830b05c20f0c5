//! Plugins that only carry options for the operator, such as `kubernetes`, are no repositories that anybody should clone.
//!
//! The agent does not clone a plugin whose directory is there already. So directories for them are made before it looks.

use bk_api::BuildJob;
use serde_json::Value;

use crate::plugin;

/// The plugin that the agent itself does not clone.
const KNOWN_TO_AGENTS: &str = "github.com/buildkite-plugins/kubernetes-buildkite-plugin";

/// Whether a plugin only carries options for the operator, under whatever version.
fn is_option(name: &str) -> bool {
    plugin::is_kubernetes(name) || plugin::is_operator(name)
}

/// The names of those plugins in the JSON list that `BUILDKITE_PLUGINS` holds that only carry options for the operator, and
/// that the agent would clone: it knows of one itself.
pub(crate) fn options(plugins: &str) -> Vec<String> {
    let list: Vec<Value> = serde_json::from_str(plugins).unwrap_or_default();
    let names = list.into_iter().flat_map(|entry| match entry {
        Value::Object(entries) => entries.into_iter().map(|(name, _)| name).collect(),
        Value::String(name) => vec![name],
        _ => Vec::new(),
    });
    names.filter(|name| is_option(name) && name != KNOWN_TO_AGENTS).collect()
}

/// The directories to make for the job's plugins below `plugins_path`. The agent keeps plugins of each agent apart.
pub(super) fn of(job: &BuildJob, plugins_path: &str, agent: &str) -> Vec<String> {
    let names = job.spec.buildkite.iter().flat_map(|buildkite| &buildkite.option_plugins);
    let directories = names
        .filter(|name| is_option(name))
        .map(|name| format!("{plugins_path}/{agent}/{}", identifier(name)));
    directories.flat_map(|directory| [format!("{directory}/.git"), format!("{directory}/hooks")]).collect()
}

/// A standalone job's plugins as its bootstrap wants them: with full names, which Buildkite gives to others, and without those
/// that carry options for the operator.
pub(super) fn standalone(plugins: &[Value]) -> Vec<Value> {
    let named = plugins.iter().map(|plugin| match plugin {
        Value::Object(entries) => {
            let entries = entries.iter().filter(|(name, _)| !is_option(name));
            Value::Object(entries.map(|(name, content)| (full_name(name), content.clone())).collect())
        }
        other => other.clone(),
    });
    named.filter(|plugin| plugin.as_object().is_none_or(|entries| !entries.is_empty())).collect()
}

/// The name of a plugin's directory, as the agent makes it from the plugin's full name.
fn identifier(name: &str) -> String {
    let name = full_name(name);
    // Neither the scheme nor who asks is part of it.
    let place = name.split_once("://").map_or(name.as_str(), |(_, place)| place);
    let place = place.split_once('@').map_or(place, |(_, place)| place);
    let words = place.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// `docker#v5` → `github.com/buildkite-plugins/docker-buildkite-plugin#v5`. Paths and addresses stay as they are.
fn full_name(name: &str) -> String {
    let (path, version) = name.find('#').map_or((name, ""), |at| name.split_at(at));
    if path.is_empty() || path.starts_with(['/', '.', '\\']) || path.contains(':') {
        return name.to_owned();
    }
    match path.split('/').collect::<Vec<_>>()[..] {
        [plugin] => format!("github.com/buildkite-plugins/{plugin}-buildkite-plugin{version}"),
        [owner, plugin] => format!("github.com/{owner}/{plugin}-buildkite-plugin{version}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("docker#v5", "github.com/buildkite-plugins/docker-buildkite-plugin#v5")]
    #[case("acme/deploy", "github.com/acme/deploy-buildkite-plugin")]
    #[case("github.com/acme/x-buildkite-plugin#v1", "github.com/acme/x-buildkite-plugin#v1")]
    #[case("./plugins/mine", "./plugins/mine")]
    #[case("https://example.com/a.git#v1", "https://example.com/a.git#v1")]
    fn short_names_stand_for_repositories(#[case] name: &str, #[case] expected: &str) {
        assert_eq!(full_name(name), expected);
    }

    #[rstest]
    #[case("kubernetes#v1.2", Some("github-com-buildkite-plugins-kubernetes-buildkite-plugin-v1-2"))]
    #[case(
        "github.com/buildkite-plugins/buildkite-operator-buildkite-plugin#v0.0.1",
        Some("github-com-buildkite-plugins-buildkite-operator-buildkite-plugin-v0-0-1")
    )]
    #[case("buildkite-operator", Some("github-com-buildkite-plugins-buildkite-operator-buildkite-plugin"))]
    #[case(
        "https://token@github.com/buildkite-plugins/kubernetes-buildkite-plugin.git#v1",
        Some("github-com-buildkite-plugins-kubernetes-buildkite-plugin-git-v1")
    )]
    #[case(
        "acme/buildkite-operator#v0.0.1",
        Some("github-com-acme-buildkite-operator-buildkite-plugin-v0-0-1")
    )]
    #[case("docker#v5", None)]
    #[case("acme/kubernetes", None)]
    fn only_plugins_with_our_options_have_directories(#[case] name: &str, #[case] expected: Option<&str>) {
        assert_eq!(is_option(name).then(|| identifier(name)).as_deref(), expected);
    }

    #[test]
    fn a_standalone_job_keeps_the_plugins_that_do_something() {
        let plugins = [
            json!({"docker#v5": {"image": "node"}}),
            json!({"kubernetes": {}}),
            json!({"acme/buildkite-operator": {}}),
            json!({"acme/x": null}),
        ];
        assert_eq!(
            Value::from(standalone(&plugins)),
            json!([
                {"github.com/buildkite-plugins/docker-buildkite-plugin#v5": {"image": "node"}},
                {"github.com/acme/x-buildkite-plugin": null},
            ])
        );
    }
}
