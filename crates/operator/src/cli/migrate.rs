//! `buildkite-operator migrate`: settings of agent-stack-k8s become values of the operator's chart.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, ensure};
use bk_api::config::CONFIG_MAP;
use bk_migrate::Migration;
use clap::{Args, ValueEnum};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Map, Value};

use super::{output::yaml, plan};

/// Options of `migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// Helm values of agent-stack-k8s, or its controller's configuration; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// What to make of them
    #[arg(long, value_enum, default_value = "values")]
    to: Target,

    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Where to write what became of each setting [default: standard error]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What settings are turned into.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// Values of the chart buildkite-operator
    Values,
    /// The ConfigMap buildkite-operator-config
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    ConfigMap,
}

pub(super) fn run(args: &MigrateArgs) -> Result<()> {
    let migration = bk_migrate::migrate(&read(&args.file)?);
    let report = bk_migrate::report(&migration.report);
    match &args.report {
        Some(path) => write(path, &report)?,
        None => std::io::stderr().lock().write_all(report.as_bytes())?,
    }
    let file = plan::name(&args.file);
    ensure!(
        !migration.is_of_another_kind(),
        "{file} has no setting of agent-stack-k8s: is it the right file?"
    );
    migration.check().map_err(|error| anyhow!("{file} has a value that cannot be carried over: {error}"))?;
    let text = rendered(&migration, args.to)?;
    match &args.output {
        Some(path) => write(path, &text)?,
        None => std::io::stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    // Booleans as the other program reads them: `yes` and `y` are strings.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let document: Option<Value> = serde_saphyr::from_str_with_options(&plan::read_text(path)?, options)
        .with_context(|| format!("{} is not YAML", plan::name(path)))?;
    match document {
        Some(Value::Object(settings)) => Ok(settings),
        Some(Value::Null) | None => Ok(Map::new()),
        Some(_) => Err(anyhow!("{} holds neither Helm values nor a configuration", plan::name(path))),
    }
}

fn rendered(migration: &Migration, to: Target) -> Result<String> {
    match to {
        Target::Values => yaml(&migration.values),
        Target::ConfigMap => {
            let data: BTreeMap<String, String> = migration.data();
            let metadata = ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
            yaml(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() })
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
