//! `buildkite-operator lint`: what is wrong with pipelines and manifests, without a cluster.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, ensure};
use bk_lint::{Context, Finding, Level, Strangers};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{
    outcome,
    output::{Output, say},
    plan,
};

/// What the help ends with.
const EXIT_STATUSES: &str = "Exit status: 0 if there are no errors, though there may be warnings; 1 if there are errors; \
2 if something could not be read.";

/// What files of ours are called, where a directory is given.
const ENDINGS: [&str; 2] = ["yaml", "yml"];
/// What such a file has in it: everything else in a directory is let be.
const MARKS: [&str; 3] = ["steps:", "buildkite-operator.dev/", bk_api::config::CONFIG_MAP];

/// Options of `lint`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUSES)]
pub(super) struct LintArgs {
    /// Pipelines and manifests, or directories with them; `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The ConfigMap `buildkite-operator-config`, to know queues, tags and resource classes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// All BuildEnvironments and PodTemplates that there are, besides those in the files
    #[allow(clippy::doc_markdown, reason = "users read this, not rustdoc")]
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,

    /// Replace misspelt words in the files by those that were meant, and print what is left
    #[arg(long)]
    fix: bool,

    /// How to print what is found
    #[arg(long, short, value_enum, default_value = "text")]
    output: Form,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// A line each, as compilers have it
    Text,
    /// A list of objects
    Json,
    /// The same
    Yaml,
}

/// A finding and its file.
#[derive(Serialize)]
struct Located<'a> {
    file: &'a str,
    #[serde(flatten)]
    finding: Finding,
}

/// A text to look at.
struct Source {
    name: String,
    path: PathBuf,
    text: String,
    strangers: Strangers,
}

pub(super) fn run(args: &LintArgs) -> ExitCode {
    match lint(args) {
        Ok(true) => ExitCode::FAILURE,
        Ok(false) => ExitCode::SUCCESS,
        // A reader that went away is none of these.
        Err(error) if super::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            outcome(Err(error));
            ExitCode::from(2)
        }
    }
}

/// Prints what is found, and says whether there are errors.
fn lint(args: &LintArgs) -> Result<bool> {
    let mut sources = Vec::new();
    for path in &args.files {
        collect(path, Strangers::Refuse, &mut sources)?;
    }
    if args.fix {
        fix(args, &mut sources)?;
    }
    let context = context(args, &sources)?;
    let found: Vec<Located<'_>> = sources
        .iter()
        .flat_map(|source| {
            let findings = bk_lint::lint(&source.text, &context, source.strangers);
            findings.into_iter().map(|finding| Located { file: &source.name, finding })
        })
        .collect();
    print(args.output, &found)?;
    Ok(found.iter().any(|located| located.finding.level == Level::Error))
}

/// Writes files anew in which something is misspelt.
fn fix(args: &LintArgs, sources: &mut [Source]) -> Result<()> {
    ensure!(
        !sources.iter().any(|source| source.path == Path::new(plan::STDIN)),
        "--fix writes files, and standard input is none"
    );
    let context = context(args, sources)?;
    for source in sources {
        let mended = bk_lint::mend(&source.text, &context, source.strangers);
        if mended != source.text {
            std::fs::write(&source.path, &mended).with_context(|| format!("cannot write {}", source.name))?;
            say(&format!("{}: mended", source.name));
            source.text = mended;
        }
    }
    Ok(())
}

/// What is known: the configuration, and the objects in all files.
fn context(args: &LintArgs, sources: &[Source]) -> Result<Context> {
    let mut context = Context {
        config: args.config.as_deref().map(plan::read_config).transpose()?,
        complete: !args.with.is_empty(),
        ..Context::default()
    };
    let mut texts: Vec<String> = args.with.iter().map(|path| plan::read_text(path)).collect::<Result<_>>()?;
    texts.extend(sources.iter().map(|source| source.text.clone()));
    for text in &texts {
        let found = bk_lint::surroundings(text);
        context.surroundings.environments.extend(found.environments);
        context.surroundings.pod_templates.extend(found.pod_templates);
    }
    Ok(context)
}

/// Adds a file, or the files of ours in a directory.
fn collect(path: &Path, strangers: Strangers, sources: &mut Vec<Source>) -> Result<()> {
    if path != Path::new(plan::STDIN) && path.is_dir() {
        let read = || format!("cannot read the directory {}", path.display());
        let entries = std::fs::read_dir(path).with_context(read)?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(read)?;
        paths.sort();
        // Links may lead in circles, and `.git` has nothing that anybody wrote.
        let is_ours = |path: &PathBuf| !path.is_symlink() && !path.ends_with(".git");
        for path in paths.iter().filter(|path| is_ours(path)) {
            let named = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
            if path.is_dir() || named {
                collect(path, Strangers::Ignore, sources)?;
            }
        }
        return Ok(());
    }
    let text = plan::read_text(path)?;
    if strangers == Strangers::Refuse || MARKS.iter().any(|mark| text.contains(mark)) {
        let (name, path) = (path.display().to_string(), path.to_owned());
        sources.push(Source { name, path, text, strangers });
    }
    Ok(())
}

fn print(form: Form, found: &[Located<'_>]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match form {
        Form::Json => Output::Json.write(&mut out, &found)?,
        Form::Yaml => Output::Yaml.write(&mut out, &found)?,
        Form::Text => {
            for Located { file, finding: Finding { line, column, level, message, .. } } in found {
                // A message is one line, whatever it quotes.
                let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
                writeln!(out, "{file}:{line}:{column}: {}: {message}", level.as_str())?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
