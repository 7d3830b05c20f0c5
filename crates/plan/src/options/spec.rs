//! The part of a BuildJob's spec that options describe.

use bk_api::{
    BuildJobSpec,
    config::unknown_field,
    container_use::ContainerUse,
    placement::{NodeOperator, NodeRequirement},
};
use serde_json::{Map, Value};

use super::{Asked, Given, Problem};

/// Reads options. Those that are wrong are added to `problems`, and count for nothing.
pub(super) fn read(given: &[Given], problems: &mut Vec<Problem>) -> Asked {
    let mut document = Value::Object(Map::new());
    for Given { option, place, value } in given {
        match option.kind.read(value) {
            Ok(value) => put(&mut document, option.field, value),
            Err(problem) => problems.push(Problem { place: place.clone(), problem }),
        }
    }
    let places = given.iter().map(|given| (given.option.name, given.place.clone())).collect();
    match typed(&document) {
        Ok(spec) => {
            problems
                .extend(faults(&spec).into_iter().map(|(path, problem)| problem_at(&path, problem, given)));
            Asked { spec, places }
        }
        Err((path, problem)) => {
            problems.push(problem_at(&path, problem, given));
            Asked::default()
        }
    }
}

/// Puts a value into a document, at a field's path.
fn put(document: &mut Value, field: &str, value: Value) {
    let mut place = document;
    for key in field.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key];
    }
    *place = value;
}

/// The document as a spec, or the path of what does not fit.
fn typed(document: &Value) -> Result<BuildJobSpec, (String, String)> {
    let mut spec: BuildJobSpec = serde_path_to_error::deserialize(document)
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))?;
    if let Some(path) = unknown_field(document, &spec) {
        return Err((path, "there is no such field".to_owned()));
    }
    switch(document, &mut spec);
    Ok(spec)
}

/// Switches services on or off. To say what is to be exported is to ask for it, unless the step says otherwise.
fn switch(document: &Value, spec: &mut BuildJobSpec) {
    let said = |field: &str| document[field]["enabled"].as_bool();
    if let Some(log) = &mut spec.log_exporter {
        let asks = !log.paths.is_empty() || log.volume.is_some() || log.stdout || log.stderr;
        log.enabled = said("logExporter").unwrap_or(asks);
    }
    if let Some(artifacts) = &mut spec.artifact_exporter {
        artifacts.enabled = said("artifactExporter").unwrap_or(artifacts.path.is_some());
    }
    if let Some(metrics) = &mut spec.metrics_exporter {
        let asks = metrics.path.is_some() || metrics.mode.is_some();
        metrics.enabled = said("metricsExporter").unwrap_or(asks);
    }
    if let Some(mirror) = &mut spec.repo_mirror {
        mirror.enabled = said("repoMirror").unwrap_or(!mirror.extra_repos.is_empty());
    }
}

/// A problem at a path of the spec, under the name of the option that set it.
fn problem_at(path: &str, problem: String, given: &[Given]) -> Problem {
    let below = |given: &Given| path.strip_prefix(given.option.field).map(str::to_owned);
    match given.iter().find_map(|given| Some((given, below(given)?))) {
        Some((given, rest)) => Problem { place: format!("{}{rest}", given.place), problem },
        None => Problem { place: path.to_owned(), problem },
    }
}

/// What the API server would refuse in the BuildJob, with its path.
fn faults(spec: &BuildJobSpec) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    if spec.environment.is_some() && spec.image.is_some() {
        let problem = "excludes `image`: an environment names its image; leave one of them out";
        faults.push(("environment".to_owned(), problem.to_owned()));
    }
    for (field, containers) in
        [("initContainers", &spec.init_containers), ("extraContainers", &spec.extra_containers)]
    {
        for (index, container) in containers.iter().enumerate() {
            let problem = container_fault(container, field == "initContainers");
            faults.extend(problem.map(|problem| (format!("{field}[{index}]"), problem.to_owned())));
        }
    }
    for (index, requirement) in spec.node_requirements.iter().enumerate() {
        let problem = requirement_fault(requirement);
        faults.extend(problem.map(|problem| (format!("nodeRequirements[{index}]"), problem.to_owned())));
    }
    if spec.workspace_sub_path_expr.as_ref().is_some_and(|path| leads_away(path)) {
        let problem = "is a path below the volume: it does not begin with / and has no part that is ..";
        faults.push(("workspaceSubPathExpr".to_owned(), problem.to_owned()));
    }
    for (index, preference) in spec.node_preferences.iter().enumerate() {
        let weight = (!(1..=100).contains(&preference.weight)).then_some("a weight is 1 to 100");
        let none = preference.requirements.is_empty().then_some("needs `requirements`");
        let problem = weight.or(none).or_else(|| preference.requirements.iter().find_map(requirement_fault));
        faults.extend(problem.map(|problem| (format!("nodePreferences[{index}]"), problem.to_owned())));
    }
    faults
}

/// Whether a path leads out of the volume that it should be below.
fn leads_away(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

fn container_fault(container: &ContainerUse, is_init: bool) -> Option<&'static str> {
    if container.environment.is_some() == container.container.is_some() {
        return Some("give either `environment`, the name of a BuildEnvironment, or `container`");
    }
    (is_init && container.startup.is_some())
        .then_some("init containers run before the job; `startup` is for extra_containers")
}

fn requirement_fault(requirement: &NodeRequirement) -> Option<&'static str> {
    let NodeRequirement { operator, values, .. } = requirement;
    match operator {
        NodeOperator::Exists | NodeOperator::DoesNotExist => {
            (!values.is_empty()).then_some("Exists and DoesNotExist take no `values`")
        }
        NodeOperator::In | NodeOperator::NotIn => values.is_empty().then_some("In and NotIn need `values`"),
        NodeOperator::Gt | NodeOperator::Lt => {
            let is_number = matches!(&values[..], [value] if value.parse::<i64>().is_ok());
            (!is_number).then_some("Gt and Lt need one value, a whole number")
        }
    }
}

/// Fills in what options describe where `spec` is silent.
pub(super) fn fill(asked: BuildJobSpec, spec: &mut BuildJobSpec) {
    let BuildJobSpec {
        // These the step says by other means.
        buildkite: _,
        source: _,
        command: _,
        env: _,
        plugins: _,
        kubernetes: _,
        environment,
        image,
        init_containers,
        extra_containers,
        log_exporter,
        artifact_exporter,
        metrics_exporter,
        repo_mirror,
        node_requirements,
        node_preferences,
        tolerations,
        resources,
        resource_class,
        workspace_volume,
        workspace_sub_path_expr,
        timeout,
        workload,
    } = asked;
    // What a job runs in is one choice.
    if spec.environment.is_none() && spec.image.is_none() {
        spec.environment = environment;
        spec.image = image;
    }
    fill_list(&mut spec.init_containers, init_containers);
    fill_list(&mut spec.extra_containers, extra_containers);
    fill_list(&mut spec.node_requirements, node_requirements);
    fill_list(&mut spec.node_preferences, node_preferences);
    fill_list(&mut spec.tolerations, tolerations);
    fill_one(&mut spec.log_exporter, log_exporter);
    fill_one(&mut spec.artifact_exporter, artifact_exporter);
    fill_one(&mut spec.metrics_exporter, metrics_exporter);
    fill_one(&mut spec.repo_mirror, repo_mirror);
    fill_one(&mut spec.resources, resources);
    fill_one(&mut spec.resource_class, resource_class);
    fill_one(&mut spec.workspace_volume, workspace_volume);
    fill_one(&mut spec.workspace_sub_path_expr, workspace_sub_path_expr);
    fill_one(&mut spec.timeout, timeout);
    fill_one(&mut spec.workload, workload);
}

fn fill_list<T>(own: &mut Vec<T>, asked: Vec<T>) {
    if own.is_empty() {
        *own = asked;
    }
}

fn fill_one<T>(own: &mut Option<T>, asked: Option<T>) {
    *own = own.take().or(asked);
}
