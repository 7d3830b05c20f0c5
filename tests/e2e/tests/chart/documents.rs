//! The commands and values that people are shown are accepted.

use bk_e2e::helm::{CHART, KUBE_VERSION};
use serde_json::Value;

use crate::helm;

const README: &str = include_str!("../../../../README.md");
const GUIDE: &str = include_str!("../../../../docs/installing.md");

/// The bodies of a document's blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let bodies = document.split(&begin).skip(1).filter_map(|rest| rest.split("```").next());
    bodies.map(ToOwned::to_owned).collect()
}

/// The words after `helm install` or `helm upgrade` in a document.
fn commands(document: &str) -> Vec<Vec<String>> {
    let text = blocks(document, "sh").concat().replace("\\\n", " ");
    let lines = text.lines().map(str::trim);
    let helm =
        lines.filter_map(|line| line.strip_prefix("helm install ").or(line.strip_prefix("helm upgrade ")));
    helm.map(|line| line.split_whitespace().map(ToOwned::to_owned).collect()).collect()
}

#[test]
fn commands_with_helm_are_accepted() {
    let helm = helm();
    let directory = tempfile::tempdir().unwrap();
    let values = directory.path().join("my-values.yaml");
    std::fs::write(&values, &blocks(GUIDE, "yaml")[0]).unwrap();
    let mut seen = 0;
    for command in [README, GUIDE].into_iter().flat_map(commands) {
        let mut words = vec!["template".to_owned(), KUBE_VERSION.to_owned()];
        for word in command {
            match word.as_str() {
                "charts/buildkite-operator" => words.push(CHART.to_owned()),
                "my-values.yaml" => words.push(values.display().to_string()),
                // What only a cluster understands.
                "--wait" | "--reuse-values" => {}
                _ => words.push(word),
            }
        }
        helm.succeed(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 3, "the README installs, the guide installs and upgrades");
}

#[test]
fn values_are_accepted() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../charts/buildkite-operator/values.schema.json"))
            .unwrap();
    let known = |block: &Value| {
        let keys = block.as_object().filter(|keys| !keys.is_empty());
        keys.is_some_and(|keys| keys.keys().all(|key| schema["properties"].get(key).is_some()))
    };
    let mut seen = 0;
    for document in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap() {
        let Ok(document) = std::fs::read_to_string(document.unwrap().path()) else { continue };
        let blocks = blocks(&document, "yaml").into_iter();
        for values in blocks.filter(|block| serde_saphyr::from_str(block).is_ok_and(|block| known(&block))) {
            helm().render(&values).unwrap_or_else(|error| panic!("{values}: {error:#}"));
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen} blocks are values");
}
