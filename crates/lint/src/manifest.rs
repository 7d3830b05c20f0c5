//! BuildJobs, BuildEnvironments, RepoMirrors and the operator's ConfigMap.

use std::sync::LazyLock;

use bk_api::{
    BuildEnvironment, BuildJob, BuildJobSpec,
    config::{CONFIG_MAP, Config},
    crds, spelling,
};
use bk_pipeline::node::Node;
use bk_plan::surroundings::Surroundings;
use k8s_openapi::{
    api::core::v1::PodTemplate,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::{
    Context, Finding, Strangers,
    pipeline::{place_of, several},
    schema, trial,
};

/// The group of all kinds of ours, and its one version.
const GROUP: &str = "buildkite-operator.dev";
const VERSION: &str = "buildkite-operator.dev/v1alpha1";

/// The schema of each kind, by name.
static SCHEMAS: LazyLock<Vec<(String, Json)>> = LazyLock::new(|| {
    let schema = |crd: &CustomResourceDefinition| {
        let version = crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        serde_json::to_value(version).ok()
    };
    let mut all: Vec<_> =
        crds::all().iter().filter_map(|crd| Some((crd.spec.names.kind.clone(), schema(crd)?))).collect();
    for (_, schema) in &mut all {
        // The definition leaves these to the API server.
        for known in ["apiVersion", "kind"] {
            schema["properties"][known] = serde_json::json!({ "type": "string" });
        }
        schema["properties"]["metadata"] = serde_json::json!({ "type": "object" });
    }
    all
});

/// Everything that is wrong with a manifest.
pub(crate) fn lint(document: &Node, context: &Context, strangers: Strangers) -> Vec<Finding> {
    let text = |key: &str| document.get(key).and_then(Node::scalar).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind == "ConfigMap" && name(document) == CONFIG_MAP {
        return config(document);
    }
    if version.split('/').next() != Some(GROUP) {
        // Somebody else's, or of Kubernetes' own.
        return Vec::new();
    }
    let Some((_, schema)) = SCHEMAS.iter().find(|(known, _)| *known == kind) else {
        let kinds = || SCHEMAS.iter().map(|(kind, _)| kind.as_str());
        let hint = match spelling::nearest(&kind, kinds()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("there are {}", kinds().collect::<Vec<_>>().join(", ")),
        };
        let place = document.get("kind").map_or(document.place, |node| node.place);
        return vec![Finding::error(place, format!("kind: {GROUP} has no `{kind}`; {hint}"))];
    };
    if version != VERSION && strangers == Strangers::Refuse {
        let place = document.get("apiVersion").map_or(document.place, |node| node.place);
        return vec![Finding::error(place, format!("apiVersion: `{version}` is not known; it is {VERSION}"))];
    }
    let mut findings = Vec::new();
    schema::check(document, schema, "", &mut findings);
    if !findings.is_empty() {
        return findings;
    }
    match kind.as_str() {
        "BuildJob" => build_job(document, context),
        "BuildEnvironment" => build_environment(document, context),
        _ => Vec::new(),
    }
}

/// Adds what other documents may refer to.
pub(crate) fn collect(document: &Node, found: &mut Surroundings) {
    match document.get("kind").and_then(Node::scalar).as_deref() {
        Some("BuildEnvironment") => {
            if let Ok(environment) = read::<BuildEnvironment>(document) {
                found.environments.insert(name(document), Some(environment.spec));
            }
        }
        Some("PodTemplate") => {
            if let Ok(template) = read::<PodTemplate>(document) {
                found.pod_templates.insert(name(document), template.template);
            }
        }
        _ => {}
    }
}

fn name(document: &Node) -> String {
    document
        .get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .and_then(Node::scalar)
        .unwrap_or_default()
}

fn read<T: DeserializeOwned>(document: &Node) -> Result<T, Finding> {
    serde_path_to_error::deserialize(document.to_json()).map_err(|error| {
        let path = error.path().to_string();
        Finding::error(document.nearest(&path).place, format!("{path}: {}", error.inner()))
    })
}

fn build_job(document: &Node, context: &Context) -> Vec<Finding> {
    let job: BuildJob = match read(document) {
        Ok(job) => job,
        Err(finding) => return vec![finding],
    };
    let spec = &job.spec;
    let mut findings = Vec::new();
    // The rules that the definition has for the spec as a whole.
    let place = document.nearest("spec").place;
    if spec.environment.is_some() && spec.image.is_some() {
        let message = "spec: `environment` and `image` exclude one another: an environment names its image";
        findings.push(Finding::error(document.nearest("spec.image").place, message));
    }
    let command = spec.command.as_ref().is_some_and(|command| !command.is_empty());
    if spec.buildkite.is_none() && spec.environment.is_none() && spec.kubernetes.is_none() && !command {
        let message = "spec: a standalone job (one without `buildkite`) needs a `command`, or an environment that has one";
        findings.push(Finding::error(place, message));
    }
    findings.extend(refusals(&job, context, document, str::to_owned));
    findings
}

/// An environment is tried out with a job that runs in it.
fn build_environment(document: &Node, context: &Context) -> Vec<Finding> {
    let environment: BuildEnvironment = match read(document) {
        Ok(environment) => environment,
        Err(finding) => return vec![finding],
    };
    let name = name(document);
    let spec = BuildJobSpec {
        environment: Some(name.clone()),
        command: Some("true".to_owned()),
        ..BuildJobSpec::default()
    };
    let mut context = context.clone();
    context.surroundings.environments.insert(name.clone(), Some(environment.spec));
    let way = format!("spec.environment: {name} → ");
    refusals(&BuildJob::new("probe", spec), &context, document, |path| {
        path.strip_prefix(&way).map_or_else(|| path.to_owned(), |rest| format!("spec.{rest}"))
    })
}

/// What keeps a job from becoming a pod, at the fields that it comes from.
fn refusals(
    job: &BuildJob,
    context: &Context,
    document: &Node,
    origin: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let Some(error) = trial::refusal(job, context) else { return Vec::new() };
    let finding = |(path, problem): (String, String)| {
        let path = origin(&path);
        // Behind the arrow is another object.
        let own = path.split([':', '→']).next().unwrap_or(&path).trim();
        let node = match own.strip_prefix("pod.spec.containers[container-0]") {
            Some(".image") if document.get("spec").is_some_and(|spec| spec.get("image").is_some()) => {
                document.nearest("spec.image")
            }
            _ => document.nearest(own),
        };
        Finding::error(place_of(node, &problem), format!("{path}: {problem}"))
    };
    several(&error).into_iter().map(finding).collect()
}

/// The operator's configuration.
fn config(document: &Node) -> Vec<Finding> {
    let data = document.get("data").map(Node::to_json).unwrap_or_default();
    let data = match serde_json::from_value(data) {
        Ok(data) => data,
        Err(error) => {
            let place = document.nearest("data").place;
            return vec![Finding::error(place, format!("data: {error}; every value is a string"))];
        }
    };
    match Config::from_data(&data) {
        Ok(_) => Vec::new(),
        Err(error) => {
            let key = error.key();
            let place = document.nearest(&format!("data.{key}"));
            vec![Finding::error(place.key.unwrap_or(place.place), error.to_string())]
        }
    }
}
