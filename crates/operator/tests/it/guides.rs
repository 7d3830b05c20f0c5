//! The guides to BuildJobs, BuildEnvironments and nodes: what they show works, and no field is left out.

use bk_api::{
    BuildEnvironment, BuildJob,
    config::{Config, ResourceClasses},
    crds,
};
use bk_plan::{
    pod::{self, PodSettings},
    surroundings::{Surroundings, wanted},
};
use serde_json::{Value, json};

use crate::documents::{blocks, quoted, read_config, settings, yaml};

const BUILD_JOBS: &str = include_str!("../../../../docs/build-jobs.md");
const CLUSTERS: &str = include_str!("../../../../docs/heterogeneous-clusters.md");

/// What a guide shows.
#[derive(Default)]
struct Guide {
    jobs: Vec<BuildJob>,
    found: Surroundings,
    /// The last configuration that has resource classes, and how many there are.
    config: Config,
    configurations: usize,
}

fn read(document: &str) -> Guide {
    let mut guide = Guide::default();
    for block in blocks(document, "yaml") {
        for text in block.split("---\n") {
            let manifest = yaml(text);
            match manifest["kind"].as_str() {
                Some("BuildJob") => guide.jobs.push(understood(&manifest)),
                Some("BuildEnvironment") => {
                    let environment: BuildEnvironment = understood(&manifest);
                    let name = environment.metadata.name.clone().expect("it has a name");
                    guide.found.environments.insert(name, Some(environment.spec));
                }
                Some("ConfigMap") => {
                    let config = read_config(&manifest);
                    guide.configurations += 1;
                    if !config.resource_classes.is_empty() {
                        guide.config = config;
                    }
                }
                None => guide.jobs.extend(steps(&manifest)),
                Some(other) => panic!("a guide shows a {other}"),
            }
        }
    }
    guide
}

/// Reads a manifest. All that it says must be there afterwards.
fn understood<T: serde::de::DeserializeOwned + serde::Serialize>(manifest: &Value) -> T {
    let object: T =
        serde_json::from_value(manifest.clone()).unwrap_or_else(|error| panic!("{error}: {manifest:#}"));
    let written = serde_json::to_value(&object).expect("it can be written as JSON");
    let lost = bk_api::config::unknown_field(&manifest["spec"], &written["spec"]);
    assert_eq!(lost, None, "{manifest:#}");
    object
}

/// The BuildJobs that the steps of a pipeline become.
fn steps(pipeline: &Value) -> Vec<BuildJob> {
    let steps =
        pipeline["steps"].as_array().unwrap_or_else(|| panic!("neither manifest nor pipeline: {pipeline:#}"));
    let job = |step: &Value| {
        let rules: Vec<_> = step["agents"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let uuid = "0198f0a0-0000-4000-8000-000000000001";
        let mut spec =
            json!({ "buildkite": { "jobUUID": uuid, "agentQueryRules": rules }, "command": step["command"] });
        if let Some(plugin) = step["plugins"][0].get("kubernetes") {
            spec["kubernetes"] = plugin.clone();
        }
        serde_json::from_value(json!({ "metadata": { "name": "step" }, "spec": spec })).expect("a BuildJob")
    };
    steps.iter().map(job).collect()
}

fn check(guide: &Guide) {
    let settings = PodSettings {
        config: guide.config.pods.clone(),
        resource_classes: guide.config.resource_classes.clone(),
        ..settings()
    };
    for job in &guide.jobs {
        let missing = wanted(job, &guide.found);
        assert!(
            missing.is_empty(),
            "the guide shows all that {:?} refers to: {missing:?}",
            job.metadata.name
        );
        pod::render(job, 0, &guide.found, &settings)
            .unwrap_or_else(|error| panic!("{:?}: {error}", job.metadata.name));
    }
}

#[test]
fn jobs_in_the_guide_to_build_jobs_become_pods() {
    let guide = read(BUILD_JOBS);
    assert_eq!((guide.jobs.len(), guide.found.environments.len()), (4, 3));
    check(&guide);
}

#[test]
fn jobs_in_the_guide_to_clusters_become_pods() {
    let guide = read(CLUSTERS);
    assert_eq!((guide.jobs.len(), guide.found.environments.len(), guide.configurations), (10, 2, 3));
    assert_ne!(guide.config.resource_classes, ResourceClasses::new());
    check(&guide);
}

#[test]
fn every_field_is_in_the_guide() {
    for crd in crds::all() {
        let crd = serde_json::to_value(crd).expect("definitions serialise");
        let schema =
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let fields = schema.as_object().expect("the spec has fields");
        assert!(fields.len() > 10);
        for field in fields.keys() {
            let rows = BUILD_JOBS.lines().filter(|line| line.starts_with("| `"));
            let mut named = rows.flat_map(|row| quoted(row.split(" | ").next().unwrap_or_default()));
            assert!(named.any(|name| name == field), "{field} of {}", crd["spec"]["names"]["kind"]);
        }
    }
}
