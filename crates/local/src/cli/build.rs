//! `buildkite-local build`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use serde_json::json;

use super::client::Client;
use super::connection::Connection;
use super::repository::{Directory, Head, Source, Wanted};
use super::terminal::{self, Terminal, Tone};
use super::watch;

/// Where a repository keeps its pipeline, in the order that agents look.
const USUAL_FILES: [&str; 4] =
    [".buildkite/pipeline.yml", ".buildkite/pipeline.yaml", "buildkite.yml", "buildkite.yaml"];

/// Flags of `build`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The pipeline, in YAML [default: .buildkite/pipeline.yml of the repository]
    #[arg(value_name = "PIPELINE.yml")]
    file: Option<PathBuf>,

    /// Repository that agents check out: a directory on the server's machine, or a git URL
    #[arg(long, value_name = "DIR|URL", default_value = ".")]
    repo: String,

    /// Branch to build [default: of a directory, the current one; of a URL, main]
    #[arg(long, conflicts_with = "dirty")]
    branch: Option<String>,

    /// Commit to build [default: the branch's newest]
    #[arg(long, conflicts_with = "dirty")]
    commit: Option<String>,

    /// Build the directory as it is, with changes and new files that are not committed
    #[arg(long)]
    dirty: bool,

    /// What the build is about [default: the commit's message]
    #[arg(long, short)]
    message: Option<String>,

    /// Environment variable of the build; may be repeated
    #[arg(long = "env", short, value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,

    /// Meta-data of the build; may be repeated
    #[arg(long = "meta-data", value_name = "KEY=VALUE", value_parser = pair)]
    meta_data: Vec<(String, String)>,

    /// Slug of the pipeline, created or updated [default: the directory's or the file's name]
    #[arg(long, value_name = "SLUG")]
    pipeline: Option<String>,

    /// Print steps and logs as they come, and exit with the build's result
    ///
    /// The exit code is 0 when the build passed, 1 when it failed, 3 when it was canceled, and 4 when it
    /// is blocked and standard output is no terminal. Ctrl-C cancels the build, a second one leaves it.
    #[arg(long, short)]
    watch: bool,

    #[command(flatten)]
    connection: Connection,
}

/// `KEY=VALUE`, for flags.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let source = Source::of(&args.repo)?;
    let file = pipeline_file(args.file.as_deref(), &source)?;
    let yaml = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read the pipeline {}", file.display()))?;
    let slug = match &args.pipeline {
        Some(slug) => slug.clone(),
        None => default_slug(&file, &source)?,
    };
    let (repository, head) = check_out(&args, &source, &client).await?;
    client.put_pipeline(&slug, &repository, &yaml).await?;
    let env: BTreeMap<_, _> = args.env.into_iter().collect();
    let meta_data: BTreeMap<_, _> = args.meta_data.into_iter().collect();
    let (name, email) = &head.author;
    let author = (!name.is_empty()).then(|| json!({ "name": name, "email": email }));
    let body = json!({
        "commit": head.commit, "branch": head.branch, "message": args.message.unwrap_or(head.message),
        "env": env, "meta_data": meta_data, "author": author,
    });
    let build = client.create_build(&slug, &body).await?;
    let terminal = Terminal::stdout();
    terminal.line(Tone::Plain, &format!("build {} {}", build.name(), build.web_url));
    if args.watch {
        return watch::watch(&client, &slug, build.number, &terminal).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// The repository's address for agents, and the commit to build.
async fn check_out(args: &Args, source: &Source, client: &Client) -> anyhow::Result<(String, Head)> {
    let (branch, commit) = (args.branch.as_deref(), args.commit.as_deref());
    match source {
        Source::Url(_) if args.dirty => bail!("--dirty needs a directory, and --repo is a URL"),
        Source::Url(url) => {
            let head = Head {
                commit: commit.unwrap_or("HEAD").to_owned(),
                branch: branch.unwrap_or("main").to_owned(),
                message: String::new(),
                author: (String::new(), String::new()),
                left_out: 0,
            };
            Ok((url.clone(), head))
        }
        Source::Directory(path) => {
            let directory = Directory::open(path)?;
            let head = directory.head(&Wanted { branch, commit, dirty: args.dirty })?;
            if head.left_out > 0 {
                terminal::note(&format!(
                    "{} not committed and left out of the build; add --dirty to build with {}",
                    if head.left_out == 1 {
                        "1 file is".to_owned()
                    } else {
                        format!("{} files are", head.left_out)
                    },
                    if head.left_out == 1 { "it" } else { "them" },
                ));
            }
            let url = client.serve_directory(&directory.path, &head.commit).await?;
            Ok((url, head))
        }
    }
}

/// The file that was named, or the repository's usual one.
fn pipeline_file(given: Option<&Path>, source: &Source) -> anyhow::Result<PathBuf> {
    match (given, source) {
        (Some(file), _) => Ok(file.to_owned()),
        (None, Source::Url(_)) => Err(anyhow!("name the pipeline's file: the repository is not a directory")),
        (None, Source::Directory(path)) => {
            let top = Directory::open(path)?.path;
            USUAL_FILES.iter().map(|file| top.join(file)).find(|file| file.is_file()).ok_or_else(|| {
                anyhow!("{} has no {}; name the pipeline's file", top.display(), USUAL_FILES[0])
            })
        }
    }
}

/// A pipeline in its usual place is named after the directory; others after their file:
/// `ci/deploy.production.yml` → `deploy-production`.
fn default_slug(file: &Path, source: &Source) -> anyhow::Result<String> {
    let usual = USUAL_FILES.iter().any(|usual| file.ends_with(usual));
    let directory = match source {
        Source::Directory(path) if usual => std::fs::canonicalize(path).ok(),
        _ => None,
    };
    let name = match &directory {
        Some(directory) => directory.file_name(),
        None => file.file_stem(),
    };
    let name = name.and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    let dashed: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    match dashed.trim_matches('-') {
        "" => bail!("cannot make a pipeline slug of {}; give --pipeline", file.display()),
        slug => Ok(slug.to_owned()),
    }
}
