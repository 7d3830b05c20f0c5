//! `buildkite-local build`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::client::Client;
use super::terminal::{Terminal, Tone};
use super::watch;

/// Flags of `build`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The pipeline, in YAML
    #[arg(value_name = "PIPELINE.yml")]
    file: PathBuf,

    /// Repository that agents check out
    #[arg(long, value_name = "URL")]
    repo: String,

    /// Branch to build
    #[arg(long, default_value = "main")]
    branch: String,

    /// Commit to build
    #[arg(long, default_value = "HEAD")]
    commit: String,

    /// What the build is about
    #[arg(long, default_value = "")]
    message: String,

    /// Environment variable of the build; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Slug of the pipeline, created or updated [default: the file's name]
    #[arg(long, value_name = "SLUG")]
    pipeline: Option<String>,

    /// The server
    #[arg(long, env = "BUILDKITE_LOCAL_URL", default_value = "http://127.0.0.1:8384", value_name = "URL")]
    server: String,

    /// Slug of the server's organization
    #[arg(long, default_value = "local", value_name = "SLUG")]
    organization: String,

    /// Token of the REST API
    #[arg(
        long,
        env = "BUILDKITE_LOCAL_API_TOKEN",
        hide_env_values = true,
        default_value = "local-api-token",
        hide_default_value = true,
        value_name = "TOKEN"
    )]
    api_token: String,

    /// Print steps and logs as they come, and exit with the build's result
    #[arg(long)]
    watch: bool,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let yaml = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read the pipeline {}", args.file.display()))?;
    let slug = match args.pipeline {
        Some(slug) => slug,
        None => slug_of(&args.file)?,
    };
    let client = Client::new(&args.server, &args.organization, args.api_token)?;
    client.put_pipeline(&slug, &args.repo, &yaml).await?;
    let env: BTreeMap<String, String> = args.env.into_iter().collect();
    let body = serde_json::json!({
        "commit": args.commit, "branch": args.branch, "message": args.message, "env": env,
    });
    let build = client.create_build(&slug, &body).await?;
    let terminal = Terminal::stdout();
    terminal.line(Tone::Plain, &format!("build #{} {}", build.number, build.web_url));
    if args.watch {
        return watch::watch(&client, &slug, build.number, &terminal).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// `.buildkite/pipeline.deploy.yml` → `pipeline-deploy`.
fn slug_of(file: &std::path::Path) -> anyhow::Result<String> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_lowercase();
    let dashed: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match dashed.trim_matches('-') {
        "" => bail!("cannot make a pipeline slug of {}; give --pipeline", file.display()),
        slug => Ok(slug.to_owned()),
    }
}
