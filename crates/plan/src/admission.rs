//! What can never run, told before it is stored; and what environments get that do not have it.
//!
//! The best check of whether a job can run is its pod: it is made as the controller will make it, and then looked at.
//! What is certain is a refusal, and what may come right by itself is a warning.
//!
//! - [`references`]: the objects of the cluster that a pod needs
//! - [`nodes`]: whether any node can run it
//! - [`rules`]: what users demand
//! - [`defaults`]: what environments get

pub mod defaults;
mod nodes;
pub mod references;
pub mod rules;

use std::{collections::BTreeMap, fmt, sync::Arc};

use bk_api::{
    BuildEnvironment, BuildEnvironmentSpec, BuildJob, BuildJobSpec, config::ValidationConfig,
    container_use::ContainerUse,
};
use k8s_openapi::api::core::v1::{Node, Pod};

use self::references::Object;
use crate::{
    exporters,
    pod::{self, PodSettings, RenderError},
    surroundings::Surroundings,
};

/// Something that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field, from the root of the object or of the pod that it becomes.
    pub path: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
    /// Whether that is certain.
    pub certainty: Certainty,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It can never run.
    Refusal,
    /// It may come right.
    Warning,
}

impl Finding {
    pub(crate) fn new(certainty: Certainty, path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into(), certainty }
    }

    fn refusal(error: RenderError) -> Self {
        Self::new(Certainty::Refusal, error.path, error.problem)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.problem)
    }
}

/// What findings depend on besides the object and its surroundings.
#[derive(Clone, Debug, PartialEq)]
pub struct Demands {
    /// What pods are made of.
    pub pod: PodSettings,
    /// What users demand, and what is known of nodes.
    pub validation: ValidationConfig,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The objects that were looked for.
    pub objects: BTreeMap<Object, Existence>,
    /// The nodes that there are, unless they cannot be seen.
    pub nodes: Option<Vec<Arc<Node>>>,
}

/// What came of looking for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It is there.
    Found,
    /// It is not.
    Missing,
    /// That could not be learnt, for this reason.
    Untold(String),
}

/// The pod that a BuildJob becomes, if it becomes one. A job whose name the API server has yet to choose has one, too.
pub fn pod_of(job: &BuildJob, surroundings: &Surroundings, demands: &Demands) -> Result<Pod, RenderError> {
    if job.metadata.name.is_some() {
        return pod::render(job, 0, surroundings, &demands.pod);
    }
    let mut named = job.clone();
    named.metadata.name = Some("unnamed".to_owned());
    pod::render(&named, 0, surroundings, &demands.pod)
}

/// What is wrong with a BuildJob that becomes this pod, or none.
pub fn build_job(
    job: &BuildJob,
    pod: Result<&Pod, RenderError>,
    surroundings: &Surroundings,
    known: &Known,
    demands: &Demands,
) -> Vec<Finding> {
    let mut findings = unmet(job, demands);
    let broken = |pod| rules::of_job(job, pod, surroundings, &demands.validation);
    match pod {
        Ok(pod) => {
            findings.extend(broken(Some(pod)));
            findings.extend(of_pod(pod, known, demands));
        }
        Err(error) => {
            findings.extend(broken(None));
            findings.push(Finding::refusal(error));
        }
    }
    findings
}

/// What a job asks for and would not get, such as logs in a sink that does not exist. Whoever sits at a terminal can correct it now;
/// a job of a queue runs without, as none of it may fail a job that would have passed.
fn unmet(job: &BuildJob, demands: &Demands) -> Vec<Finding> {
    let certainty = if job.is_spawned() { Certainty::Warning } else { Certainty::Refusal };
    let missing = exporters::missing(&job.spec, &demands.pod);
    missing
        .map(|missing| Finding::new(certainty, exporters::field(missing.condition), missing.message))
        .collect()
}

fn of_pod(pod: &Pod, known: &Known, demands: &Demands) -> Vec<Finding> {
    let mut findings: Vec<Finding> = references::of(pod, &demands.pod)
        .into_iter()
        .filter_map(|reference| reference.finding(known.objects.get(&reference.object)))
        .collect();
    findings.extend(nodes::finding(pod, known.nodes.as_deref(), &demands.validation));
    findings
}

/// Jobs that run in an environment, and with it beside them: in one of these ways it has to work.
pub fn trials(environment: &BuildEnvironment) -> [BuildJob; 2] {
    let name = environment.metadata.name.clone().unwrap_or_default();
    let beside = ContainerUse { environment: Some(name.clone()), ..ContainerUse::default() };
    let command = Some("true".to_owned());
    let inside =
        BuildJobSpec { environment: Some(name), command: command.clone(), ..BuildJobSpec::default() };
    let outside = BuildJobSpec { extra_containers: vec![beside], command, ..BuildJobSpec::default() };
    [inside, outside].map(|spec| {
        let mut job = BuildJob::new("trial", spec);
        job.metadata.namespace.clone_from(&environment.metadata.namespace);
        job
    })
}

/// The pod of the first trial that becomes one, or why the first does not. `surroundings` has the environment itself.
pub fn pod_with(
    environment: &BuildEnvironment,
    surroundings: &Surroundings,
    demands: &Demands,
) -> Result<Pod, RenderError> {
    let [inside, outside] = trials(environment);
    pod_of(&inside, surroundings, demands)
        .or_else(|error| pod_of(&outside, surroundings, demands).map_err(|_| error))
        .map_err(|error| RenderError { path: within(&error.path), ..error })
}

/// What is wrong with a BuildEnvironment, of which this pod was made. What it refers to may come later, so only what it is itself is refused.
pub fn build_environment(
    environment: &BuildEnvironment,
    pod: Result<&Pod, RenderError>,
    surroundings: &Surroundings,
    known: &Known,
    demands: &Demands,
) -> Vec<Finding> {
    let mut findings = rules::of_environment(environment, &demands.validation);
    match pod {
        Ok(pod) => findings.extend(
            of_pod(pod, known, demands)
                .into_iter()
                .map(|finding| Finding { certainty: Certainty::Warning, ..finding }),
        ),
        Err(error) => {
            let awaits_another = surroundings.environments.values().any(Option::is_none);
            let certainty = if awaits_another { Certainty::Warning } else { Certainty::Refusal };
            findings.push(Finding { certainty, ..Finding::refusal(error) });
        }
    }
    findings
}

/// A path of a trial, as seen from the environment: `spec.environment: go → volumes[0]` is `spec.volumes[0]`.
fn within(path: &str) -> String {
    path.split_once(" → ").map_or_else(|| path.to_owned(), |(_, rest)| format!("spec.{rest}"))
}

/// Surroundings that hold the environment as it is to become.
pub fn surroundings_of(name: &str, spec: BuildEnvironmentSpec) -> Surroundings {
    Surroundings { environments: [(name.to_owned(), Some(spec))].into(), ..Surroundings::default() }
}
