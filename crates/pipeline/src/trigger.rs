//! `trigger`: a build of another pipeline.

use serde::{Deserialize, Serialize};

use super::PipelineProblem;
use super::attributes::{Attributes, wrong};
use super::node::{Node, Value};
use super::rules;
use super::step::{Env, SoftFail};

/// A step that starts a build of another pipeline, and follows it unless it is `async`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// The slug of the pipeline.
    pub pipeline: String,
    /// Whether nobody waits for the build.
    pub is_async: bool,
    /// The build to start.
    pub build: TriggeredBuild,
    /// Which failures of it do not fail the build.
    pub soft_fail: SoftFail,
    /// How many builds.
    pub parallelism: Option<u32>,
}

/// What the started build is made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggeredBuild {
    /// Its branch.
    pub branch: Option<String>,
    /// Its commit.
    pub commit: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// Its variables.
    pub env: Env,
    /// Its meta-data.
    pub meta_data: Env,
}

/// Reads what is particular to a trigger step.
pub(crate) fn trigger(attributes: &mut Attributes) -> Result<Trigger, PipelineProblem> {
    let pipeline = match attributes.take(&["trigger"])? {
        Some(Node { value: Value::Text(slug), .. }) if !slug.is_empty() => slug,
        Some(node) => return Err(wrong(&node, "trigger", "the slug of a pipeline")),
        None => return Err(attributes.problem("a trigger step needs trigger, the slug of a pipeline")),
    };
    Ok(Trigger {
        pipeline,
        is_async: attributes.flag(&["async"])?,
        build: match attributes.take(&["build"])? {
            Some(node) => triggered_build(&node)?,
            None => TriggeredBuild::default(),
        },
        soft_fail: rules::soft_fail(attributes)?,
        parallelism: rules::count(attributes, &["parallelism"])?,
    })
}

fn triggered_build(node: &Node) -> Result<TriggeredBuild, PipelineProblem> {
    match &node.value {
        Value::Null => return Ok(TriggeredBuild::default()),
        Value::Map(_) => {}
        _ => return Err(wrong(node, "build", "a map")),
    }
    let mut attributes = Attributes::of(node);
    let build = TriggeredBuild {
        branch: attributes.text(&["branch"])?.filter(|branch| !branch.is_empty()),
        commit: attributes.text(&["commit"])?.filter(|commit| !commit.is_empty()),
        message: attributes.text(&["message"])?.filter(|message| !message.is_empty()),
        env: attributes.env()?,
        meta_data: attributes.strings("meta_data")?,
    };
    // Labels are for the hosted service's lists of builds.
    attributes.take(&["labels"])?;
    attributes.finish()?;
    Ok(build)
}
