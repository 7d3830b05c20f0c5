//! `buildkite-operator get`: BuildJobs, BuildEnvironments and RepoMirrors as tables.
//!
//! - [`columns`]: what the tables show

mod columns;

pub(super) use self::columns::{crop, job_name, queue};

use std::{fmt::Debug, io::Write};

use anyhow::{Context, Result, bail};
use bk_api::{BuildEnvironment, BuildJob, Phase, RepoMirror, names};
use bk_ops::table;
use clap::{Args, ValueEnum};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    core::NamespaceResourceScope,
    runtime::watcher::{self, Event, watcher},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::columns::Listed;
use super::{
    address,
    connection::{ClusterArgs, Connection, failed},
    output::{self, Output, say},
};
use crate::settings;

/// Options of `get`.
#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// What to list
    #[arg(value_enum, default_value = "jobs")]
    kind: Kind,

    /// Only these: jobs by their names, by the UUID of the job at Buildkite or by the address of its page
    #[arg(value_name = "NAME", conflicts_with_all = ["phase", "queue", "selector", "all_namespaces", "watch"])]
    names: Vec<String>,

    /// Jobs in this phase, e.g. running; may be given several times
    #[arg(long, value_parser = phase, value_name = "PHASE")]
    phase: Vec<Phase>,

    /// Jobs of this queue
    #[arg(long, value_name = "KEY")]
    queue: Option<String>,

    /// Objects with these labels, e.g. `team=web`
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,

    /// In all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,

    /// Go on with what changes
    #[arg(long, short)]
    watch: bool,

    /// How to print them
    #[arg(long, short, value_enum, default_value = "table")]
    output: ListFormat,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    #[value(aliases = ["job", "buildjobs", "buildjob", "bj"])]
    Jobs,
    #[value(aliases = ["environment", "buildenvironments", "buildenvironment", "be"])]
    Environments,
    #[value(aliases = ["mirror", "repomirrors", "repomirror", "rm"])]
    Mirrors,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// A phase, as people type it.
fn phase(text: &str) -> Result<Phase, String> {
    let name = |phase: Phase| format!("{phase:?}").to_lowercase();
    let found = Phase::ALL.into_iter().find(|phase| name(*phase) == text.to_lowercase());
    found.ok_or_else(|| format!("it must be one of {}", Phase::ALL.map(name).join(", ")))
}

pub(super) async fn run(args: GetArgs) -> Result<()> {
    if args.kind != Kind::Jobs && (args.queue.is_some() || !args.phase.is_empty()) {
        bail!("--phase and --queue are about jobs");
    }
    let connection = args.cluster.connect().await?;
    match args.kind {
        Kind::Jobs => get::<BuildJob>(&args, &connection).await,
        Kind::Environments => get::<BuildEnvironment>(&args, &connection).await,
        Kind::Mirrors => get::<RepoMirror>(&args, &connection).await,
    }
}

/// An object of ours.
trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Listed
    + Clone
    + Debug
    + Send
    + Serialize
    + DeserializeOwned
    + 'static
{
}

impl Object for BuildJob {}
impl Object for BuildEnvironment {}
impl Object for RepoMirror {}

async fn get<K: Object>(args: &GetArgs, connection: &Connection) -> Result<()> {
    let Connection { cluster, namespace } = connection;
    let api: Api<K> = if args.all_namespaces {
        Api::all(cluster.calls.clone())
    } else {
        Api::namespaced(cluster.calls.clone(), namespace)
    };
    let place =
        if args.all_namespaces { "all namespaces".to_owned() } else { format!("namespace {namespace}") };
    if args.watch {
        return watch::<K>(args, connection, &place).await;
    }
    let mut found = Vec::new();
    if args.names.is_empty() {
        let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
        let listed =
            api.list(&params).await.map_err(failed(format!("list {} in {place}", K::plural(&()))))?;
        found.extend(listed.items.into_iter().filter(|object| is_asked_for(object, args)));
        found.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
    }
    for name in &args.names {
        found.push(one(&api, connection, args.kind, name).await?);
    }
    if found.is_empty() && matches!(args.output, ListFormat::Table | ListFormat::Wide) {
        say(&format!("no {} in {place}", K::plural(&())));
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    let is_one = args.names.len() == 1;
    print(&mut out, args, &found, is_one)?;
    out.flush()?;
    Ok(())
}

/// The one object that is meant.
async fn one<K: Object>(api: &Api<K>, connection: &Connection, kind: Kind, text: &str) -> Result<K> {
    let namespace = &connection.namespace;
    let name = match kind {
        Kind::Jobs => address::find(&connection.cluster.calls, namespace, text).await?.name_any(),
        _ => text.rsplit('/').next().unwrap_or(text).to_owned(),
    };
    let attempt = format!("read {} {namespace}/{name}", K::kind(&()));
    match api.get_opt(&name).await.map_err(failed(attempt))? {
        Some(object) => Ok(object),
        None => bail!("there is no {} {name} in namespace {namespace}", K::kind(&())),
    }
}

fn is_asked_for<K: Listed>(object: &K, args: &GetArgs) -> bool {
    (args.phase.is_empty() || object.phase().is_some_and(|phase| args.phase.contains(&phase)))
        && (args.queue.is_none() || object.queue() == args.queue.as_deref())
}

fn print<K: Object>(out: &mut impl Write, args: &GetArgs, found: &[K], is_one: bool) -> Result<()> {
    let now = Timestamp::now();
    match args.output {
        ListFormat::Table | ListFormat::Wide => {
            let (wide, named) = (args.output == ListFormat::Wide, args.all_namespaces);
            let rows: Vec<_> = found.iter().map(|object| columns::row(object, wide, named, now)).collect();
            for line in output::table(&columns::heads::<K>(wide, named), &rows) {
                writeln!(out, "{line}")?;
            }
        }
        ListFormat::Name => {
            for object in found {
                writeln!(out, "{}", printed_name(object))?;
            }
        }
        ListFormat::Json => Output::Json.write(out, &document(found, is_one)?)?,
        ListFormat::Yaml => Output::Yaml.write(out, &document(found, is_one)?)?,
    }
    Ok(())
}

/// As kubectl has it, which also takes it.
fn printed_name<K: Object>(object: &K) -> String {
    format!("{}.{}/{}", K::kind(&()).to_lowercase(), names::GROUP, object.name_any())
}

/// The object that was asked for by its name, or a list. Who owns which field interests nobody here.
fn document<K: Object>(found: &[K], is_one: bool) -> Result<Value> {
    let plain = |object: &K| {
        let mut object = object.clone();
        object.meta_mut().managed_fields = None;
        serde_json::to_value(object).context("cannot write an object")
    };
    let mut items = found.iter().map(plain).collect::<Result<Vec<_>>>()?;
    if is_one && items.len() == 1 {
        return Ok(items.remove(0));
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

/// Prints what is there, and then each change as it comes, until somebody has seen enough.
async fn watch<K: Object>(args: &GetArgs, connection: &Connection, place: &str) -> Result<()> {
    let Connection { cluster, namespace } = connection;
    let api: Api<K> = if args.all_namespaces {
        Api::all(cluster.streams.clone())
    } else {
        Api::namespaced(cluster.streams.clone(), namespace)
    };
    let mut config = settings::watch();
    if let Some(selector) = &args.selector {
        config = config.labels(selector);
    }
    let mut events = std::pin::pin!(watcher(api, config));
    let mut table = LiveTable::default();
    let attempt = || format!("cannot watch {} in {place}", K::plural(&()));
    while let Some(event) = events.try_next().await.map_err(explained).with_context(attempt)? {
        table.take(args, event)?;
    }
    Ok(())
}

/// The API server's own words, where it has said something.
fn explained(error: watcher::Error) -> anyhow::Error {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => {
            anyhow::anyhow!(status.message.clone())
        }
        other => other.into(),
    }
}

/// A table that grows: first what is there, then a line for each change.
struct LiveTable<K> {
    listed: Vec<K>,
    /// Set once what is there has been printed. A watch that is begun anew tells all of it again.
    widths: Option<Vec<usize>>,
    /// The last line of each object, so that what has not changed is not repeated.
    last: std::collections::BTreeMap<String, Vec<String>>,
}

impl<K> Default for LiveTable<K> {
    fn default() -> Self {
        Self { listed: Vec::new(), widths: None, last: std::collections::BTreeMap::new() }
    }
}

impl<K: Object> LiveTable<K> {
    fn take(&mut self, args: &GetArgs, event: Event<K>) -> Result<()> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => self.listed.push(object),
            Event::InitDone => {
                let mut listed = std::mem::take(&mut self.listed);
                listed.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
                for object in listed {
                    self.show(args, &object)?;
                }
            }
            Event::Apply(object) => self.show(args, &object)?,
            Event::Delete(object) => {
                self.last.remove(&object.uid().unwrap_or_default());
                if is_asked_for(&object, args) && matches!(args.output, ListFormat::Table | ListFormat::Wide)
                {
                    say(&format!("{} is gone", object.name_any()));
                }
            }
        }
        Ok(())
    }

    fn show(&mut self, args: &GetArgs, object: &K) -> Result<()> {
        if !is_asked_for(object, args) {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if !matches!(args.output, ListFormat::Table | ListFormat::Wide) {
            print(&mut out, args, std::slice::from_ref(object), true)?;
            return Ok(out.flush()?);
        }
        let (wide, named) = (args.output == ListFormat::Wide, args.all_namespaces);
        let row = columns::row(object, wide, named, Timestamp::now());
        let key = object.uid().unwrap_or_default();
        if self.last.get(&key).is_some_and(|last| columns::is_same::<K>(last, &row, named)) {
            return Ok(());
        }
        if self.widths.is_none() {
            let heads: Vec<String> =
                columns::heads::<K>(wide, named).iter().map(ToString::to_string).collect();
            let mut widths = table::widths(&[&heads, &row]);
            // Phases and ages grow.
            for width in &mut widths {
                *width = (*width).max(9);
            }
            writeln!(out, "{}", table::line(&heads, &widths))?;
            self.widths = Some(widths);
        }
        writeln!(out, "{}", table::line(&output::dashed(&row), self.widths.as_deref().unwrap_or_default()))?;
        self.last.insert(key, row);
        Ok(out.flush()?)
    }
}
