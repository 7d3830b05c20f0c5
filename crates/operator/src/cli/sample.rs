//! Objects for tests of what commands print.

use bk_api::BuildJob;
use jiff::Timestamp;
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../../../../docs/command-line.md");

/// Checks that an example in the document is what is printed.
pub(super) fn documented(printed: &str) {
    let printed = printed.trim_end();
    assert!(
        DOCUMENT.contains(&format!("\n```\n{printed}\n```\n")),
        "docs/command-line.md does not have\n{printed}"
    );
}

/// The present in these tests.
pub(super) fn now() -> Timestamp {
    "2026-11-18T10:05:00Z".parse().expect("a time")
}

/// A BuildJob of a queue with this status.
#[allow(clippy::needless_pass_by_value, reason = "tests are shorter so")]
pub(super) fn job(name: &str, status: Value) -> BuildJob {
    let manifest = json!({
        "apiVersion": "buildkite-operator.dev/v1alpha1",
        "kind": "BuildJob",
        "metadata": {
            "name": name,
            "namespace": "ci",
            "uid": format!("uid-of-{name}"),
            "creationTimestamp": "2026-11-18T10:00:00Z",
        },
        "spec": {
            "buildkite": {
                "jobUUID": "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a",
                "queue": "linux",
                "pipeline": "demo",
                "build": 12,
                "step": "test",
                "url": "https://buildkite.com/acme/demo/builds/12",
                "priority": 0,
            },
            "source": {"repo": "https://github.com/acme/demo.git", "commit": "104bdbb", "branch": "main"},
            "command": "make test\nmake lint",
            "image": "golang:1.26",
        },
        "status": status,
    });
    serde_json::from_value(manifest).expect("a BuildJob")
}

/// One that waits for a node.
pub(super) fn waiting(name: &str) -> BuildJob {
    job(
        name,
        json!({
            "phase": "Starting", "podName": name, "podCreatedAt": "2026-11-18T10:00:01Z",
            "waitingFor": "a node: 0/12 nodes are available: 8 Insufficient cpu, 4 node(s) had untolerated taint {dedicated: gpu}",
        }),
    )
}

/// One whose command has failed.
pub(super) fn failed(name: &str) -> BuildJob {
    job(
        name,
        json!({
            "phase": "Failed", "exitStatus": 3, "attempt": 1, "podName": format!("{name}-try1"), "nodeName": "node-7",
            "podCreatedAt": "2026-11-18T10:00:01Z", "startedAt": "2026-11-18T10:00:03Z",
            "finishedAt": "2026-11-18T10:02:33Z",
            "verdict": {
                "code": "CommandFailed", "fault": "User", "message": "the command in container-0 ended with status 3",
                "advice": "see the job's log", "exitStatus": 3, "evidence": ["container-0: exited with 3 (Error)"],
            },
            "conditions": [
                {"type": "PodCreated", "status": "True", "reason": "Created", "message": "", "lastTransitionTime": "2026-11-18T10:00:01Z"},
                {"type": "LogsExported", "status": "False", "reason": "NotConfigured", "message": "no sink is configured",
                 "lastTransitionTime": "2026-11-18T10:00:01Z"},
            ],
            "exporters": [{"name": "log-exporter", "sinks": [{"name": "search", "sent": 120, "waiting": 0, "lost": 3, "reason": "400 from the server"}]}],
        }),
    )
}
