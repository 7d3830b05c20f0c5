//! docs/reference: every setting and every field, written from the types.

use std::{fs, path::PathBuf};

use bk_api::{config::ValuesSchema, crds};
use rstest::rstest;
use serde_json::{Map, Value};

/// Set to write the pages anew.
const WRITE: &str = "WRITE_DOCS";
/// What Kubernetes' own types are called.
const KUBERNETES: &str = "io.k8s.";
/// Deep enough for every type of ours, none of which contains itself.
const DEPTH: usize = 5;

/// Types by name, to which schemas refer.
#[derive(Clone, Copy)]
struct Types<'a>(&'a Map<String, Value>);

impl<'a> Types<'a> {
    /// Adds a row for each field of an object at `path`.
    fn fields(self, object: &'a Value, path: &str, depth: usize, rows: &mut Vec<String>) {
        for (name, field) in object["properties"].as_object().into_iter().flatten() {
            let required =
                object["required"].as_array().is_some_and(|all| all.iter().any(|required| required == name));
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let (schema, kind) = self.resolve(field);
            rows.push(row(&path, &kind, field, schema, required));
            if depth < DEPTH && !kind.contains("Kubernetes") {
                let (inner, path) = self.inner(schema, path);
                self.fields(inner, &path, depth + 1, rows);
            }
        }
    }

    /// What a schema means once references and choices with null are out of the way, and what to call it.
    fn resolve(self, schema: &'a Value) -> (&'a Value, String) {
        let options = ["anyOf", "allOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
        let chosen = options.and_then(|all| all.iter().find(|one| one.get("$ref").is_some()));
        let reference = schema["$ref"].as_str().or_else(|| chosen?["$ref"].as_str());
        let name = reference.and_then(|reference| reference.strip_prefix("#/$defs/"));
        match name.and_then(|name| Some((name, self.0.get(name)?))) {
            Some((name, _)) if name.starts_with(KUBERNETES) => {
                (schema, format!("Kubernetes' {}", name.rsplit('.').next().unwrap_or(name)))
            }
            Some((_, definition)) => (definition, self.kind(definition)),
            None => (schema, self.kind(schema)),
        }
    }

    fn kind(self, schema: &'a Value) -> String {
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(many) => {
                many.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect()
            }
            _ => Vec::new(),
        };
        match types[..] {
            ["array"] => format!("list of {}", self.resolve(&schema["items"]).1),
            ["object"] if schema["additionalProperties"].is_object() => {
                format!("map of {}", self.resolve(&schema["additionalProperties"]).1)
            }
            [] if !choices(schema).is_empty() => "string".to_owned(),
            [] => "any".to_owned(),
            _ => types.join(" or "),
        }
    }

    /// The object whose fields are to be listed below a field: itself, or what its list or map holds.
    fn inner(self, schema: &'a Value, path: String) -> (&'a Value, String) {
        if schema["items"].is_object() {
            (self.resolve(&schema["items"]).0, format!("{path}[]"))
        } else if schema["additionalProperties"].is_object() {
            (self.resolve(&schema["additionalProperties"]).0, format!("{path}.*"))
        } else {
            (schema, path)
        }
    }

    /// All fields of an object, as a table.
    fn table(self, object: &'a Value) -> String {
        let mut rows = Vec::new();
        self.fields(object, "", 0, &mut rows);
        format!("| field | type | default | meaning |\n|---|---|---|---|\n{}\n", rows.join("\n"))
    }
}

/// The row of a field whose own schema may refer to another.
fn row(path: &str, kind: &str, field: &Value, schema: &Value, required: bool) -> String {
    let described = [&field["description"], &schema["description"]].into_iter().find_map(Value::as_str);
    let description = described.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let choices = choices(schema);
    let about = if choices.is_empty() { description } else { format!("{description} One of {choices}.") };
    let default = match &field["default"] {
        Value::Null if required => "required".to_owned(),
        // The fields of an object tell theirs.
        Value::Null | Value::Object(_) => String::new(),
        default => format!("`{default}`"),
    };
    format!("| `{path}` | {kind} | {default} | {} |", about.trim().replace('|', "\\|"))
}

/// The words that a schema allows, if it lists them.
fn choices(schema: &Value) -> String {
    let listed = schema["enum"].as_array().into_iter().flatten();
    let apart = schema["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
    let words = listed.chain(apart).filter_map(Value::as_str).filter(|word| !word.is_empty());
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

const NOTE: &str = "<!-- Written from the types: see docs/development.md, \"Generated files\". -->\n";

/// Every setting of the configuration.
fn settings() -> String {
    let ValuesSchema { config, definitions } = ValuesSchema::new();
    let definitions = definitions.as_object().expect("definitions are an object");
    let begin = format!(
        "# Settings\n\n{NOTE}\nEvery setting of the operator, by the key of the ConfigMap `buildkite-operator-config` that it is in, or of \
         `config` in the chart's values. `[]` stands for each element of a list, `.*` for each entry of a map. \
         [Configuration](../configuration.md) tells what they are for.\n"
    );
    let keys = config["properties"].as_object().expect("the configuration has keys");
    let sections = keys.iter().map(|(key, schema)| {
        let types = Types(definitions);
        let (resolved, _) = types.resolve(schema);
        // What is said of a key begins with it.
        let said = resolved["description"].as_str().and_then(|text| text.split_once(": "));
        let about = said.map(|(_, about)| format!("{}\n\n", capital(about))).unwrap_or_default();
        let (inner, _) = types.inner(resolved, String::new());
        let fields =
            if inner["properties"].is_object() { types.table(inner) } else { "A string.\n".to_owned() };
        format!("\n## `{key}`\n\n{about}{fields}")
    });
    begin + &sections.collect::<String>()
}

/// The text with a capital letter at its beginning.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Every field of a kind of objects.
fn kind(name: &str) -> String {
    let crd = crds::all().into_iter().find(|crd| crd.spec.names.kind == name).expect("there is such a kind");
    let crd = serde_json::to_value(crd).expect("definitions serialise");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let none = Map::new();
    let begin = format!(
        "# {name}\n\n{NOTE}\nEvery field of a {name}, `apiVersion: {}/{}`; `kubectl explain {}` tells the same. `[]` stands for each \
         element of a list.\n",
        crd["spec"]["group"].as_str().unwrap_or_default(),
        crd["spec"]["versions"][0]["name"].as_str().unwrap_or_default(),
        crd["spec"]["names"]["singular"].as_str().unwrap_or_default(),
    );
    let parts =
        ["spec", "status"].map(|part| format!("\n## `{part}`\n\n{}", Types(&none).table(&schema[part])));
    begin + &parts.concat()
}

#[rstest]
#[case("configuration.md", settings())]
#[case("buildjob.md", kind("BuildJob"))]
#[case("buildenvironment.md", kind("BuildEnvironment"))]
#[case("repomirror.md", kind("RepoMirror"))]
fn the_reference_is_what_the_types_say(#[case] name: &str, #[case] expected: String) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&file).unwrap_or_default() == expected,
        "docs/reference/{name} is out of date; run: {WRITE}=1 cargo test -p buildkite-operator --test it reference"
    );
}

/// Somebody has said what each of them is for.
#[test]
fn every_setting_has_a_meaning() {
    let page = settings();
    let silent: Vec<_> =
        page.lines().filter(|line| line.starts_with("| `") && line.ends_with("|  |")).collect();
    assert!(silent.is_empty(), "{silent:#?}");
}
