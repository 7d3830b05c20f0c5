//! The proof that the agent registers with beside its token.

use crate::pod::{Container, End, Pod, shim};
use std::fs;
use std::path::Path;
use std::process::Command;

/// An agent's container whose command tells its variables. They are not the last of the environment, nor the first.
fn agent(pod: &Pod, flags: &[&str], proof: Option<&Path>, command: &[&str]) -> Container {
    let mut program = Command::new(shim());
    program.env("AAA", "first").env("BUILDKITE_AGENT_TOKEN", "ticket").env("ZZZ", "last");
    program.env_remove("BUILDKITE_SHIM_PROOF");
    if let Some(proof) = proof {
        program.env("BUILDKITE_SHIM_PROOF", proof);
    }
    pod.agent_in(program, &[&["--jobs", "a"], flags].concat(), command)
}

const TELL: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "echo $BUILDKITE_AGENT_TOKEN ${BUILDKITE_SHIM_PROOF-none} >> $EVENTS; env -0 | tr '\\n\\0' ' \\n' > $EVENTS.env",
];

fn environment(pod: &Pod) -> Vec<String> {
    let environment = fs::read_to_string(pod.outside("events.env")).unwrap();
    let mut entries: Vec<_> = environment.lines().map(str::to_owned).collect();
    entries.sort();
    entries
}

#[test]
fn the_agent_gets_its_token_with_the_proof_that_is_there_after_the_fence() {
    let pod = Pod::new();
    let proof = pod.outside("proof");
    fs::write(&proof, "old").unwrap();
    let agent = agent(&pod, &[], Some(&proof), &TELL);
    pod.until_ready();
    fs::write(&proof, "header.claims.signature\n").unwrap();
    let job = pod.job("a", &[], "true");
    assert_eq!(agent.wait(), End::plain(0));
    assert_eq!(pod.events(), ["ticket!header.claims.signature none"]);
    drop(job);
}

#[test]
fn nothing_else_in_the_environment_changes() {
    let mut pod = Pod::new();
    let proof = pod.outside("proof");
    fs::write(&proof, "x").unwrap();
    let mut environments = Vec::new();
    for proof in [None, Some(proof.as_path())] {
        pod = pod.again("0");
        assert_eq!(agent(&pod, &["--no-fence"], proof, &TELL).wait(), End::plain(0));
        environments.push(environment(&pod));
    }
    let expected: Vec<_> =
        environments[0].iter().map(|entry| entry.replace("_TOKEN=ticket", "_TOKEN=ticket!x")).collect();
    assert!(environments[0].contains(&"BUILDKITE_AGENT_TOKEN=ticket".to_owned()), "{environments:?}");
    assert_eq!(environments[1], expected);
}

#[test]
fn a_proof_as_long_as_there_is_room_for_arrives_whole() {
    let pod = Pod::new();
    let (proof, long) = (pod.outside("proof"), "p".repeat(4096));
    fs::write(&proof, &long).unwrap();
    assert_eq!(agent(&pod, &["--no-fence"], Some(&proof), &TELL).wait(), End::plain(0));
    assert_eq!(pod.events(), [format!("ticket!{long} none")]);
}

#[test]
fn a_file_without_a_proof_ends_the_pod_and_is_named() {
    for (content, flaw) in [
        (None, "no such file or directory (errno 2)"),
        (Some(" \n".to_owned()), "it is empty"),
        (Some("p".repeat(4097)), "it is larger than 4 KiB"),
        (Some("two\nlines\n".to_owned()), "it is not one word of text"),
    ] {
        let pod = Pod::new();
        let proof = pod.outside("proof");
        if let Some(content) = content {
            fs::write(&proof, content).unwrap();
        }
        let agent = agent(&pod, &[], Some(&proof), &TELL);
        let job = pod.job("a", &[], "true");
        let proof = proof.display();
        let reason = format!("cannot take the proof for the agent's registration from {proof}: {flaw}");
        assert_eq!(agent.wait(), End::abnormal(125, &reason));
        assert_eq!(pod.ended("agent").as_deref(), Some("125"));
        assert_eq!(job.wait(), End::abnormal(1, "not started: the agent ended first"));
        assert!(pod.events().is_empty());
    }
}

#[test]
fn a_proof_without_a_token_is_told() {
    let pod = Pod::new();
    let proof = pod.outside("proof");
    fs::write(&proof, "x").unwrap();
    let mut program = Command::new(shim());
    program.env_remove("BUILDKITE_AGENT_TOKEN").env("BUILDKITE_SHIM_PROOF", &proof);
    let agent = pod.agent_in(program, &["--jobs", "a", "--no-fence"], &TELL);
    let proof = proof.display();
    let flaw = "BUILDKITE_AGENT_TOKEN is not set, or not text";
    let reason = format!("cannot take the proof for the agent's registration from {proof}: {flaw}");
    assert_eq!(agent.wait(), End::abnormal(125, &reason));
}

#[test]
fn a_standalone_agent_needs_no_proof() {
    let pod = Pod::new();
    let agent = agent(&pod, &["--standalone"], Some(&pod.outside("absent")), &[]);
    assert_eq!(pod.job("a", &["--standalone"], "true").wait(), End::plain(0));
    assert_eq!(agent.wait(), End::plain(0));
}
