//! How soon Buildkite hears why a job cannot run or was killed, and how soon a cancelled job is gone, on the real node.

use std::time::Duration;

use anyhow::{Context, Result};
use bk_e2e::{
    SAY_WHEN,
    registry::{Manner, Registry},
};

use super::command::Command;
use super::stage::{Setup, Stage, span};
use crate::figures::{Line, spread};

/// How often each is measured.
const TIMES: usize = 5;
const TOLD_TARGET: Duration = Duration::from_secs(5);
const GONE_TARGET: Duration = Duration::from_secs(2);

/// What is wrong with a job, as its pod has it, and since when that can be known.
struct Trouble {
    name: &'static str,
    /// `IMAGE` is there, `MISSING` is not, `NOW` is a command that says when.
    pod_spec: &'static str,
    /// The container that says when; without one, the pod's creation counts.
    says_when: Option<&'static str>,
}

const TROUBLES: [Trouble; 5] = [
    Trouble {
        name: "no such image: pod created → told",
        pod_spec: "containers: [{image: 'MISSING', command: ['true']}]",
        says_when: None,
    },
    Trouble {
        name: "bad image name: pod created → told",
        pod_spec: "containers: [{image: 'UPPER/case:9', command: ['true']}]",
        says_when: None,
    },
    Trouble {
        name: "no such Secret: pod created → told",
        pod_spec: "containers: [{image: 'IMAGE', command: ['true'], envFrom: [{secretRef: {name: none-such}}]}]",
        says_when: None,
    },
    Trouble {
        name: "init container about to fail → told",
        pod_spec: "initContainers: [{name: prepare, image: 'IMAGE', command: [sh, -c, 'NOW; exit 3']}], \
                   containers: [{image: 'IMAGE', command: ['true']}]",
        says_when: Some("prepare"),
    },
    Trouble {
        name: "about to take more memory than it has → told",
        pod_spec: "containers: [{image: 'IMAGE', command: ['NOW; exec tail /dev/zero'], \
                   resources: {limits: {memory: 64Mi}}}]",
        says_when: Some("container-0"),
    },
];

/// What a job waits for when it is cancelled: as its pod has it, and as the operator says it. `BROKEN` is an image of a registry that fails.
const WAITS: [(&str, &str, &str); 2] = [
    (
        "cancelled while it waits for a node → deleted",
        "nodeSelector: {no-node: has-this}, containers: [{image: any}]",
        "a node",
    ),
    ("cancelled while it waits for an image → deleted", "containers: [{image: 'BROKEN'}]", "image"),
];

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let registry = Registry::serve(&stage.world.environment).await?;
    let mut controller = stage.start(command, 1).await?;
    let mut lines = Vec::new();
    for trouble in &TROUBLES {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            controller.check()?;
            times.push(told(&stage, &registry, trouble).await.context(trouble.name)?);
        }
        lines.push(line(trouble.name, times, "< 5 s", TOLD_TARGET));
    }
    for (name, pod_spec, reason) in WAITS {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            controller.check()?;
            times.push(gone(&stage, &registry, pod_spec, reason).await.context(name)?);
        }
        lines.push(line(name, times, "< 2 s", GONE_TARGET));
    }
    drop(controller);
    stage.strike().await?;
    Ok(lines)
}

/// All of them keep within the target, or it is missed.
fn line(name: &str, times: Vec<Duration>, target: &'static str, limit: Duration) -> Line {
    let met = times.iter().all(|time| *time < limit);
    Line::value(name, spread(times).0).with_target(target, met)
}

/// A step whose pod is like this.
fn step(stage: &Stage, registry: &Registry, pod_spec: &str) -> String {
    let pod_spec = pod_spec
        .replace("IMAGE", &stage.world.environment.toolbox_image)
        .replace("MISSING", &registry.image(Manner::Missing))
        .replace("BROKEN", &registry.image(Manner::Broken))
        .replace("NOW", SAY_WHEN);
    format!("{{plugins: [{{kubernetes: {{podSpec: {{{pod_spec}}}}}}}]}}")
}

/// How long it takes until Buildkite hears of the trouble.
async fn told(stage: &Stage, registry: &Registry, trouble: &Trouble) -> Result<Duration> {
    let end = stage.world.submit(&step(stage, registry, trouble.pod_spec)).await?.end().await?;
    let since = trouble.says_when.map_or_else(|| end.created_at(), |container| end.said_at(container));
    Ok(span(since, end.told_at().context("Buildkite was not told")?))
}

/// How long it takes from the cancellation of a job that waits until its BuildJob and its pod are deleted.
async fn gone(stage: &Stage, registry: &Registry, pod_spec: &str, reason: &str) -> Result<Duration> {
    let run = stage.world.submit(&step(stage, registry, pod_spec)).await?;
    run.waiting_for(reason).await?;
    Duration::try_from(run.cancel().await?).context("the clock was set back")
}
