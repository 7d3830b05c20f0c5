//! Commands in documents: ours exist with the flags that are shown; files that are named are there.

use std::{fs, path::Path};

use super::{files, manifests, read, root};
use crate::{operator, output};

/// Programs that documents use and this project has no part in. What they do needs the world outside.
const OTHERS: [&str; 15] = [
    "api",
    "apt-get",
    "az",
    "buildkite-agent",
    "cat",
    "curl",
    "eksctl",
    "gcloud",
    "generate-pipeline",
    "git",
    "kill",
    "kubectl",
    "ln",
    "mv",
    "openssl",
];

/// What nobody may hide among what programs print, where nobody would run it.
const TYPED: [&str; 9] = [
    "$",
    "buildkite-agent",
    "buildkite-local",
    "buildkite-operator",
    "cargo",
    "curl",
    "helm",
    "kubectl",
    "make",
];

type Checked = Result<(), String>;

/// Checks every command of a block.
pub(super) fn check(block: &str) -> Checked {
    let (commands, inputs) = split(block);
    for input in inputs.iter().filter(|input| input.contains("apiVersion:")) {
        manifests::check(input, &manifests::Shown::default())?;
    }
    commands.iter().try_for_each(|command| one(command).map_err(|problem| format!("`{command}`: {problem}")))
}

/// What is typed in a terminal, of which a block shows the answers, too.
pub(super) fn typed(block: &str) -> String {
    block.lines().filter_map(|line| line.strip_prefix("$ ")).collect::<Vec<_>>().join("\n")
}

/// That a block of what programs print has no command in it.
pub(super) fn none(block: &str) -> Checked {
    // A message may begin with the name of a program, and goes on with what it is about, and a colon.
    let is_typed = |line: &&str| {
        let mut words = line.split(' ');
        words.next().is_some_and(|word| TYPED.contains(&word))
            && !words.next().is_some_and(|word| word.ends_with(':'))
    };
    match block.lines().find(is_typed) {
        None => Ok(()),
        Some(line) => Err(format!("`{line}` is typed: the block is `sh`, or `console` if it shows answers")),
    }
}

/// The commands, each on one line and without comments, and what is handed to them as their input.
fn split(block: &str) -> (Vec<String>, Vec<String>) {
    let (mut commands, mut inputs) = (Vec::new(), Vec::new());
    let joined = block.replace("\\\n", " ");
    let mut lines = joined.lines();
    while let Some(line) = lines.next() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.contains("<<'END'") {
            let input: Vec<_> = lines.by_ref().take_while(|line| *line != "END").collect();
            inputs.push(input.join("\n") + "\n");
        }
        commands.extend(line.split(" | ").map(|part| part.trim().to_owned()));
    }
    (commands, inputs)
}

fn one(command: &str) -> Checked {
    let words: Vec<&str> = command.split_whitespace().skip_while(|word| is_assignment(word)).collect();
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    match (*program, rest) {
        ("buildkite-operator" | "buildkite-controller", rest)
        | ("kubectl", ["buildkite", rest @ ..])
        | ("cargo", ["run", "-p", "buildkite-operator", "--", rest @ ..]) => own(rest),
        ("buildkite-local", rest) => flags_in_sources(rest, "crates/local/src"),
        ("make", targets) => makefile(targets),
        ("cargo", ["xtask", rest @ ..]) => flags_in_sources(rest, "xtask/src"),
        ("cargo", ["test" | "install" | "deny", ..]) => Ok(()),
        ("helm", ["install" | "upgrade" | "uninstall" | "get" | "rollback" | "history", ..]) => {
            named_files(rest)
        }
        (program, _) if OTHERS.contains(&program) || program == "api()" => named_files(rest),
        _ => Err("nobody knows this program".to_owned()),
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// The flags among the words of a command line, up to what follows `--`.
fn flags<'a>(words: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let own = words.iter().take_while(|word| **word != "--");
    own.filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap_or(word))
}

/// Our own program has such a subcommand, and that has such flags.
fn own(words: &[&str]) -> Checked {
    let Some(subcommand) = words.first().filter(|word| !word.starts_with('-')) else { return Ok(()) };
    let all = output(operator().arg("--help"));
    let known = all.lines().any(|line| line.split_whitespace().next() == Some(subcommand));
    if !known {
        return Err(format!("there is no subcommand {subcommand}"));
    }
    let help = output(operator().args([subcommand, "--help"]));
    match flags(words).find(|flag| !help.split([' ', ',', '=', '\n', '[']).any(|word| word == *flag)) {
        None => Ok(()),
        Some(flag) => Err(format!("{subcommand} has no flag {flag}")),
    }
}

/// Programs of other packages are not built for this test: their sources name tasks and flags.
fn flags_in_sources(words: &[&str], directory: &str) -> Checked {
    let sources = sources(&root().join(directory));
    let task = words.first().filter(|word| !word.starts_with('-')).copied();
    let unknown =
        flags(words).find(|flag| !sources.contains(&flag.trim_start_matches("--").replace('-', "_")));
    let has_task = |task: &str| {
        let mut letters = task.chars();
        let variant: String =
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        sources.contains(&format!("    {variant}(")) || sources.contains(&format!("    {variant},"))
    };
    match (task.filter(|task| !has_task(task)), unknown) {
        (Some(task), _) => Err(format!("there is no task {task}")),
        (None, Some(flag)) => Err(format!("there is no flag {flag}")),
        (None, None) => Ok(()),
    }
}

fn sources(directory: &Path) -> String {
    let entries = files(directory).into_iter();
    let text = |path: std::path::PathBuf| {
        if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap_or_default() }
    };
    entries.map(text).collect()
}

fn makefile(targets: &[&str]) -> Checked {
    let makefile = read(&root().join("Makefile"));
    let targets = targets.iter().filter(|word| !is_assignment(word));
    match targets.into_iter().find(|target| !makefile.contains(&format!("\n{target}: "))) {
        None => Ok(()),
        Some(target) => Err(format!("there is no target {target}")),
    }
}

/// Files of this repository that a command names exist.
fn named_files(words: &[&str]) -> Checked {
    let ours = words
        .iter()
        .filter(|word| ["deploy/", "charts/", "examples/"].iter().any(|begin| word.starts_with(begin)));
    match ours.into_iter().find(|word| !root().join(word).exists()) {
        None => Ok(()),
        Some(word) => Err(format!("there is no {word}")),
    }
}
