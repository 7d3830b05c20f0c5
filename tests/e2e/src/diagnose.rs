//! What a failed test prints: everything that explains it.
#![allow(clippy::print_stdout, reason = "this is a test's output")]

use crate::World;

/// Prints the operator's log, the namespace's objects and the logs of its pods.
pub fn print(world: &World) {
    println!("==== the operator's log");
    println!("{}", tail(&world.operator_log(), 200));
    for args in [
        vec!["get", "buildjobs", "-o", "yaml"],
        vec!["get", "pods", "-o", "wide"],
        vec!["describe", "pods"],
        vec!["get", "events", "--sort-by=.lastTimestamp"],
        vec!["logs", "-l", bk_api::names::LABEL_BUILD_JOB, "--all-containers", "--prefix", "--tail=100"],
    ] {
        println!("==== kubectl {}", args.join(" "));
        match world.cluster.try_kubectl(&args, None) {
            Ok(output) => {
                println!("{}", tail(&String::from_utf8_lossy(&output.stdout), 300));
                println!("{}", String::from_utf8_lossy(&output.stderr));
            }
            Err(error) => println!("{error:#}"),
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
