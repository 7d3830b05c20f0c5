//! `buildkite-operator lint`: what is wrong with pipelines and manifests.

use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{documents::blocks, operator, output};

const LINTING: &str = include_str!("../../../../docs/linting.md");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// What is printed about files of these names, in a directory of their own, and the exit status.
fn linted(files: &[(&str, &str)], args: &[&str]) -> (String, String, i32) {
    let directory = TempDir::new().expect("a directory of our own");
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is below the directory")).expect("a directory");
        std::fs::write(path, text).expect("it can be written");
    }
    let ended = operator().current_dir(directory.path()).arg("lint").args(args).assert();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let output = ended.get_output();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
}

/// The page shows a file, what is printed about it, and the same as JSON.
#[test]
fn the_page_shows_what_is_printed() {
    let pipeline = &blocks(LINTING, "yaml")[0];
    let shown = &blocks(LINTING, "text")[0];
    let (found, errors, status) = linted(&[("pipeline.yml", pipeline)], &["pipeline.yml"]);
    assert_eq!((&found, errors.as_str(), status), (shown, "", 1));

    let (found, _, status) = linted(&[("pipeline.yml", pipeline)], &["--output=json", "pipeline.yml"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(status, 1);
    assert_eq!(found.as_array().map(Vec::len), Some(shown.lines().count()));
    let object: Value = serde_json::from_str(&blocks(LINTING, "json")[0]).expect("JSON");
    assert_eq!(found[0], object);
}

#[rstest]
#[case::clean(&[("a.yml", "steps: [wait]\n")], &["a.yml"], "", 0)]
#[case::warnings_alone(
    &[("a.yml", "steps: [{command: a, depends_on: b}]\n")], &["a.yml"],
    "a.yml:1:34: warning: steps[0]: no step in this file has the key `b`\n", 0
)]
#[case::a_directory(
    &[(".buildkite/a.yml", "steps: [wiat]\n"), ("chart/values.yaml", "name: x\n"), ("chart/t.yaml", "{{ if }}\n")], &["."],
    "./.buildkite/a.yml:1:9: error: steps[0]: unknown step \"wiat\"\n", 1
)]
#[case::queues(
    &[("a.yml", "steps: [{command: a, agents: {queue: gpu}}]\n"), ("c", "job_spawner_config: '{queue: linux}'\n")],
    &["--config=c", "a.yml"],
    "a.yml:1:30: warning: the operator does not serve the queue `gpu`; it serves linux\n", 0
)]
#[case::environments_of_another_file(
    &[
        ("a.yml", "steps: [{command: a, env: {BK_OPERATOR_BUILD_ENVIRONMENT: go}}]\n"),
        ("e.yml", "apiVersion: buildkite-operator.dev/v1alpha1\nkind: BuildEnvironment\nmetadata: {name: go}\nspec: {image: golang}\n"),
        ("none.yml", ""),
    ],
    &["--with=none.yml", "a.yml", "e.yml"], "", 0
)]
fn its_exit_status_tells_errors_from_warnings(
    #[case] files: &[(&str, &str)],
    #[case] args: &[&str],
    #[case] expected: &str,
    #[case] status: i32,
) {
    assert_eq!(linted(files, args), (expected.to_owned(), String::new(), status));
}

#[test]
fn what_cannot_be_read_is_another_failure() {
    let expected = "error: cannot read none.yml: No such file or directory (os error 2)\n";
    assert_eq!(linted(&[], &["none.yml"]), (String::new(), expected.to_owned(), 2));
}

#[test]
fn standard_input_is_a_file_too() {
    let failure = operator().args(["lint", "-"]).write_stdin("steps: [wiat]").assert().code(1).stderr("");
    failure.stdout("-:1:9: error: steps[0]: unknown step \"wiat\"\n");
}

/// Whatever the project shows to others passes.
#[test]
fn the_projects_own_pipelines_pass() {
    let printed = output(operator().current_dir(root()).args(["lint", "examples", "deploy"]));
    assert_eq!(printed, "");
    let mut documents = vec!["README.md".into(), "plugin/README.md".into()];
    let pages = std::fs::read_dir(root().join("docs")).expect("documents");
    documents.extend(
        pages
            .map(|page| page.expect("a page").path())
            .filter(|path| path.is_file() && !path.ends_with("linting.md")),
    );
    let mut seen = 0;
    for document in documents {
        let text = std::fs::read_to_string(root().join(&document)).expect("a document");
        for block in blocks(&text, "yaml").iter().filter(|block| block.contains("steps:\n")) {
            let found = operator().args(["lint", "-"]).write_stdin(block.as_bytes()).assert().success();
            let found = String::from_utf8_lossy(&found.get_output().stdout).into_owned();
            assert_eq!(found, "", "{}:\n{block}", document.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn findings_are_objects_in_json() {
    let (found, _, status) = linted(&[("a.yml", "steps: [wiat]\n")], &["-ojson", "a.yml"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let message = "steps[0]: unknown step \"wiat\"";
    let expected = json!([{ "file": "a.yml", "line": 1, "column": 9, "level": "error", "message": message }]);
    assert_eq!((found, status), (expected, 1));
}

#[test]
fn findings_are_the_same_in_yaml() {
    let files = [("a.yml", "steps: [{comand: make}]\n")];
    let [json, yaml] = ["-ojson", "-oyaml"].map(|form| linted(&files, &[form, "a.yml"]).0);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[0]["fix"], json!({ "replace": "comand", "with": "command" }));
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).expect("YAML"), json);
}

#[test]
fn what_is_misspelt_is_mended_and_the_rest_is_printed() {
    let directory = TempDir::new().expect("a directory of our own");
    let file = directory.path().join("a.yml");
    std::fs::write(&file, "steps:\n- comand: make # all\n- wiat\n").expect("it can be written");
    let ended = operator().current_dir(directory.path()).args(["lint", "--fix", "a.yml"]).assert();
    ended.code(1).stderr("a.yml: mended\n").stdout("a.yml:3:3: error: steps[1]: unknown step \"wiat\"\n");
    let mended = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(mended, "steps:\n- command: make # all\n- wiat\n");
    let refused = operator().args(["lint", "--fix", "-"]).write_stdin("steps: [wait]").assert();
    refused.code(2).stderr("error: --fix writes files, and standard input is none\n");
}
