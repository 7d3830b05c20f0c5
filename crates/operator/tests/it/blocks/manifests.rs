//! YAML in documents: manifests, pipelines, the operator's configuration, values of the chart, and parts of them.

use std::collections::BTreeMap;

use bk_api::{
    BuildEnvironment, BuildEnvironmentSpec, BuildJob, BuildJobSpec, RepoMirror,
    config::{Config, PodConfig, ValuesSchema, unknown_field},
};
use bk_plan::{
    intake::{self, Candidate, JobDetails},
    pod::{self, PodSettings},
    surroundings::{Surroundings, wanted},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            ConfigMap, LimitRange, PersistentVolumeClaim, PodTemplate, ResourceQuota, Secret, Service,
            ServiceAccount,
        },
        networking::v1::NetworkPolicy,
        scheduling::v1::PriorityClass,
    },
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::{Map, Value, json};

use super::Block;

/// Objects of others, whose definitions are not here: what is looked at is that they are of the version that is meant.
const FOREIGN: [(&str, &str); 5] = [
    ("ClusterConfig", "eksctl.io/v1alpha5"),
    ("ComputeClass", "cloud.google.com/v1"),
    ("EC2NodeClass", "karpenter.k8s.aws/v1"),
    ("Kustomization", "kustomize.config.k8s.io/v1beta1"),
    ("NodePool", "karpenter.sh/v1"),
];

type Checked = Result<(), String>;

/// What a document shows, for those of its blocks that refer to it.
#[derive(Default)]
pub(super) struct Shown {
    found: Surroundings,
    /// The last configuration with resource classes.
    config: Config,
}

impl Shown {
    /// What these blocks show; what is wrong with them is found elsewhere.
    pub(super) fn of(blocks: &[Block]) -> Self {
        let mut shown = Self::default();
        for manifest in blocks
            .iter()
            .filter(|block| block.language == "yaml")
            .flat_map(|block| parse(&block.body))
            .flatten()
        {
            match manifest["kind"].as_str() {
                Some("BuildEnvironment") => {
                    if let Ok(environment) = serde_json::from_value::<BuildEnvironment>(manifest) {
                        let name = environment.metadata.name.unwrap_or_default();
                        shown.found.environments.insert(name, Some(environment.spec));
                    }
                }
                Some("ConfigMap") => shown.remember(&data(&manifest["data"])),
                Some("PodTemplate") => {
                    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let template = serde_json::from_value(manifest["template"].clone()).ok();
                    shown.found.pod_templates.insert(name, template);
                }
                None => shown.remember(&data(&manifest)),
                _ => {}
            }
        }
        shown
    }

    fn remember(&mut self, data: &BTreeMap<String, String>) {
        let config = Config::from_data(data).unwrap_or_default();
        if !config.resource_classes.is_empty() {
            self.config = config;
        }
    }

    /// That a job becomes a pod. Environments that the document does not show are made up.
    fn render(&self, job: &BuildJob) -> Checked {
        let mut found = self.found.clone();
        let missing = wanted(job, &found);
        let made_up =
            || BuildEnvironmentSpec { image: "golang:1.25".to_owned(), ..BuildEnvironmentSpec::default() };
        found.environments.extend(missing.environments.into_iter().map(|name| (name, Some(made_up()))));
        let settings = PodSettings::of(&self.config, "https://agent.buildkite.com/v3", "shim".to_owned());
        pod::render(job, 0, &found, &settings).map(drop).map_err(|error| error.to_string())
    }
}

/// The documents of a block.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    let documents = text.split("---\n").filter(|text| !text.trim().is_empty());
    documents.map(|text| serde_saphyr::from_str(text).map_err(|error| error.to_string())).collect()
}

/// The keys of a configuration as the ConfigMap has them: as text.
fn data(keys: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    keys.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

/// Checks every document of a block.
pub(super) fn check(text: &str, shown: &Shown) -> Checked {
    // A pod that a step becomes is compared with that pod where it is shown.
    if text.starts_with("# pod\n") {
        return parse(text).map(drop);
    }
    parse(text)?.iter().try_for_each(|document| match document["kind"].as_str() {
        Some(kind) => manifest(kind, document, shown),
        None => fragment(document, shown),
    })
}

fn manifest(kind: &str, manifest: &Value, shown: &Shown) -> Checked {
    match kind {
        "BuildJob" => shown.render(&of_kind::<BuildJob>(manifest)?),
        "BuildEnvironment" => of_kind::<BuildEnvironment>(manifest).map(drop),
        "RepoMirror" => of_kind::<RepoMirror>(manifest).map(drop),
        "ConfigMap" if manifest["metadata"]["name"] == bk_api::config::CONFIG_MAP => {
            configuration(&manifest["data"])
        }
        "ConfigMap" => of_kind::<ConfigMap>(manifest).map(drop),
        "Deployment" => of_kind::<Deployment>(manifest).map(drop),
        "LimitRange" => of_kind::<LimitRange>(manifest).map(drop),
        "NetworkPolicy" => of_kind::<NetworkPolicy>(manifest).map(drop),
        "PersistentVolumeClaim" => of_kind::<PersistentVolumeClaim>(manifest).map(drop),
        "PodTemplate" => of_kind::<PodTemplate>(manifest).map(drop),
        "PriorityClass" => of_kind::<PriorityClass>(manifest).map(drop),
        "ResourceQuota" => of_kind::<ResourceQuota>(manifest).map(drop),
        "Secret" => of_kind::<Secret>(manifest).map(drop),
        "Service" => of_kind::<Service>(manifest).map(drop),
        "ServiceAccount" => of_kind::<ServiceAccount>(manifest).map(drop),
        _ => match FOREIGN.iter().find(|(foreign, _)| *foreign == kind) {
            Some((_, version)) if manifest["apiVersion"] == *version => {
                // What a patch of ours says is ours again.
                let patches = manifest["patches"].as_array().into_iter().flatten();
                patches.filter_map(|patch| patch["patch"].as_str()).try_for_each(|patch| check(patch, shown))
            }
            _ => Err(format!("nobody knows a {kind} of {}", manifest["apiVersion"])),
        },
    }
}

/// Reads an object. All that it says must be there afterwards.
fn of_kind<T: DeserializeOwned + Serialize>(given: &Value) -> Result<T, String> {
    let object: T = serde_json::from_value(given.clone()).map_err(|error| error.to_string())?;
    match unknown_field(given, &object) {
        None => Ok(object),
        Some(field) => Err(format!("unknown field {field}")),
    }
}

fn configuration(keys: &Value) -> Checked {
    Config::from_data(&data(keys)).map(drop).map_err(|error| error.to_string())
}

/// Something that is no object of the cluster's: known by its keys.
fn fragment(given: &Value, shown: &Shown) -> Checked {
    let keys: Vec<&str> = given.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    let all_in =
        |known: &Map<String, Value>| !keys.is_empty() && keys.iter().all(|key| known.contains_key(*key));
    let schema = ValuesSchema::new();
    let properties =
        |name: &str| schema.definitions[name]["properties"].as_object().cloned().unwrap_or_default();
    let values: Value =
        serde_json::from_str(include_str!("../../../../../charts/buildkite-operator/values.schema.json"))
            .map_err(|error| error.to_string())?;
    if given["steps"].is_array() {
        return pipeline(given, shown);
    }
    if schema.config["properties"].as_object().is_some_and(all_in) {
        return configuration(given);
    }
    if values["properties"].as_object().is_some_and(all_in) {
        // The chart's own tests hand it to Helm.
        return configuration(&given["config"]);
    }
    // Prometheus itself reads it in the end-to-end tests.
    if keys == ["scrape_configs"] {
        return Ok(());
    }
    let spec = serde_json::from_value::<BuildJobSpec>(given.clone());
    if let Some(spec) = spec.ok().filter(|spec| unknown_field(given, spec).is_none()) {
        let command = spec.command.clone().or_else(|| Some("make".to_owned()));
        return shown.render(&BuildJob::new("part", BuildJobSpec { command, ..spec }));
    }
    if all_in(&properties("PodConfig")) {
        return of_kind::<PodConfig>(given).map(drop);
    }
    Err(format!("nobody knows what this is: its keys are {}", keys.join(", ")))
}

/// That each step becomes the pod that the operator would make of it.
fn pipeline(given: &Value, shown: &Shown) -> Checked {
    let defaults = given["env"].as_object().cloned().unwrap_or_default();
    let groups = given["steps"].as_array().into_iter().flatten();
    let steps =
        groups.flat_map(|step| step["steps"].as_array().cloned().unwrap_or_else(|| vec![step.clone()]));
    for step in
        steps.filter(|step| step.is_object() && step.get("wait").is_none() && step.get("trigger").is_none())
    {
        let own = step["env"].as_object().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut env: BTreeMap<String, String> =
            defaults.iter().chain(&own).map(|(name, value)| (name.clone(), text(value))).collect();
        if let Some(plugins) = step.get("plugins") {
            env.insert("BUILDKITE_PLUGINS".to_owned(), plugins.to_string());
        }
        if let Some(image) = step["image"].as_str() {
            env.insert("BUILDKITE_IMAGE".to_owned(), image.to_owned());
        }
        let details = JobDetails { env, command: step["command"].as_str().unwrap_or_default().to_owned() };
        let agents = [&given["agents"], &step["agents"]].into_iter().filter_map(Value::as_object).flatten();
        let candidate = Candidate {
            uuid: "0198f0a0-0000-4000-8000-000000000001".to_owned(),
            pipeline: None,
            priority: 0,
            scheduled_at: Timestamp::UNIX_EPOCH,
            rules: agents.map(|(key, value)| format!("{key}={}", text(value))).collect(),
        };
        let job = intake::build_job(&candidate, &Config::default().spawner.main_queue(), "ci", &details);
        let job = intake::complete(&job, &details, &[]).map_err(|error| error.to_string())?;
        shown.render(&job).map_err(|error| format!("{error} in {}", json!(step)))?;
    }
    Ok(())
}
