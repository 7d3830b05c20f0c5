//! Plugins in the one form that agents and stack controllers both read.

use serde_json::{Value as Json, json};

use super::PipelineProblem;
use super::node::{Node, Value};

/// Reads `plugins:` in any of its spellings into single-key objects with canonical names.
pub(crate) fn plugins(node: &Node) -> Result<Vec<Json>, PipelineProblem> {
    match &node.value {
        Value::Null => Ok(Vec::new()),
        Value::Map(entries) => {
            Ok(entries.iter().map(|(name, config)| plugin(name, &config.to_json())).collect())
        }
        Value::List(items) => items.iter().map(entry).collect(),
        _ => Err(PipelineProblem::at(node, format!("plugins must be a list or a map, not {}", node.kind()))),
    }
}

fn entry(node: &Node) -> Result<Json, PipelineProblem> {
    match &node.value {
        Value::Text(name) => Ok(plugin(name, &Json::Null)),
        Value::Map(entries) if entries.len() == 1 => {
            let (name, config) = &entries[0];
            Ok(plugin(name, &config.to_json()))
        }
        Value::Map(entries) => Err(PipelineProblem::at(
            node,
            format!("each plugin is one name with its settings, but this entry has {} names", entries.len()),
        )),
        _ => Err(PipelineProblem::at(node, format!("a plugin is a name or a map, not {}", node.kind()))),
    }
}

fn plugin(name: &str, config: &Json) -> Json {
    json!({ canonical_name(name): config })
}

/// `docker#v5` → `github.com/buildkite-plugins/docker-buildkite-plugin#v5`.
fn canonical_name(name: &str) -> String {
    let (path, reference) = match name.split_once('#') {
        Some((path, reference)) => (path, format!("#{reference}")),
        None => (name, String::new()),
    };
    let stays = path.contains("://") || path.starts_with(['.', '/', '\\']) || path.contains('@');
    match path.split('/').collect::<Vec<_>>()[..] {
        _ if stays => name.to_owned(),
        [plugin] => format!("github.com/buildkite-plugins/{plugin}-buildkite-plugin{reference}"),
        [owner, plugin] => format!("github.com/{owner}/{plugin}-buildkite-plugin{reference}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("docker#v5", "github.com/buildkite-plugins/docker-buildkite-plugin#v5")]
    #[case("kubernetes", "github.com/buildkite-plugins/kubernetes-buildkite-plugin")]
    #[case("acme/thing#main", "github.com/acme/thing-buildkite-plugin#main")]
    #[case("github.com/acme/thing#v1", "github.com/acme/thing#v1")]
    #[case("https://git.example/thing.git#v1", "https://git.example/thing.git#v1")]
    #[case("./.buildkite/plugins/mine", "./.buildkite/plugins/mine")]
    #[case("/opt/plugins/mine", "/opt/plugins/mine")]
    #[case("git@github.com:acme/thing.git#v1", "git@github.com:acme/thing.git#v1")]
    fn names(#[case] written: &str, #[case] canonical: &str) {
        assert_eq!(canonical_name(written), canonical);
    }

    #[test]
    fn every_spelling_gives_single_key_objects() {
        let expected = vec![
            json!({"github.com/buildkite-plugins/a-buildkite-plugin#v1": null}),
            json!({"github.com/buildkite-plugins/b-buildkite-plugin#v2": {"x": 1}}),
        ];
        for yaml in ["- a#v1\n- b#v2: {x: 1}\n", "a#v1: ~\nb#v2: {x: 1}\n"] {
            assert_eq!(plugins(&Node::from_yaml(yaml).unwrap()).unwrap(), expected);
        }
    }
}
