//! What the documents say is what the programs do: examples are accepted, and nothing is left out.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use bk_api::{BuildJob, config::Config, crds};
use bk_plan::{
    pod::{self, PodSettings},
    surroundings::Surroundings,
};
use serde_json::{Value, json};

use crate::{blocks::fenced, operator, output};

const README: &str = include_str!("../../../../README.md");
const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

/// The fenced blocks of a language in a document.
pub(crate) fn blocks(document: &str, language: &str) -> Vec<String> {
    let blocks = fenced(document).into_iter().filter(|block| block.language == language);
    blocks.map(|block| block.body).collect()
}

/// What the shell commands of a document hand to `kubectl apply -f -`.
fn applied(document: &str) -> Vec<String> {
    let blocks = blocks(document, "sh");
    let inputs = blocks.iter().flat_map(|block| block.split("<<'END'\n").skip(1));
    inputs.filter_map(|input| Some(input.split_once("\nEND\n")?.0.to_owned())).collect()
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Checks that a page has a table with every field and its default.
pub(crate) fn check_defaults(page: &str, defaults: &Value) {
    for (field, value) in defaults.as_object().expect("a configuration is an object") {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{field}` |")));
        let default =
            row.and_then(|row| row.split('|').nth(2)).unwrap_or_else(|| panic!("{field} is missing"));
        assert_eq!(&yaml(default.trim().trim_matches('`')), value, "{field}");
    }
}

/// What pods are made with.
pub(crate) fn settings() -> PodSettings {
    PodSettings::of(&Config::default(), "http://buildkite", "shim".to_owned())
}

/// The pod of a BuildJob, which must have nothing in it that is not understood.
fn render(manifest: &Value) {
    let job: BuildJob = serde_json::from_value(manifest.clone()).expect("a BuildJob");
    pod::render(&job, 0, &Surroundings::default(), &settings()).expect("it becomes a pod");
    let understood = serde_json::to_value(&job.spec).expect("specs serialise");
    assert!(includes(&understood, &manifest["spec"]), "{manifest:#} is understood as {understood:#}");
}

/// Whether `all` has everything that `part` has; defaults may be more.
fn includes(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(key, value)| all.get(key).is_some_and(|own| includes(own, value)))
        }
        (all, part) => all == part,
    }
}

pub(crate) fn read_config(config_map: &Value) -> Config {
    let data: BTreeMap<String, String> =
        serde_json::from_value(config_map["data"].clone()).expect("data of a ConfigMap");
    Config::from_data(&data).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn build_jobs_in_the_readme_become_pods() {
    let manifests: Vec<Value> = applied(README).iter().map(|text| yaml(text)).collect();
    assert_eq!(manifests.len(), 2, "a standalone one and one of Buildkite");
    manifests.iter().for_each(render);
}

#[test]
fn steps_in_the_readme_become_pods() {
    let pipelines = blocks(README, "yaml").into_iter().filter(|block| block.contains("steps:"));
    let mut seen = 0;
    for pipeline in pipelines {
        for step in yaml(&pipeline)["steps"].as_array().expect("steps") {
            let plugin = &step["plugins"][0]["kubernetes"];
            let mut spec = json!({ "command": step["command"].as_str().unwrap_or("make") });
            if plugin.is_object() {
                spec["kubernetes"] = plugin.clone();
                seen += 1;
            }
            render(&json!({ "metadata": { "name": "step" }, "spec": spec }));
        }
    }
    assert_eq!(seen, 1, "one step has the plugin");
}

#[test]
fn configurations_are_accepted() {
    let overlay = blocks(README, "yaml").into_iter().find(|block| block.contains("kind: Kustomization"));
    let overlay = yaml(&overlay.expect("the README has an overlay"));
    let patch = yaml(overlay["patches"][0]["patch"].as_str().expect("a patch"));
    assert_eq!(read_config(&patch).pods.agent_image, "registry.example.com/ci/buildkite-agent:dev");

    let reference = blocks(CONFIGURATION, "yaml").into_iter().next().expect("the reference has an example");
    let config = read_config(&yaml(&reference));
    assert_eq!(config.pods, Config::default().pods, "the example shows the defaults of pods");
}

/// Everything in backquotes.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_setting_is_in_the_reference() {
    for key in ["job_spawner_config", "pod_config", "repo_syncer_config", "validation_config"] {
        let data = BTreeMap::from([(key.to_owned(), "nonsense: 1".to_owned())]);
        let refusal = Config::from_data(&data).unwrap_err().to_string();
        let (_, expected) = refusal.split_once("expected one of").expect("it lists what it knows");
        // The list ends the first line; what follows points at the place.
        let known: Vec<_> = expected.lines().next().unwrap_or_default().trim().split(", ").collect();
        assert!(known.len() > 3, "{refusal}");
        for setting in known {
            assert!(CONFIGURATION.contains(&format!("| – `{setting}` |")), "{setting}");
        }
    }
}

#[test]
fn every_flag_and_variable_is_in_the_reference() {
    let help = output(operator().args(["run", "--help"]));
    let flags = help.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help");
    let variables = help.split("[env: ").skip(1).filter_map(|rest| rest.split(']').next());
    let mut seen = 0;
    for name in flags.chain(variables) {
        assert!(CONFIGURATION.contains(&format!("`{name}`")), "{name}");
        seen += 1;
    }
    assert!(seen > 15, "the help lists flags and variables: {help}");
}

#[test]
fn every_phase_is_in_the_reference() {
    let crd = serde_json::to_value(crds::all().remove(0)).expect("definitions serialise");
    let status =
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    for word in status["phase"]["enum"].as_array().expect("the schema lists the words") {
        let word = word.as_str().unwrap_or_default();
        assert!(quoted(CONFIGURATION).any(|text| text == word), "{word}");
    }
}

#[test]
fn every_label_and_annotation_is_in_the_reference() {
    let names = include_str!("../../../api/src/names.rs");
    let constants = names
        .lines()
        .filter(|line| line.starts_with("pub const LABEL_") || line.starts_with("pub const ANNOTATION_"));
    let mut seen = 0;
    for constant in constants {
        let value = constant.split('"').nth(1).expect("a constant is a string on one line");
        assert!(CONFIGURATION.contains(&format!("`{value}")), "{value}");
        seen += 1;
    }
    assert!(seen > 10, "names.rs has labels and annotations");
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)).into();
    for directory in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root.join(directory)).unwrap();
        documents.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let found = file.contains("://") || document.with_file_name(file).exists();
            assert!(found, "{} links to {target}", document.display());
        }
    }
}
