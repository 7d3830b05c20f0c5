//! What is made from the table: the list of options in `docs/pipelines.md`, and the plugin's `plugin.yml`.
//! `UPDATE=1 cargo test -p bk-plan options` writes both anew.

use std::{fmt::Write, fs, path::PathBuf};

use super::*;

const START: &str =
    "<!-- Made from crates/plan/src/options/table.rs: UPDATE=1 cargo test -p bk-plan options -->\n";
const END: &str = "<!-- End of what is made. -->\n";

const PLUGIN_HEAD: &str = "# Made from crates/plan/src/options/table.rs: UPDATE=1 cargo test -p bk-plan options
name: Buildkite Operator
description: Says how the Buildkite Operator runs a step on Kubernetes; on any other agent, runs the step there
author: https://github.com/buildkite-operator
requirements:
  - buildkite-operator
configuration:
  additionalProperties: false
  properties:
";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Compares a file with what is made, or writes it.
fn check(name: &str, made: impl Fn(&str) -> String) {
    let path = path(name);
    let written = fs::read_to_string(&path).unwrap_or_default();
    let expected = made(&written);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &expected).expect("the file can be written");
        return;
    }
    assert!(written == expected, "{name} is outdated: UPDATE=1 cargo test -p bk-plan options");
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text { .. } => "text".to_owned(),
        Kind::Name => "name".to_owned(),
        Kind::Directory => "absolute path".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Duration => "duration".to_owned(),
        Kind::Choice(words) => words.join(", "),
        Kind::Texts { .. } => "list of texts".to_owned(),
        Kind::Containers => "list of containers".to_owned(),
        Kind::Requirements => "list of requirements".to_owned(),
        Kind::Preferences => "list of preferences".to_owned(),
        Kind::Tolerations => "list of tolerations".to_owned(),
        Kind::Object => "object".to_owned(),
    }
}

fn table() -> String {
    let mut text = String::from(
        "| in the plugin | variable | value | example | field of the BuildJob | what it does |\n|---|---|---|---|---|---|\n",
    );
    for option in ALL {
        let StepOption { name, field, example, meaning, .. } = option;
        let (variable, kind) = (option.variable(), kind(option.kind));
        writeln!(text, "| `{name}` | `{variable}` | {kind} | `{example}` | `{field}` | {meaning} |")
            .expect("strings take text");
    }
    text
}

/// The schema of one option.
fn schema(kind: Kind) -> String {
    match kind {
        Kind::Text { .. } | Kind::Name | Kind::Directory | Kind::Duration => "type: string".to_owned(),
        Kind::Flag => "type: boolean".to_owned(),
        Kind::Choice(words) => format!("type: string\n      enum: [{}]", words.join(", ")),
        Kind::Texts { most } => {
            format!("type: [array, string]\n      maxItems: {most}\n      items:\n        type: string")
        }
        Kind::Containers | Kind::Requirements | Kind::Preferences | Kind::Tolerations => {
            "type: [array, string]\n      maxItems: 32\n      items:\n        type: [string, object]"
                .to_owned()
        }
        Kind::Object => "type: object".to_owned(),
    }
}

#[test]
fn the_list_of_options_is_up_to_date() {
    check("docs/pipelines.md", |written| {
        let (before, rest) = written.split_once(START).expect("the document has a place for the list");
        let (_, after) = rest.split_once(END).expect("and an end of it");
        format!("{before}{START}{}{END}{after}", table())
    });
}

#[test]
fn the_plugins_schema_is_up_to_date() {
    check("plugin/plugin.yml", |_| {
        let mut text = PLUGIN_HEAD.to_owned();
        for option in ALL {
            let StepOption { name, meaning, .. } = option;
            let meaning = json!(meaning);
            writeln!(text, "    {name}:\n      description: {meaning}\n      {}", schema(option.kind))
                .expect("strings take text");
        }
        text
    });
}

#[test]
fn the_plugins_schema_is_yaml_and_knows_every_option() {
    let text = fs::read_to_string(path("plugin/plugin.yml")).expect("the plugin has a schema");
    let document: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let properties = document["configuration"]["properties"].as_object().expect("it has properties");
    let mut known: Vec<_> = ALL.iter().map(|option| option.name).collect();
    known.sort_unstable();
    assert_eq!(properties.keys().map(String::as_str).collect::<Vec<_>>(), known);
}
