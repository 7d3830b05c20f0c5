//! What it costs a job that its agent registers by way of the operator: jobs on the real node with the real agent, one at a time, in turns with the
//! agent token in the pod and without it.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::command::{Command, Controller};
use super::kubelet::moments;
use super::stage::{Goal, Job, Setup, Stage, span};
use crate::figures::{Line, spread};

/// Jobs each way. The times of jobs scatter by more than what is looked for.
const JOBS: usize = 60;
const LIMIT: Duration = Duration::from_mins(2);
/// Pauses between jobs, so that they do not meet the controller's rounds in step.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(130), Duration::from_millis(470), Duration::from_millis(810)];
/// What the broker may add to a job, in the middle.
const TARGET: f64 = 20.0;

/// Has agents trust their Buildkite.
const TRUST: &str = "{ volumes: [{ name: bench-authority, configMap: { name: bench-authority } }], containers: [{ name: agent, \
                     volumeMounts: [{ name: bench-authority, mountPath: /etc/ssl/certs/bench.crt, subPath: ca.crt }] }] }";

/// An operator and a Buildkite of its own, whose agents register one way.
struct Side {
    name: &'static str,
    stage: Stage,
    controller: Controller,
    begun: Timestamp,
    jobs: Vec<Job>,
}

/// Puts what agents have to trust where [`TRUST`] mounts it from.
fn trust(stage: &Stage) -> Result<()> {
    let Some(front) = &stage.front else { return Ok(()) };
    let file = format!("--from-file=ca.crt={}", front.authority().display());
    stage.world.cluster.kubectl(&["create", "configmap", "bench-authority", &file], None).map(drop)
}

/// How long the jobs of a side took.
#[derive(Default)]
struct Times {
    acquired: Vec<Duration>,
    finished: Vec<Duration>,
    /// The same since the operator's look into the queue that found them: without the wait for it, which is chance.
    listed_acquired: Vec<Duration>,
    listed_finished: Vec<Duration>,
    /// From the pod to its agent's job.
    from_pod: Vec<Duration>,
}

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let mut sides = [
        Side::set(setup, command, "agent token in the pod", "secret").await?,
        Side::set(setup, command, "by way of the broker", "broker").await?,
    ];
    // The first ones find nothing warm.
    for _ in 0..2 {
        for side in &mut sides {
            side.one().await?;
        }
    }
    for side in &mut sides {
        side.jobs.clear();
        side.begun = Timestamp::now();
    }
    for (round, pause) in (0..JOBS).zip(PAUSES.into_iter().cycle()) {
        sides.rotate_left(1);
        for side in &mut sides {
            side.one().await?;
            tokio::time::sleep(pause).await;
        }
        if (round + 1) % 10 == 0 {
            eprintln!("  {} jobs each way", round + 1);
        }
    }
    sides.sort_by_key(|side| side.name);
    let [with_token, by_broker] = &sides;
    let (before, after) = (with_token.times()?, by_broker.times()?);
    let mut lines = with_token.lines(&before).await?;
    lines.extend(by_broker.lines(&after).await?);
    for (name, before, after) in [
        ("listed → agent has the job", &before.listed_acquired, &after.listed_acquired),
        ("listed → finished", &before.listed_finished, &after.listed_finished),
        ("pod created → agent has the job", &before.from_pod, &after.from_pod),
    ] {
        let [before, after] = [before, after].map(|times| spread(times.clone()).1.as_secs_f64());
        let added = (after - before) * 1000.0;
        let line = Line::value(format!("added: {name}"), format!("{added:+.1} ms"));
        lines.push(line.with_target("<= 20 ms", added <= TARGET));
    }
    for side in &sides {
        side.stage.strike().await?;
    }
    Ok(lines)
}

impl Side {
    async fn set(setup: &Setup, command: &Command, name: &'static str, credentials: &str) -> Result<Self> {
        let mut stage = Stage::set(setup).await?;
        stage.secure().await?;
        trust(&stage)?;
        let config = format!("{{ agentCredentials: {credentials}, podSpecPatch: {TRUST} }}");
        stage.world.cluster.configure("pod_config", &config).await?;
        let command = command.with(&stage.world.broker_flags().join(" "));
        let controller = stage.start(&command, 1).await?;
        stage.pipeline("{label: bench, command: ./hello.sh}").await?;
        Ok(Self { name, stage, controller, begun: Timestamp::now(), jobs: Vec::new() })
    }

    /// One job from its beginning until its pod is gone.
    async fn one(&mut self) -> Result<()> {
        let gone = self.stage.pods.gone() + 1;
        self.jobs.extend(self.stage.build().await?);
        let stage = &self.stage;
        let goal = Goal::gone(gone);
        let over = stage.until_all(LIMIT, &mut self.controller, None, goal, || stage.pods.gone()).await?;
        ensure!(over, "{}: a job's pod is not gone after {} s", self.name, LIMIT.as_secs());
        Ok(())
    }

    fn times(&self) -> Result<Times> {
        let calls = self.stage.buildkite_calls(self.begun)?;
        let moments = moments(&calls);
        let mut looks: Vec<Timestamp> =
            calls.iter().filter(|call| call.is_look()).map(|call| call.at).collect();
        looks.sort_unstable();
        let mut times = Times::default();
        for job in &self.jobs {
            let (Some(seen), Some(pod)) = (moments.get(&job.id), self.stage.pods.of(job.id)) else {
                continue;
            };
            let (Some(acquired), Some(finished)) = (seen.acquired, seen.finished) else { continue };
            let Some(listed) = looks.iter().copied().find(|look| *look >= job.scheduled) else { continue };
            times.acquired.push(span(job.scheduled, acquired));
            times.finished.push(span(job.scheduled, finished));
            times.listed_acquired.push(span(listed, acquired));
            times.listed_finished.push(span(listed, finished));
            times.from_pod.push(span(pod.created, acquired));
        }
        ensure!(times.finished.len() == JOBS, "{}: {} jobs have finished", self.name, times.finished.len());
        Ok(times)
    }

    async fn lines(&self, times: &Times) -> Result<Vec<Line>> {
        self.stage.cleared(JOBS).await?;
        let calls = self.stage.api_calls(self.begun)?;
        let calls: Vec<_> = calls.iter().filter(|call| call.verb != "watch").collect();
        let writes = calls.iter().filter(|call| call.is_write()).count();
        #[allow(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]
        let per_job = |count: usize| count as f64 / JOBS as f64;
        let text = format!("{:.2} per job, {:.2} of them writes", per_job(calls.len()), per_job(writes));
        let name = self.name;
        Ok(vec![
            Line::value(format!("{name}: agent has the job"), spread(times.acquired.clone()).0),
            Line::value("  scheduled → finished", spread(times.finished.clone()).0),
            Line::value("  listed → agent has the job", spread(times.listed_acquired.clone()).0),
            Line::value("  listed → finished", spread(times.listed_finished.clone()).0),
            Line::value("  pod created → agent has the job", spread(times.from_pod.clone()).0),
            Line::value("  requests to the API server", text),
        ])
    }
}
