//! Every command of the agent is either run against the server, or needs no server.

use std::collections::BTreeSet;
use std::process::Command;

use crate::stage::Case;
use crate::{annotations, artifacts, caches, control, meta_data, process, steps, trust, uploads};

/// Every case that a test plays.
const CASES: &[&Case] = &[
    &annotations::ANNOTATIONS,
    &artifacts::ARTIFACTS,
    &artifacts::RETRIED,
    &caches::CACHE,
    &control::CANCEL,
    &control::JOB,
    &control::PAUSE,
    &control::PROMISE,
    &control::STOP,
    &meta_data::META_DATA,
    &steps::STEPS,
    &trust::OIDC,
    &trust::TRUST,
    &uploads::REPLACE,
    &uploads::UPLOADS,
];

/// What runs in every case: the agent itself, and the process that it runs each job in.
const ALWAYS: [&str; 2] = ["start", "bootstrap"];

/// Commands that do not talk to the server, and why.
const LOCAL: &[(&str, &str)] = &[
    ("acknowledgements", "prints licences"),
    ("env dump", "asks the agent's own job API over a socket"),
    ("env get", "asks the agent's own job API over a socket"),
    ("env set", "asks the agent's own job API over a socket"),
    ("env unset", "asks the agent's own job API over a socket"),
    (
        "kubernetes-bootstrap",
        "talks to the agent beside it over a socket; the end-to-end tests on a cluster run it",
    ),
    ("lock acquire", "asks the agent's own lock service over a socket"),
    ("lock do", "asks the agent's own lock service over a socket"),
    ("lock done", "asks the agent's own lock service over a socket"),
    ("lock get", "asks the agent's own lock service over a socket"),
    ("lock release", "asks the agent's own lock service over a socket"),
    ("redactor add", "asks the agent's own job API over a socket"),
    ("tool keygen", "writes files"),
    ("tool sign", "signs files; with --update it calls GraphQL, which agents do not"),
    ("workdir set", "asks the agent's own job API over a socket"),
];

/// Commands that help texts do not show.
const HIDDEN: [&str; 1] = ["cache"];

fn help(words: &[&str]) -> String {
    let output = Command::new(process::program().unwrap()).args(words).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Available commands are"));
    let commands =
        lines.take_while(|line| !line.starts_with("Options")).filter(|line| line.starts_with("  "));
    let names =
        commands.filter_map(|line| line.split_whitespace().next().map(|name| name.trim_end_matches(',')));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command with its subcommand.
fn commands() -> BTreeSet<String> {
    let top = listed(&help(&[]));
    assert!(top.len() > 15, "the help reads differently: {top:?}");
    let mut commands = BTreeSet::new();
    for name in top.iter().map(String::as_str).chain(HIDDEN) {
        let below = listed(&help(&[name]));
        if below.is_empty() {
            commands.insert(name.to_owned());
        }
        commands.extend(below.into_iter().map(|sub| format!("{name} {sub}")));
    }
    commands
}

#[test]
fn every_command_is_accounted_for() {
    let covered = CASES.iter().flat_map(|case| case.commands.iter().copied());
    let local = LOCAL.iter().map(|(command, _)| *command);
    let known: BTreeSet<String> = covered.chain(ALWAYS).chain(local).map(str::to_owned).collect();
    let commands = commands();
    let missing: Vec<_> = commands.difference(&known).collect();
    let gone: Vec<_> = known.difference(&commands).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not covered: {missing:?}; not there: {gone:?}");
}

#[test]
fn each_case_runs_what_it_says() {
    for case in CASES {
        for command in case.commands {
            let call = format!("buildkite-agent {command}");
            assert!(case.steps.contains(&call), "no {call} in {}", case.steps);
        }
    }
}
