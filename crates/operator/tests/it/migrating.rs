//! docs/migrating.md: its examples become the pods it shows, and it names what there is.

use bk_plan::{pod, surroundings::Surroundings};
use serde_json::{Value, json};

use crate::documents::{blocks, quoted, read_config, settings, yaml};

const MIGRATING: &str = include_str!("../../../../docs/migrating.md");
const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");

/// The pod spec of a step with the plugin, as JSON, or what is wrong with it.
fn pod_of(command: &str, plugin: &Value) -> Result<Value, String> {
    let job = json!({
        "metadata": { "name": "step" },
        "spec": {
            "buildkite": { "jobUUID": "0198f0a0-0000-7000-8000-000000000001" },
            "command": command,
            "kubernetes": plugin,
        },
    });
    let job = serde_json::from_value(job).expect("a BuildJob");
    let pod =
        pod::render(&job, 0, &Surroundings::default(), &settings()).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(pod.spec).expect("pods serialise"))
}

/// Whether `all` has what `part` shows: named elements of lists are found by name, and null is nothing.
fn shows(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(key, part)| shows(all.get(key).unwrap_or(&Value::Null), part))
        }
        (Value::Array(all), Value::Array(part)) if part.iter().all(|item| item.get("name").is_some()) => {
            part.iter().all(|part| all.iter().any(|item| item["name"] == part["name"] && shows(item, part)))
        }
        (all, part) => all == part,
    }
}

#[test]
fn steps_become_the_pods_that_are_shown() {
    let blocks = blocks(MIGRATING, "yaml");
    let mut seen = 0;
    for (step, shown) in
        blocks.iter().zip(blocks.iter().skip(1)).filter(|(step, _)| step.starts_with("steps:"))
    {
        assert!(shown.starts_with("# pod\n"), "a step is followed by its pod:\n{step}");
        let step = &yaml(step)["steps"][0];
        let command = step["command"].as_str().unwrap_or_default();
        let pod = pod_of(command, &step["plugins"][0]["kubernetes"]).expect("it becomes a pod");
        let shown = yaml(shown);
        assert!(shows(&pod, &shown), "{shown:#} is not in {pod:#}");
        seen += 1;
    }
    assert_eq!(seen, 4, "steps with their pods");
}

#[test]
fn the_configuration_is_accepted() {
    let example = blocks(MIGRATING, "yaml").into_iter().find(|block| block.contains("kind: ConfigMap"));
    let config = read_config(&yaml(&example.expect("there is an example")));
    assert_eq!(config.spawner.max_in_flight, 50);
    assert!(config.pods.pod_spec_patch.is_some());
}

#[test]
fn settings_are_those_of_the_reference() {
    let mut seen = 0;
    for name in quoted(MIGRATING) {
        let setting = ["pod_config.", "job_spawner_config."].iter().find_map(|key| name.strip_prefix(key));
        if let Some(setting) = setting {
            assert!(CONFIGURATION.contains(&format!("| – `{setting}` |")), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen} settings are named");
}

#[test]
fn every_key_of_the_plugin_is_there() {
    let refusal = pod_of("make", &json!({ "nonsense": 1 })).unwrap_err();
    let (_, known) = refusal.split_once("known: ").expect("it lists what it knows");
    let known: Vec<_> = known.split(", ").collect();
    assert!(known.len() > 10, "{refusal}");
    for key in known {
        assert!(MIGRATING.contains(&format!("| `{key}` |")), "{key}");
    }
}

#[test]
fn the_error_that_is_quoted_is_the_one_that_comes() {
    let refusal = pod_of("make", &json!({ "podSpecPach": {} })).unwrap_err();
    assert!(MIGRATING.contains(&format!("``{refusal}``")), "{refusal}");
}
