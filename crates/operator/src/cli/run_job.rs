//! `buildkite-operator run-job`: one command as a BuildJob, from the terminal or from the hook of an agent outside the cluster.
//!
//! - [`step`]: a step of a pipeline in a file, as its job
//! - [`outcome`]: what to say meanwhile, and the exit status at the end

mod outcome;
mod step;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use bk_api::{BuildJob, names};
use bk_plan::{
    standalone::{self, Hook, Order},
    verdicts,
};
use clap::Args;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::outcome::Ending;
use super::{
    connection::{self, ClusterArgs, Connection},
    follow::{self, Selection, Watched},
    output::say,
    plan,
};

/// What the help ends with.
const EXIT_STATUSES: &str = "\
Exit status: that of the command, 128 and the signal's number if one ended it. 124: it took too long. \
125: it could not be run, or was lost; the last line says why. 130 and 143: SIGINT or SIGTERM came, and the job \
was cancelled. 2: the command line was not understood.";

/// Options of `run-job`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUSES)]
pub(super) struct RunJobArgs {
    /// The command: a program and its arguments, or one script as a single argument
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["from_env", "step", "template"])]
    command: Vec<String>,

    /// Take command, source, options and variables from the environment of a Buildkite job, as its
    /// hooks have it; what is given here goes before it
    #[arg(long)]
    from_env: bool,

    /// Pipeline that has the step
    #[arg(long, value_name = "FILE", requires = "step", conflicts_with = "from_env")]
    pipeline: Option<PathBuf>,

    /// Step of the pipeline to take command, image, options, plugins and variables from: its key, its
    /// label, or its number among the command steps; what is given here goes before it
    #[arg(long, value_name = "STEP", requires = "pipeline")]
    step: Option<String>,

    /// `BuildJob` to begin with; what is given here goes before it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from_env", "pipeline"])]
    template: Option<PathBuf>,

    /// Image to run the command in [default: the agent's own]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// `BuildEnvironment` to run the command in
    #[arg(long, value_name = "NAME", conflicts_with = "image")]
    environment: Option<String>,

    /// Variable of the command; without a value, the one that it has here
    #[arg(long = "env", short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Repository to check out
    #[arg(long, value_name = "URL")]
    repo: Option<String>,

    /// Commit to check out [default: HEAD]
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,

    /// Branch to check out [default: main]
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,

    /// How long the command may run, e.g. 90m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,

    /// How long to wait for the end in all, e.g. 2h; then the job is cancelled
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,

    /// Name of the `BuildJob` [default: run- and some letters]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "it must be a duration such as 90m or 1h30m".to_owned())?;
    let duration = Duration::try_from(parsed).unwrap_or_default();
    if duration.is_zero() { Err("it must be positive".to_owned()) } else { Ok(duration) }
}

pub(super) fn run(args: RunJobArgs) -> ExitCode {
    match connection::block_on(run_job(args)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("error: {}", bk_ops::report::one_line(error.as_ref())));
            ExitCode::from(outcome::NOT_RUN)
        }
    }
}

async fn run_job(args: RunJobArgs) -> Result<u8> {
    let mut signals = Signals::new()?;
    let Connection { cluster, namespace } = args.cluster.connect().await?;
    let deadline = args.deadline;
    let job = order(args, &namespace)?;
    let jobs = Api::<BuildJob>::namespaced(cluster.calls.clone(), &namespace);
    let created = jobs
        .create(&PostParams::default(), &job)
        .await
        .map_err(connection::failed(format!("create the BuildJob in namespace {namespace}")))?;
    let name = created.name_any();
    say(&format!("BuildJob {namespace}/{name} created"));

    let ending = tokio::select! {
        ending = follow(cluster.streams, &namespace, &created) => ending?,
        (signal, code) = signals.next() => Ending::stopped(format!("{signal}: the job is cancelled"), code),
        () = passed(deadline) => Ending::stopped(
            format!("the job had not ended after {} s: it is cancelled", deadline.unwrap_or_default().as_secs()),
            outcome::TIMED_OUT,
        ),
    };
    release(&jobs, &name, ending.keeps_build_job).await;
    if let Some(text) = &ending.text {
        say(text);
    }
    Ok(ending.code)
}

/// The BuildJob that is asked for.
fn order(args: RunJobArgs, namespace: &str) -> Result<BuildJob> {
    let given = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
    let order = Order {
        name: args.name,
        namespace: namespace.to_owned(),
        command: args.command,
        image: given(args.image),
        environment: given(args.environment),
        env: args.env.iter().map(|text| variable(text)).collect::<Result<_>>()?,
        repo: given(args.repo),
        commit: given(args.commit),
        branch: given(args.branch),
        timeout: args.timeout,
    };
    let hook = match (args.pipeline, args.step, args.template) {
        (Some(pipeline), Some(step), _) => step::read(&pipeline, &step)?,
        (_, _, Some(template)) => {
            return Ok(standalone::of_template(&order, &plan::read_build_job(&template)?));
        }
        _ if args.from_env => hook()?,
        _ => return Ok(standalone::of(&order)),
    };
    let ordered = standalone::of_hook(&order, &hook)
        .map_err(|error| anyhow!(verdicts::unreadable_plugins(&error).sentence()))?;
    if !ordered.withheld.is_empty() {
        say(&format!(
            "not passed on, as they may hold secrets: {}; give them to the job as Secrets of a BuildEnvironment",
            ordered.withheld.join(", ")
        ));
    }
    Ok(ordered.job)
}

fn variable(text: &str) -> Result<(String, String)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, std::env::var(text).with_context(|| format!("--env {text}: no such variable here"))?),
    };
    if name.is_empty() {
        bail!("--env {text}: it must be NAME=VALUE or NAME");
    }
    Ok((name.to_owned(), value))
}

/// The environment of a hook, and which of it Buildkite gave to the job: the agent leaves that in a file.
fn hook() -> Result<Hook> {
    // A variable that is no text cannot be put into a BuildJob.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let env: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
    let given = match env.get("BUILDKITE_ENV_JSON_FILE") {
        None => None,
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {file}, which BUILDKITE_ENV_JSON_FILE names"))?;
            let given: BTreeMap<String, serde_json::Value> =
                serde_json::from_str(&text).with_context(|| {
                    format!("{file}, which BUILDKITE_ENV_JSON_FILE names, is not a JSON object")
                })?;
            Some(given.into_keys().collect::<BTreeSet<_>>())
        }
    };
    Ok(Hook { env, given })
}

/// Prints the job's log as it comes, and says how it ended.
async fn follow(client: Client, namespace: &str, created: &BuildJob) -> Result<Ending> {
    let watched = Watched::start(client.clone(), namespace, created);
    let selection = Selection::default();
    let printing = follow::print(client, namespace, watched.clone(), &selection);
    let telling = outcome::tell(watched.clone());
    let ended = watched.ended();
    // The log is read to its end before the end is told.
    let (printed, (), ended) = tokio::join!(printing, telling, ended);
    printed?;
    Ok(Ending::of(ended.as_ref()))
}

/// Lets the operator have the pod, or removes the BuildJob. If that fails, the operator sees to it in its own time.
async fn release(jobs: &Api<BuildJob>, name: &str, keeps_build_job: bool) {
    let result = if keeps_build_job {
        let patch =
            serde_json::json!({ "metadata": { "annotations": { names::ANNOTATION_FOLLOWED: null } } });
        jobs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    } else {
        jobs.delete(name, &DeleteParams::background()).await.map(drop)
    };
    match result {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => {
            let what = if keeps_build_job { "release" } else { "delete" };
            say(&format!("cannot {what} BuildJob {name}: {}", bk_ops::report::one_line(&error)));
        }
    }
}

async fn passed(deadline: Option<Duration>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline).await,
        None => std::future::pending().await,
    }
}

/// What people and agents stop programs with.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one, by its name, with the exit status that goes with it.
    async fn next(&mut self) -> (&'static str, u8) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}
