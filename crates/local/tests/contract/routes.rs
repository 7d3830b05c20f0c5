//! No endpoint is forgotten: every route in the source is in the table, or below with the reason why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::endpoints::all;

/// Routes that do not answer JSON to a caller with a token; they have tests of their own.
const APART: &[(&str, &str)] = &[
    ("/v3/jobs/{job}/chunks", "takes gzip: tests/server/logs.rs and agents.rs"),
    ("/git/", "speaks git's protocol: tests/server/git.rs"),
    ("/_artifacts/", "addresses carry a signature: tests/server/artifacts.rs"),
    ("/.well-known/", "open to everybody: tests/server/oidc.rs"),
    ("/page", "answers HTML and events to people: tests of its own"),
    ("/graphql", "its errors have GraphQL's shape: tests/server/graphql.rs"),
    ("/v1", "the same"),
];

/// The source files of the HTTP side, with the prefix that their routes have.
fn sources() -> Vec<(PathBuf, &'static str)> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut found = Vec::new();
    let mut directories = vec![api.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(&api).unwrap().to_string_lossy().into_owned();
                found.push((path, prefix(&name)));
            }
        }
    }
    found
}

fn prefix(name: &str) -> &'static str {
    match name.split(['/', '.']).next() {
        Some("agent" | "stacks") => "/v3",
        Some("rest") => "/v2/organizations/{org}",
        Some("page") => "/page",
        _ => "",
    }
}

/// The routes that a source file names literally. Macros and loops over names are beyond it: such routes are
/// written out in the table all the same, but nothing notices if they are not.
fn routes(source: &str, prefix: &str) -> BTreeSet<String> {
    let literal = |rest: &str| {
        let rest = rest.trim_start().strip_prefix('"')?;
        rest.split_once('"').map(|(path, _)| path.to_owned())
    };
    let paths = source.split(".route(").skip(1).filter_map(literal);
    // The job's part of OIDC lives beside what is open to everybody.
    let full = |path: String| {
        if path.starts_with("/jobs/{job}/oidc") { format!("/v3{path}") } else { format!("{prefix}{path}") }
    };
    paths.map(full).collect()
}

#[test]
fn every_route_is_in_the_table() {
    let known: BTreeSet<String> = all().map(|row| row.route.to_owned()).collect();
    let mut found = BTreeSet::new();
    for (path, prefix) in sources() {
        let source = fs::read_to_string(path).unwrap();
        // What is above the organisation comes first in its file.
        let (above, below) =
            source.split_once("/// The routes below an organisation,").unwrap_or(("", &source));
        found.extend(routes(above, "/v2"));
        found.extend(routes(below, prefix));
    }
    assert!(found.len() > 50, "the routes are written differently: {found:?}");
    let apart = |route: &&String| APART.iter().any(|(beginning, _)| route.starts_with(beginning));
    let forgotten: Vec<&String> = found.difference(&known).filter(|route| !apart(route)).collect();
    assert!(
        forgotten.is_empty(),
        "add these to crates/local/tests/contract/endpoints.rs, or say in routes.rs why not: {forgotten:#?}"
    );
    let written: BTreeSet<&String> = known.iter().filter(|route| !in_a_loop(route)).collect();
    let gone: Vec<_> = written.into_iter().filter(|route| !found.contains(*route)).collect();
    assert!(gone.is_empty(), "these are in the table, but not in the source: {gone:#?}");
}

/// Job actions of the REST API are laid out in a loop.
fn in_a_loop(route: &str) -> bool {
    route.starts_with("/v2/organizations/{org}/jobs/{job}/")
}
