//! Every fenced block of every document is what it claims to be: pipelines become pods, manifests and configurations are read
//! as the cluster and the operator read them, commands exist. A block that no rule knows fails.
//!
//! - [`manifests`]: what YAML is
//! - [`commands`]: what is typed in a shell

mod commands;
mod manifests;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Input of our own commands that is not meant to be right, or not ours. Tests of these commands compare what is shown to come of it.
const INPUT: [(&str, &str); 2] =
    [("docs/linting.md", "env:\n  BK_OPERATOR_LOG_PATH:"), ("docs/migrating.md", "agentStackSecret:")];

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is in a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory exists");
    entries.map(|entry| entry.expect("it can be listed").path()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A document and its path in the repository.
struct Document {
    path: String,
    text: String,
}

/// All documents that users read.
fn documents() -> Vec<Document> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "plugin/README.md"].map(|name| root().join(name)).into();
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for path in files(&directory) {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| Document {
        text: read(&path),
        path: path.strip_prefix(root()).expect("it is below the root").display().to_string(),
    };
    paths.into_iter().map(read).collect()
}

/// A fenced block.
pub(crate) struct Block {
    /// The number of its first line.
    line: usize,
    pub(crate) language: String,
    pub(crate) body: String,
}

/// The fenced blocks of a document, without the indentation of the list that they are in.
pub(crate) fn fenced(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some((indent, language)) = line.split_once("```").filter(|(indent, _)| indent.trim().is_empty())
        else {
            continue;
        };
        let body: Vec<_> = lines
            .by_ref()
            .map(|(line, _)| line)
            .take_while(|line| line.trim() != "```")
            .map(|line| line.strip_prefix(indent).unwrap_or(line))
            .collect();
        blocks.push(Block { line: number, language: language.to_owned(), body: body.join("\n") + "\n" });
    }
    blocks
}

fn is_input(path: &str, body: &str) -> bool {
    INPUT.iter().any(|(document, start)| path == *document && body.starts_with(start))
}

#[test]
fn every_block_is_what_it_claims_to_be() {
    let mut problems = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let blocks = fenced(&document.text);
        let shown = manifests::Shown::of(&blocks);
        for block in &blocks {
            seen += 1;
            let outcome = match block.language.as_str() {
                "yaml" if is_input(&document.path, &block.body) => Ok(()),
                "yaml" => manifests::check(&block.body, &shown),
                "sh" => commands::check(&block.body),
                "json" => serde_json::from_str::<serde_json::Value>(&block.body)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                "console" => commands::check(&commands::typed(&block.body)),
                // What programs print.
                "" | "text" => commands::none(&block.body),
                other => Err(format!("nobody knows how to check `{other}`")),
            };
            problems
                .extend(outcome.err().map(|problem| format!("{}:{}: {problem}", document.path, block.line)));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(seen > 80, "the documents have blocks: {seen}");
}

/// Commands of ours in the sentences of a document.
fn named(document: &Document) -> Vec<String> {
    let ours = ["buildkite-operator ", "buildkite-local ", "kubectl buildkite ", "cargo xtask ", "make "];
    let mut fenced = false;
    let mut sentences = String::new();
    for line in document.text.lines() {
        let fence = line.trim_start().starts_with("```");
        if !fence && !fenced {
            sentences = sentences + line + "\n";
        }
        fenced ^= fence;
    }
    let quoted = sentences.split('`').skip(1).step_by(2);
    let commands = quoted.filter(|text| ours.iter().any(|program| text.starts_with(program)));
    // What may be left out is in brackets.
    commands.map(|text| text.replace(['[', ']', '…'], " ")).collect()
}

#[test]
fn commands_of_ours_that_a_sentence_names_exist() {
    let mut seen = 0;
    for document in documents() {
        for command in named(&document) {
            let checked = commands::check(&command);
            assert!(checked.is_ok(), "{}: `{command}`: {checked:?}", document.path);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} commands are named");
}

/// A page that is not in the site's list would be found by nobody.
#[test]
fn every_page_is_in_the_site() {
    let site = read(&root().join("mkdocs.yml"));
    for document in documents() {
        let Some(page) = document.path.strip_prefix("docs/") else { continue };
        let listed = site.lines().any(|line| line.trim_end().ends_with(&format!(": {page}")));
        assert!(listed || page.starts_with("decisions/0"), "docs/{page} is not in `nav` of mkdocs.yml");
    }
}

/// Claims about security name their tests, and those exist.
#[test]
fn claims_about_security_have_their_tests() {
    let page = read(&root().join("docs/security.md"));
    let mut seen = 0;
    for (file, name) in page.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_once(".rs: ")) {
        let source = read(&root().join(format!("{file}.rs")));
        assert!(source.contains(&format!("fn {name}(")), "{file}.rs has no test {name}");
        seen += 1;
    }
    assert!(seen > 15, "{seen} tests are named");
    // A row of the table of claims ends with its test.
    for row in page
        .lines()
        .skip_while(|line| *line != "| claim | shown by |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        assert!(row.contains(".rs: "), "{row} names no test");
    }
}
