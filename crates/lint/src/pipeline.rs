//! Pipelines: what Buildkite refuses, and what the operator makes of each step.

use std::collections::BTreeMap;

use bk_api::{
    BuildJob,
    config::{CLUSTER_DEFAULT_QUEUE, IntakeKind, Queue, SpawnerConfig},
    spelling,
};
use bk_pipeline::{
    interpolate::{interpolate, names_variable},
    matrix::Matrix,
    node::Node,
    parse::examine,
    step::{Command, Document, Env, Kind, Step, StepTree},
    variables,
};
use bk_plan::{
    intake::{self, Candidate, JobDetails, Offer},
    options::{PREFIX, Problem},
    plugin::{self, PluginError},
    pod::RenderError,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Context, Finding, habits, origin::Origin, trial};

/// What is checked out, so that the pod has what all have.
const REPOSITORY: &str = "https://git.example/repository.git";

/// Everything that is wrong with a pipeline.
pub(crate) fn lint(root: &Node, context: &Context) -> Vec<Finding> {
    let filled;
    let root = match interpolate(root.clone(), &own_variables(root)) {
        Ok(node) => {
            filled = node;
            &filled
        }
        Err(problem) => return vec![problem.within(root).into()],
    };
    let (document, problems) = examine(root);
    let certain = problems.into_iter().filter(|problem| !is_open(root.nearest(&problem.path)));
    let mut findings: Vec<Finding> = certain.map(Finding::from).collect();
    findings.extend(names(&document, root));
    for tree in steps(&document) {
        let origin = Origin { root, step: root.nearest(&tree.path) };
        if let Kind::Command(_) = &tree.step.kind {
            findings.extend(command(tree, &document.env, origin, context));
        }
    }
    findings
}

/// The steps, and those of groups.
fn steps(document: &Document) -> impl Iterator<Item = &StepTree> {
    document.steps.iter().flat_map(|tree| std::iter::once(tree).chain(&tree.members))
}

/// The pipeline's own variables, which the agent fills in when it uploads.
fn own_variables(root: &Node) -> Env {
    let (document, _) = examine(root);
    document.env.into_iter().filter(|(_, value)| !names_variable(value)).collect()
}

/// Whether a value is known only when the pipeline is uploaded.
fn is_open(node: &Node) -> bool {
    node.scalar().is_some_and(|text| names_variable(&text))
}

/// Keys that are there twice, and dependencies on keys that are not there at all.
fn names(document: &Document, root: &Node) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeMap::new();
    for tree in steps(document) {
        let node = root.nearest(&tree.path);
        let Some(key) = &tree.step.key else { continue };
        let written = ["key", "id", "identifier"].iter().find_map(|name| node.get(name)).unwrap_or(node);
        if let Some(first) = seen.insert(key, written.place.line) {
            let message = format!("{}: the key `{key}` is taken by the step on line {first}", tree.path);
            findings.push(Finding::error(written.place, message));
        }
    }
    for tree in steps(document) {
        for dependency in tree.step.depends_on.iter().flatten() {
            let name = &dependency.step;
            if seen.contains_key(name) || names_variable(name) || Uuid::parse_str(name).is_ok() {
                continue;
            }
            let hint = spelling::nearest(name, seen.keys().map(|key| key.as_str()));
            let hint = hint.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
            let message = format!("{}: no step in this file has the key `{name}`{hint}", tree.path);
            let place = Origin { root, step: root.nearest(&tree.path) }.attribute(&["depends_on"]).place;
            findings.push(Finding::warning(place, message));
        }
    }
    findings
}

/// What the operator would say to a step's jobs.
fn command(tree: &StepTree, env: &Env, origin: Origin<'_>, context: &Context) -> Vec<Finding> {
    let Kind::Command(written) = &tree.step.kind else { return Vec::new() };
    let permutations = written.matrix.iter().flat_map(Matrix::permutations);
    let mut permutations: Vec<_> =
        permutations.filter(|(_, skip)| skip.is_none()).map(|(permutation, _)| Some(permutation)).collect();
    if written.matrix.is_none() {
        permutations.push(None);
    }
    let mut findings = habits::of(origin);
    for permutation in permutations {
        let step = tree.step.permuted(permutation.as_ref());
        let Kind::Command(command) = &step.kind else { continue };
        findings.extend(job(&step, command, env, origin, context));
    }
    findings
}

fn job(step: &Step, command: &Command, env: &Env, origin: Origin<'_>, context: &Context) -> Vec<Finding> {
    let spawner = context.config.as_ref().map(|config| &config.spawner);
    let queue = match spawner {
        Some(spawner) => match serving(command, spawner) {
            Ok(queue) => queue,
            Err(message) => {
                let node = origin.attribute(&["agents", "agent_query_rules"]);
                return vec![Finding::warning(node.place, message)];
            }
        },
        None => SpawnerConfig::default().main_queue(),
    };
    let mut details = JobDetails { env: env.clone(), command: command.script.clone() };
    details.env.insert("BUILDKITE_REPO".to_owned(), REPOSITORY.to_owned());
    details.env.extend(variables::of_step(step, command));
    let candidate = Candidate {
        uuid: Uuid::nil().to_string(),
        pipeline: None,
        priority: command.priority,
        scheduled_at: Timestamp::UNIX_EPOCH,
        rules: command.agents.clone(),
    };
    let job = intake::build_job(&candidate, &queue, "default", &details);
    let tried =
        |job: &BuildJob| trial::refusal(job, context).map_or_else(Vec::new, |error| refused(&error, origin));
    match intake::complete(&job, &details, &queue.forbid) {
        Ok(job) => tried(&job),
        Err(error) => {
            let mut findings = refused_options(error, origin);
            // What the other plugin says can be looked at all the same.
            if let Ok(job) = intake::complete(&job, &without_options(details), &[]) {
                findings.extend(tried(&job));
            }
            findings
        }
    }
}

/// A job that sets no option.
fn without_options(mut details: JobDetails) -> JobDetails {
    details.env.retain(|name, _| !name.starts_with(PREFIX));
    if let Some(list) = details.env.get_mut("BUILDKITE_PLUGINS") {
        let plugins: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(list).unwrap_or_default();
        let others =
            plugins.into_iter().filter(|plugin| !plugin.keys().any(|name| plugin::is_operator(name)));
        *list = serde_json::json!(others.collect::<Vec<_>>()).to_string();
    }
    details
}

/// The queue of the configuration that a step's jobs are taken from, or why they are not.
fn serving(command: &Command, spawner: &SpawnerConfig) -> Result<Queue, String> {
    let asked = command.agents.iter().find_map(|rule| rule.strip_prefix("queue="));
    let queues = spawner.queues();
    let key = asked.unwrap_or(CLUSTER_DEFAULT_QUEUE);
    if names_variable(key) {
        return Ok(spawner.main_queue());
    }
    let serves = |queue: &&Queue| match spawner.intake {
        IntakeKind::Stacks => queue.key == key,
        IntakeKind::Graphql => intake::candidate::is_in_queue(&command.agents, &queue.key),
    };
    let Some(queue) = queues.iter().find(serves) else {
        let keys: Vec<&str> = queues.iter().map(|queue| queue.key.as_str()).collect();
        let hint = match spelling::nearest(key, keys.iter().copied()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("it serves {}", keys.join(", ")),
        };
        return Err(match asked {
            Some(_) => format!("the operator does not serve the queue `{key}`; {hint}"),
            None => format!(
                "the step names no queue and waits in the cluster's default one, which the operator does not serve as `{key}`; {hint}"
            ),
        });
    };
    let offer = Offer { tags: queue.tags.clone() };
    let unmet = command.agents.iter().find(|rule| {
        let rules = [(*rule).clone()];
        !names_variable(rule) && !offer.satisfies(&rules)
    });
    match unmet {
        None => Ok(queue.clone()),
        Some(rule) => {
            let tags = if queue.tags.is_empty() { "none".to_owned() } else { queue.tags.join(", ") };
            Err(format!("the operator does not offer `{rule}` in the queue `{key}`; its tags: {tags}"))
        }
    }
}

fn refused_options(error: PluginError, origin: Origin<'_>) -> Vec<Finding> {
    match error {
        PluginError::Options(problems) => problems
            .into_iter()
            .filter_map(|Problem { place, problem }| {
                finding(origin.of_option(&place), &format!("{place}: {problem}"), &problem)
            })
            .collect(),
        PluginError::Forbidden(ref places) => {
            let message = error.to_string();
            places.iter().filter_map(|place| finding(origin.of_option(place), &message, &message)).collect()
        }
        other => vec![Finding::error(origin.attribute(&["plugins"]).place, other.to_string())],
    }
}

fn refused(error: &RenderError, origin: Origin<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, problem) in several(error) {
        let shown = path.replace("spec.kubernetes.", "kubernetes plugin: ");
        findings.extend(finding(origin.of_field(&path), &format!("{shown}: {problem}"), &problem));
    }
    findings
}

/// What is wrong at a value, unless the value is not known yet.
fn finding(node: &Node, message: &str, problem: &str) -> Option<Finding> {
    (!is_open(node)).then(|| Finding::error(place_of(node, problem), message))
}

/// A name that nobody knows is wrong where the name stands, anything else where the value does.
pub(crate) fn place_of(node: &Node, problem: &str) -> bk_pipeline::node::Place {
    let is_name = problem.starts_with("unknown key") || problem.starts_with("there is no such");
    node.key.filter(|_| is_name).unwrap_or(node.place)
}

/// A refusal names the paths of all that is unknown at once.
pub(crate) fn several(error: &RenderError) -> Vec<(String, String)> {
    let mut parts = error.problem.split("; also ");
    let first = (error.path.clone(), parts.next().unwrap_or_default().to_owned());
    let more = parts.map(|part| match part.split_once(": ") {
        Some((path, problem)) => (path.to_owned(), problem.to_owned()),
        None => (error.path.clone(), part.to_owned()),
    });
    std::iter::once(first).chain(more).collect()
}
