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
const METRICS: &str = include_str!("../../../../docs/metrics.md");
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
    assert_eq!((guide.jobs.len(), guide.found.environments.len()), (5, 4));
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
    // Mirrors have a guide of their own.
    for crd in crds::all().into_iter().filter(|crd| crd.spec.names.kind != "RepoMirror") {
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

/// A job's containers know the trace that they are part of, as the guide to it says.
#[test]
fn agents_join_the_trace_of_their_job() {
    let config = blocks(METRICS, "yaml").into_iter().next().expect("it shows a configuration");
    let config = read_config(&yaml(&config));
    let settings = PodSettings::of(&config, "http://buildkite", "shim".to_owned());
    let uuid = "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a";
    let job = json!({ "metadata": { "name": "a" }, "spec": { "buildkite": { "jobUUID": uuid }, "source": { "repo": "r" } } });
    let job: BuildJob = serde_json::from_value(job).expect("a BuildJob");
    let rendered = pod::render(&job, 0, &Surroundings::default(), &settings).expect("it becomes a pod");
    let containers = rendered.spec.expect("a pod has a spec").containers;
    let parents = containers.iter().flat_map(|container| container.env.iter().flatten());
    let parents: Vec<_> = parents.filter(|var| var.name == "BUILDKITE_TRACING_TRACEPARENT").collect();
    assert!(!parents.is_empty(), "{containers:#?}");
    for parent in parents {
        let value = parent.value.as_deref().unwrap_or_default();
        assert!(value.starts_with(&format!("00-{}-", uuid.replace('-', ""))), "{value}");
    }
}

/// Every rule that the guide shows is one, and its example is refused for the reason it gives.
#[test]
fn rules_of_the_guide_to_admission_do_what_it_says() {
    const ADMISSION: &str = include_str!("../../../../docs/admission.md");
    let config = read_config(&yaml(&blocks(ADMISSION, "yaml").remove(0)));
    let validation = &config.validation;
    assert_eq!((validation.rules.len(), validation.node_classes.len()), (3, 1));
    let job = |pipeline: &str, queue: &str, spec: Value| -> BuildJob {
        let mut spec = spec;
        let uuid = "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a";
        spec["buildkite"] = json!({"jobUUID": uuid, "queue": queue, "pipeline": pipeline});
        understood(&json!({"apiVersion": "buildkite-operator.dev/v1alpha1", "kind": "BuildJob",
            "metadata": {"name": "a", "namespace": "ci"}, "spec": spec}))
    };
    let refused = |job: &BuildJob| {
        let pod = pod::render(job, 0, &Surroundings::default(), &settings()).expect("it becomes a pod");
        bk_plan::admission::rules::refusal(job, Some(&pod), &Surroundings::default(), validation)
            .map(|verdict| verdict.message)
    };
    let gpu = json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}});
    assert_eq!(refused(&job("web", "gpu", gpu.clone())), None);
    let told = refused(&job("web", "default", gpu)).expect("it is refused");
    assert_eq!(told, "rules[1] of validation_config: GPUs are for the queue gpu");
    let told = refused(&job("payments-api", "gpu", json!({}))).expect("it is refused");
    assert_eq!(told, "rules[0] of validation_config: images come from registry.example.com");
}
