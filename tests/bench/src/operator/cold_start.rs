//! A controller that starts where much has been done before.

use std::time::Duration;

use anyhow::{Result, ensure};
use bk_api::{BuildJob, names};
use bk_e2e::buildkite::QUEUE;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use uuid::Uuid;

use super::command::Command;
use super::stage::{self, Setup, Stage, span};
use crate::figures::Line;

/// BuildJobs that have ended and are kept.
const ENDED: usize = 10_000;
/// How many are made at once.
const CONCURRENCY: usize = 32;
const LIMIT: Duration = Duration::from_mins(2);
const MAX_IN_FLIGHT: usize = 100;

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let kwok = stage.nodes()?;
    // They must not go while they are counted on.
    stage.world.cluster.configure("pod_config", "failedTtlSeconds: 86400").await?;
    eprintln!("  making {ENDED} BuildJobs that have ended");
    history(&stage).await?;
    stage.pipeline(&stage::step(&kwok, 1)).await?;
    let job = stage.build().await?[0];

    let mut controller = command.start(&stage, MAX_IN_FLIGHT).await?;
    let came = stage.until(LIMIT, &mut controller, None, || Ok(stage.pods.of(job.id).is_some())).await?;
    ensure!(came, "the job has no pod: {}", controller.last_words());
    let created = stage.pods.of(job.id).map_or(controller.started, |pod| pod.created);
    let calls = stage.api_calls(controller.started)?;
    let name = names::build_job(&job.id.to_string());
    let taken = calls.iter().find(|call| call.verb == "create" && call.name.as_deref() == Some(&name));
    let taken = taken.map_or(created, |call| call.at);
    let (memory, peak) = controller.memory()?;
    let cpu = controller.cpu()?.as_secs_f64();
    kwok.remove()?;
    stage.strike().await?;
    let seconds = |until: Timestamp| format!("{:.2} s", span(controller.started, until).as_secs_f64());
    Ok(vec![
        Line::value(format!("{ENDED} ended BuildJobs: start → job taken"), seconds(taken)),
        Line::value("  start → its pod created", seconds(created)),
        Line::value("  processor until then", format!("{cpu:.2} s")),
        Line::value("  memory then", format!("{memory} MB, at most {peak} MB")),
    ])
}

/// Makes BuildJobs that have ended.
async fn history(stage: &Stage) -> Result<()> {
    let api = Api::<BuildJob>::namespaced(stage.world.cluster.client.clone(), &stage.world.cluster.namespace);
    stream::iter(0..ENDED).map(Ok).try_for_each_concurrent(CONCURRENCY, |_| ended(&api)).await
}

async fn ended(api: &Api<BuildJob>) -> Result<()> {
    let id = Uuid::new_v4().to_string();
    let name = names::build_job(&id);
    let spec = json!({
        "buildkite": {
            "jobUUID": id, "queue": QUEUE, "pipeline": "bench", "build": 1, "step": "test", "priority": 0,
            "url": "https://buildkite.example.com/organization/bench/builds/1",
            "agentQueryRules": [format!("queue={QUEUE}")],
        },
        "command": "make test",
        "image": "registry.example.com/team/test:1",
    });
    let mut job = BuildJob::new(&name, serde_json::from_value(spec)?);
    job.metadata.labels = Some([(names::LABEL_JOB_UUID.to_owned(), id)].into());
    api.create(&PostParams::default(), &job).await?;
    let status = json!({ "status": {
        "phase": "Failed", "attempt": 0, "exitStatus": 1, "finishedAt": Timestamp::now(),
        "podName": name, "nodeName": "node-1",
    } });
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}
