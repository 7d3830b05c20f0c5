//! Every field of BuildJobs, BuildEnvironments and the `kubernetes` plugin has a snapshot that shows what it does.

use std::{fs, path::Path};

use bk_api::crds;
use bk_plan::plugin::KubernetesPlugin;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Fields of which no snapshot shows the difference, and why not.
const EXCEPT: &[(&str, &str)] = &[
    ("buildkite", "it is who asks: the snapshots of whole pods have it"),
    ("command", "the snapshots of whole pods have it"),
    ("resourceClass", "the snapshot of a resource class has it"),
    ("environment.image", "there is none without: all snapshots of environments have it"),
];

/// Fields of Kubernetes' own types, which are not ours to show one by one.
const FOREIGN: &[&str] =
    &["resources", "securityContext", "podSpec", "gitCredentialsSecret", "gitMirrors.volume"];

/// The fields that the head of a snapshot shows as written.
fn written(kind: impl Fn(&str) -> bool) -> Vec<String> {
    let mut paths = Vec::new();
    for directory in ["decide", "environment", "plugin", "pod"] {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(directory).join("snapshots");
        for entry in fs::read_dir(&directory).expect("there are snapshots") {
            let path = entry.expect("it can be listed").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if kind(name) {
                let text = fs::read_to_string(&path).expect("it can be read");
                description(&text)
                    .lines()
                    .filter_map(object)
                    .for_each(|value| fields(&value, "", &mut paths));
            }
        }
    }
    paths
}

/// What was written for a snapshot.
fn description(snapshot: &str) -> String {
    let head = snapshot.split("---\n").nth(1).unwrap_or_default();
    let head: Value = serde_saphyr::from_str(head).expect("the head of a snapshot is YAML");
    head["description"].as_str().unwrap_or_default().to_owned()
}

/// A line as an object; it may lack its braces.
fn object(line: &str) -> Option<Value> {
    let line = line.trim();
    let text = if line.starts_with('{') { line.to_owned() } else { format!("{{ {line} }}") };
    serde_saphyr::from_str::<Value>(&text).ok().filter(Value::is_object)
}

/// The paths of everything that has a value.
fn fields(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| fields(value, &format!("{path}{key}."), paths));
        }
        _ => paths.push(path.trim_end_matches('.').to_owned()),
    }
}

/// The paths of all fields below a schema that have no fields of our own.
fn leaves(schema: &Value, path: &str) -> Vec<String> {
    let is_foreign = FOREIGN.iter().any(|name| path == *name || path.ends_with(&format!(".{name}")));
    match schema["properties"].as_object() {
        Some(properties) if !is_foreign => {
            let dot = if path.is_empty() { "" } else { "." };
            properties.iter().flat_map(|(name, inner)| leaves(inner, &format!("{path}{dot}{name}"))).collect()
        }
        _ => vec![path.to_owned()],
    }
}

/// Whether `path` is `field`, or a part of it.
fn is_in(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Fails if a field of a schema is neither written for a snapshot nor excepted. Exceptions of a kind begin with its name.
fn check(kind: &str, schema: &Value, written: &[String]) {
    let leaves = leaves(schema, "");
    assert!(leaves.len() > 15, "the schema has fields: {leaves:?}");
    let excepted = |field: &str| EXCEPT.iter().any(|(name, _)| is_in(&format!("{kind}{field}"), name));
    let missing: Vec<_> = leaves
        .iter()
        .filter(|field| !excepted(field) && !written.iter().any(|path| is_in(path, field)))
        .collect();
    assert!(missing.is_empty(), "no snapshot shows {missing:?} of {kind:?}: add a case, or a reason");
}

/// The spec of a custom resource.
fn spec(kind: &str) -> Value {
    let crds = serde_json::to_value(crds::all()).expect("definitions can be written");
    let found = crds.as_array().into_iter().flatten().find(|crd| crd["spec"]["names"]["kind"] == kind);
    let schema = &found.expect("there is one")["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"].clone()
}

#[test]
fn of_build_jobs() {
    let written =
        written(|name| !["environment-", "setting-", "config-"].iter().any(|kind| name.starts_with(kind)));
    check("", &spec("BuildJob"), &written);
}

#[test]
fn of_build_environments() {
    check("environment.", &spec("BuildEnvironment"), &written(|name| name.starts_with("environment-")));
}

#[test]
fn of_the_plugin() {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<KubernetesPlugin>();
    let written: Vec<String> = written(|_| true)
        .into_iter()
        .filter_map(|path| path.strip_prefix("kubernetes.").map(str::to_owned))
        .collect();
    check("plugin.", &schema.to_value(), &written);
}
