//! `buildkite-operator plan`: the pod that a job becomes, without a cluster or with one.
//!
//! - [`cluster`]: what a cluster says to it

mod cluster;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use bk_api::{
    BuildEnvironment, BuildJob,
    config::{Config, Queue, ValidationConfig, unknown_field},
    names,
};
use bk_buildkite::client::DEFAULT_ENDPOINT;
use bk_plan::{
    admission::rules,
    intake::{self, Candidate, JobDetails, candidate::is_in_queue},
    pod::{self, PodSettings},
    surroundings::Surroundings,
    verdicts,
};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodTemplate};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

use self::cluster::Ground;
use super::{
    connection::{self, ClusterArgs},
    output::{Output, say},
};
use crate::shim;

/// The image of this release, under the name that the chart has for it.
const OWN_IMAGE: &str = concat!("buildkite-operator:", env!("CARGO_PKG_VERSION"));

/// The name that stands for standard input.
pub(super) const STDIN: &str = "-";

/// Options of `plan`.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// The job: JSON as Buildkite gives it (`{id, command, env, agent_query_rules, priority}`), or a BuildJob; `-` for standard input
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, value_name = "FILE")]
    job: PathBuf,

    /// The ConfigMap `buildkite-operator-config` [default: the operator's defaults]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// BuildEnvironments and PodTemplates that the job refers to
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,

    /// The operator's own image, for containers beside the job [default: that of the configuration, else of the
    /// operator's Deployment with --cluster, else this program's release]
    #[arg(long, value_name = "IMAGE")]
    operator_image: Option<String>,

    /// How to print the pod
    #[arg(long, short, value_enum, default_value = "yaml")]
    output: Output,

    /// Take configuration, BuildEnvironments and PodTemplates from the operator in a cluster, have its API server
    /// check the pod, and tell which nodes it fits
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, conflicts_with_all = ["config", "with"])]
    cluster: bool,

    #[command(flatten)]
    connection: ClusterArgs,
}

/// A job as Buildkite gives it to whoever has reserved it.
#[derive(Debug, Deserialize)]
struct GivenJob {
    id: Uuid,
    #[serde(default)]
    command: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    agent_query_rules: Vec<String>,
    #[serde(default)]
    priority: i64,
}

pub(super) fn run(args: &PlanArgs) -> Result<()> {
    if args.cluster {
        return connection::block_on(on_cluster(args));
    }
    let mut config = args.config.as_deref().map(read_config).transpose()?.unwrap_or_default();
    with_image(&mut config, args);
    let surroundings = read_surroundings(&args.with)?;
    let job = read_job(&args.job, &config, "default")?;
    print(args, &plan(&job, &surroundings, &pods(&config, None), &config.validation)?)
}

/// Sees to it that the operator's own image is known, as an operator in a cluster knows it: without it, pods have neither exporters
/// nor mirrors.
fn with_image(config: &mut Config, args: &PlanArgs) {
    let known = args.operator_image.clone().or_else(|| config.pods.operator_image.take());
    config.pods.operator_image = Some(known.unwrap_or_else(|| OWN_IMAGE.to_owned()));
}

fn print(args: &PlanArgs, pod: &Pod) -> Result<()> {
    let mut out = std::io::stdout().lock();
    args.output.write(&mut out, pod)?;
    out.flush()?;
    Ok(())
}

/// Prints the pod as the API server would store it, and says where it could run.
async fn on_cluster(args: &PlanArgs) -> Result<()> {
    let mut ground = Box::pin(Ground::find(&args.connection)).await?;
    with_image(&mut ground.config, args);
    let job = read_job(&args.job, &ground.config, &ground.namespace)?;
    let surroundings = ground.surroundings(&job).await?;
    let plan = plan(&job, &surroundings, &ground.pods(), &ground.config.validation)?;
    let pod = ground.try_out(&plan).await?;
    print(args, &pod)?;
    let fits = ground.nodes(&pod).await?;
    fits.lines().iter().for_each(|line| say(line));
    fits.check()
}

/// What pods are made of by a configuration, with the shim in this ConfigMap.
fn pods(config: &Config, shim: Option<String>) -> PodSettings {
    let endpoint = config.spawner.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    // A checkout of the sources has no shim beside the program; the pod differs in nothing else.
    let own = || shim::read(None).map_or_else(|_| names::shim("absent"), |shim| shim::name(&shim));
    PodSettings::of(config, endpoint, shim.unwrap_or_else(own))
}

/// The pod of the first attempt, or what the job would be failed with.
fn plan(
    job: &BuildJob,
    surroundings: &Surroundings,
    settings: &PodSettings,
    validation: &ValidationConfig,
) -> Result<Pod> {
    let pod = pod::render(job, 0, surroundings, settings)
        .map_err(|error| anyhow!(verdicts::invalid_spec(&error).sentence()))?;
    match rules::refusal(job, Some(&pod), surroundings, validation) {
        Some(verdict) => Err(anyhow!(verdict.sentence())),
        None => Ok(pod),
    }
}

/// The BuildJob in a file.
pub(super) fn read_build_job(path: &Path) -> Result<BuildJob> {
    manifest(&parse(&read_text(path)?, path)?, "BuildJob", path)
}

/// The BuildJob that a job in a file becomes.
fn read_job(path: &Path, config: &Config, namespace: &str) -> Result<BuildJob> {
    let namespace = config.job_namespace.clone().unwrap_or_else(|| namespace.to_owned());
    let text = read_text(path)?;
    let given: Value = parse(&text, path)?;
    if given.get("kind").is_some() {
        let mut job: BuildJob = manifest(&given, "BuildJob", path)?;
        job.metadata.namespace.get_or_insert(namespace);
        return Ok(job);
    }
    if given.get("steps").is_some() {
        bail!(
            "{} is a pipeline, and this is about one job: `lint` looks at pipelines, `run-job --pipeline` runs a step of one",
            name(path)
        );
    }
    if given.is_null() {
        bail!("{} is empty", name(path));
    }
    let given: GivenJob = serde_path_to_error::deserialize(given)
        .with_context(|| format!("{} is neither a job of Buildkite's nor a BuildJob", name(path)))?;
    let details = JobDetails { env: given.env, command: given.command };
    let candidate = Candidate {
        uuid: given.id.to_string(),
        priority: given.priority,
        pipeline: None,
        scheduled_at: Timestamp::UNIX_EPOCH,
        rules: given.agent_query_rules,
    };
    let is_its = |queue: &Queue| is_in_queue(&candidate.rules, &queue.key);
    let queue =
        config.spawner.queues().into_iter().find(is_its).unwrap_or_else(|| config.spawner.main_queue());
    let job = intake::build_job(&candidate, &queue, &namespace, &details);
    intake::complete(&job, &details, &queue.forbid)
        .map_err(|error| anyhow!(verdicts::unreadable_plugins(&error).sentence()))
}

/// The configuration in a ConfigMap, or in the ConfigMap's data alone.
pub(super) fn read_config(path: &Path) -> Result<Config> {
    let given: Value = parse(&read_text(path)?, path)?;
    let data = if given.get("kind").is_some() {
        manifest::<ConfigMap>(&given, "ConfigMap", path)?.data.unwrap_or_default()
    } else {
        serde_json::from_value(given).with_context(|| {
            format!("{} is neither a ConfigMap nor the keys and values of one", name(path))
        })?
    };
    Config::from_data(&data).with_context(|| format!("cannot use {}", name(path)))
}

fn read_surroundings(files: &[PathBuf]) -> Result<Surroundings> {
    let mut surroundings = Surroundings::default();
    for path in files {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&read_text(path)?)
            .with_context(|| format!("{} is not YAML", name(path)))?;
        for document in documents {
            match document.get("kind").and_then(Value::as_str) {
                Some("BuildEnvironment") => {
                    let found: BuildEnvironment = manifest(&document, "BuildEnvironment", path)?;
                    surroundings.add(found.metadata.name.clone().unwrap_or_default(), Some(found));
                }
                Some("PodTemplate") => {
                    let found: PodTemplate = manifest(&document, "PodTemplate", path)?;
                    surroundings
                        .pod_templates
                        .insert(found.metadata.name.unwrap_or_default(), found.template);
                }
                kind => bail!(
                    "{} holds a {}; jobs refer to BuildEnvironments and PodTemplates only",
                    name(path),
                    kind.unwrap_or("document without kind")
                ),
            }
        }
    }
    Ok(surroundings)
}

/// Reads an object of a certain kind out of a document.
fn manifest<T: DeserializeOwned + Serialize>(document: &Value, kind: &str, path: &Path) -> Result<T> {
    let found = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    if found != kind {
        bail!("{} holds a {found}, not a {kind}", name(path));
    }
    let typed: T = serde_path_to_error::deserialize(document)
        .map_err(|error| anyhow!("{}: {}: {}", name(path), error.path(), error.inner()))?;
    match unknown_field(document, &typed) {
        Some(field) => bail!("{}: {field}: there is no such field", name(path)),
        None => Ok(typed),
    }
}

fn parse(text: &str, path: &Path) -> Result<Value> {
    // JSON allows tabs, which YAML does not.
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(json);
    }
    serde_saphyr::from_str(text).map_err(|error| {
        // What follows the first line draws the place.
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        anyhow!("{} is neither JSON nor YAML: {why}", name(path))
    })
}

/// How a file is called in messages.
pub(super) fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    if path == Path::new(STDIN) { "standard input".into() } else { path.to_string_lossy() }
}

pub(super) fn read_text(path: &Path) -> Result<String> {
    if path == Path::new(STDIN) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", name(path)))
}
