//! Finds in pipelines and manifests, offline, what Buildkite, the API server or the operator would refuse later, and says where it
//! stands.
//!
//! Everything here is pure. The best check of a step is to make its pod as the operator would: what that is refused with leads back
//! to a line of the file.
//!
//! - [`pipeline`]: pipelines, step by step
//! - [`origin`]: from a field of a BuildJob back to the step that it comes from
//! - [`trial`]: the pod of a job that has yet to be
//! - [`habits`]: what works, but hardly as it was meant
//! - [`manifest`]: BuildJobs and what goes with them
//! - [`fix`]: misspelt words, and those that were meant
//! - [`schema`]: documents held against the schema of a definition

mod fix;
mod habits;
mod manifest;
mod origin;
mod pipeline;
mod schema;
mod trial;

use bk_api::config::Config;
use bk_pipeline::{
    PipelineProblem,
    node::{Node, Place, Value},
};
use bk_plan::surroundings::Surroundings;
use serde::Serialize;

pub use fix::{Fix, mend};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It will be refused, or fail.
    Error,
    /// It may be meant, but probably is not, or cannot be known from here.
    Warning,
}

impl Level {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The line, counted from 1.
    pub line: u64,
    /// The column, counted from 1.
    pub column: u64,
    /// How bad it is.
    pub level: Level,
    /// What is wrong, and what would be right where that is known.
    pub message: String,
    /// A word that would be right in the place of the one that stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

impl Finding {
    fn new(place: Place, level: Level, message: impl Into<String>) -> Self {
        // What has no place of its own concerns the whole document.
        let (line, column) = (place.line.max(1), place.column.max(1));
        Self { line, column, level, message: message.into(), fix: None }
    }

    fn error(place: Place, message: impl Into<String>) -> Self {
        Self::new(place, Level::Error, message)
    }

    fn warning(place: Place, message: impl Into<String>) -> Self {
        Self::new(place, Level::Warning, message)
    }
}

impl From<PipelineProblem> for Finding {
    fn from(problem: PipelineProblem) -> Self {
        let PipelineProblem { place, path, reason } = problem;
        let message = if path.is_empty() { reason } else { format!("{path}: {reason}") };
        Self::error(place.unwrap_or_default(), message)
    }
}

/// What is known about the cluster for which files are meant.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The operator's configuration. Without it every queue and resource class may exist.
    pub config: Option<Config>,
    /// BuildEnvironments and PodTemplates.
    pub surroundings: Surroundings,
    /// Whether there are no others. Otherwise any may exist.
    pub complete: bool,
}

/// What a file holds that was not asked for by its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// Is wrong: somebody took it for something of ours.
    Refuse,
    /// Is let be: it was found in a directory.
    Ignore,
}

/// Everything that is wrong with a text, in the order of its lines.
pub fn lint(text: &str, context: &Context, strangers: Strangers) -> Vec<Finding> {
    let mut findings = match Node::all_from_yaml(text) {
        Err(problem) => vec![Finding::from(problem)],
        Ok(documents) => documents
            .iter()
            .flat_map(members)
            .flat_map(|document| one(document, context, strangers))
            .collect(),
    };
    for finding in &mut findings {
        finding.fix = fix::of(text, finding);
    }
    findings.sort();
    findings.dedup();
    findings
}

/// BuildEnvironments and PodTemplates in a text, for what refers to them.
pub fn surroundings(text: &str) -> Surroundings {
    let documents = Node::all_from_yaml(text).unwrap_or_default();
    let mut found = Surroundings::default();
    documents.iter().flat_map(members).for_each(|document| manifest::collect(document, &mut found));
    found
}

/// The objects of a list, as kubectl prints several; otherwise the document itself.
fn members(document: &Node) -> &[Node] {
    match document.get("items").map(|items| &items.value) {
        Some(Value::List(items)) if document.get("kind").is_some() => items,
        _ => std::slice::from_ref(document),
    }
}

fn one(document: &Node, context: &Context, strangers: Strangers) -> Vec<Finding> {
    let is_list = matches!(document.value, Value::List(_));
    if document.get("kind").is_some() && document.get("apiVersion").is_some() {
        manifest::lint(document, context, strangers)
    } else if is_list || document.get("steps").is_some() {
        pipeline::lint(document, context)
    } else if strangers == Strangers::Ignore || document.value == Value::Null {
        Vec::new()
    } else {
        let message = "this is neither a pipeline, which has `steps`, nor a manifest, which has `apiVersion` and `kind`";
        vec![Finding::error(document.place, message)]
    }
}

#[cfg(test)]
mod tests;
