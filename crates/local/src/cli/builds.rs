//! `buildkite-local builds` and `artifacts`.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::client::{Build, Client, read};
use super::connection::Connection;
use super::reference::{Reference, Target};
use super::table::{Output, table};
use super::terminal::{Terminal, Tone};

/// Flags of `builds`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Only builds of this pipeline
    #[arg(value_name = "PIPELINE")]
    pipeline: Option<String>,

    /// Only builds in this state; may be repeated
    #[arg(long)]
    state: Vec<String>,

    /// Only builds of this branch
    #[arg(long)]
    branch: Option<String>,

    /// How many, newest first
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "COUNT")]
    limit: u8,

    /// How to print the list
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Output,

    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    let mut filters = vec![("per_page", args.limit.to_string())];
    filters.extend(args.state.into_iter().map(|state| ("state[]", state)));
    filters.extend(args.branch.map(|branch| ("branch", branch)));
    let found = client.builds_as_json(args.pipeline.as_deref(), &filters).await?;
    if args.output == Output::Json {
        terminal.line(Tone::Plain, &serde_json::to_string_pretty(&found)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = read::<Vec<Build>>(found)?.iter().map(row).collect();
    if rows.is_empty() {
        terminal.line(Tone::Quiet, "no build");
    } else {
        terminal.lines(&table(&["BUILD", "STATE", "BRANCH", "COMMIT", "CREATED", "MESSAGE"], &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(build: &Build) -> Vec<String> {
    let commit = build.commit.chars().take(10).collect();
    let created = build.created_at.get(..19).unwrap_or(&build.created_at).replace('T', " ");
    let message = build.message.lines().next().unwrap_or_default().chars().take(60).collect();
    vec![build.name(), build.state.clone(), build.branch.clone(), commit, created, message]
}

/// Flags of `artifacts`.
#[derive(clap::Args)]
pub(super) struct ArtifactArgs {
    /// A build or a job: PIPELINE/NUMBER, a number, an id or an address
    #[arg(value_name = "BUILD|JOB")]
    name: Reference,

    /// Download the artifacts into this directory
    #[arg(long, value_name = "DIR")]
    download: Option<PathBuf>,

    /// How to print the list
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Output,

    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct Artifact {
    path: String,
    state: String,
    file_size: u64,
    sha1sum: String,
    download_url: String,
}

pub(super) async fn artifacts(args: ArtifactArgs) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let terminal = Terminal::stdout();
    let path = match args.name.resolve(&client).await? {
        Target::Job(id) => format!("jobs/{id}/artifacts"),
        Target::Build(build) => format!("pipelines/{}/builds/{}/artifacts", build.slug(), build.number),
    };
    let found: Value = client.list(&path).await?;
    if args.download.is_none() && args.output == Output::Json {
        terminal.line(Tone::Plain, &serde_json::to_string_pretty(&found)?);
        return Ok(ExitCode::SUCCESS);
    }
    let artifacts: Vec<Artifact> = read(found)?;
    if let Some(directory) = args.download {
        return download(&client, &terminal, &artifacts, &directory).await;
    }
    let rows: Vec<Vec<String>> = artifacts
        .into_iter()
        .map(|one| vec![one.path, one.state, one.file_size.to_string(), one.sha1sum])
        .collect();
    if rows.is_empty() {
        terminal.line(Tone::Quiet, "no artifact");
    } else {
        terminal.lines(&table(&["PATH", "STATE", "BYTES", "SHA1"], &rows));
    }
    Ok(ExitCode::SUCCESS)
}

async fn download(
    client: &Client,
    terminal: &Terminal,
    artifacts: &[Artifact],
    directory: &Path,
) -> anyhow::Result<ExitCode> {
    let whole: Vec<&Artifact> = artifacts.iter().filter(|one| one.state == "finished").collect();
    if whole.is_empty() {
        bail!("there is no artifact to download");
    }
    for artifact in whole {
        let file = directory.join(within(&artifact.path)?);
        let to = || format!("cannot write {}", file.display());
        if let Some(parent) = file.parent() {
            tokio::fs::create_dir_all(parent).await.with_context(to)?;
        }
        let mut response = client.download(&artifact.download_url).await?;
        let mut written = tokio::fs::File::create(&file).await.with_context(to)?;
        while let Some(bytes) = response.chunk().await.context("the download was cut off")? {
            written.write_all(&bytes).await.with_context(to)?;
        }
        written.flush().await.with_context(to)?;
        terminal.line(Tone::Plain, &file.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// The path below the directory that is downloaded to; never outside of it.
fn within(path: &str) -> anyhow::Result<PathBuf> {
    let plain: PathBuf =
        Path::new(path).components().filter(|part| !matches!(part, Component::RootDir)).collect();
    let inside = plain.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if inside && plain.file_name().is_some() {
        return Ok(plain);
    }
    bail!("the artifact {path:?} would be written outside of the directory")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a/b.txt", Some("a/b.txt"))]
    #[case("/abs/b.txt", Some("abs/b.txt"))]
    #[case("./a", Some("./a"))]
    #[case("../a", None)]
    #[case("a/../../b", None)]
    #[case("", None)]
    fn downloads_stay_inside(#[case] path: &str, #[case] expected: Option<&str>) {
        assert_eq!(within(path).ok(), expected.map(PathBuf::from));
    }
}
