//! Jobs with the real agent on the real node, images present: one at a time, and a burst.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use uuid::Uuid;

use super::calls::Call;
use super::command::{Command, Controller};
use super::stage::{Goal, Job, Setup, Stage, span};
use crate::figures::{Line, spread};

const JOBS: u32 = 20;
const BURST: usize = 20;
/// How many bursts there are, and how long nothing happens before each.
const BURSTS: usize = 3;
const BETWEEN_BURSTS: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_mins(2);
/// Pauses between jobs, so that they do not meet the controller's rounds in step.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(130), Duration::from_millis(470), Duration::from_millis(810)];
/// What the burst may take: three fifths of 14 s.
const BURST_TARGET: Duration = Duration::from_millis(8_400);

/// When what happened to a job, as Buildkite saw it.
#[derive(Default)]
pub(super) struct Moments {
    pub(super) acquired: Option<Timestamp>,
    logged: Option<Timestamp>,
    pub(super) finished: Option<Timestamp>,
}

pub(super) async fn run(setup: &Setup, command: &Command) -> Result<Vec<Line>> {
    let stage = Stage::set(setup).await?;
    let mut controller = stage.start(command, BURST).await?;
    stage.pipeline("{label: bench, command: ./hello.sh}").await?;
    let mut jobs = Vec::new();
    for (_, pause) in (0..=JOBS).zip(PAUSES.into_iter().cycle()) {
        jobs.extend(stage.build().await?);
        let gone = jobs.len();
        let over =
            stage.until_all(LIMIT, &mut controller, None, Goal::gone(gone), || stage.pods.gone()).await?;
        ensure!(over, "a job's pod is not gone after {} s", LIMIT.as_secs());
        tokio::time::sleep(pause).await;
    }
    // The first one found nothing warm.
    let mut lines = one_by_one(&stage, &jobs[1..])?;

    let mut took = Vec::new();
    for _ in 0..BURSTS {
        tokio::time::sleep(BETWEEN_BURSTS).await;
        took.push(burst(&stage, &mut controller).await?);
    }
    took.sort_unstable();
    let (finished, gone) = took[BURSTS / 2];
    let [first, last] = [took[0].0, took[BURSTS - 1].0].map(|finished| finished.as_secs_f64());
    let text = format!(
        "{BURSTS} times, median {:.1} s ({first:.1} to {last:.1}), pods gone after {:.1} s",
        finished.as_secs_f64(),
        gone.as_secs_f64()
    );
    let line = Line::value(format!("{BURST} jobs at once: all finished"), text);
    lines.push(line.with_target("< 8.4 s", finished < BURST_TARGET));
    stage.strike().await?;
    Ok(lines)
}

/// Many jobs at once: how long it takes until all have finished, and until their pods are gone.
async fn burst(stage: &Stage, controller: &mut Controller) -> Result<(Duration, Duration)> {
    let (mark, before) = (Timestamp::now(), stage.pods.gone());
    let mut jobs = Vec::new();
    for _ in 0..BURST {
        jobs.extend(stage.build().await?);
    }
    let all = before + jobs.len();
    let over = stage.until_all(LIMIT, controller, None, Goal::gone(all), || stage.pods.gone()).await?;
    ensure!(over, "{} of {all} pods are gone", stage.pods.gone());
    let moments = moments(&stage.buildkite_calls(mark)?);
    let first = jobs.iter().map(|job| job.scheduled).min().unwrap_or(mark);
    let last = jobs.iter().filter_map(|job| moments.get(&job.id)?.finished).max().unwrap_or(first);
    Ok((span(first, last), span(first, stage.pods.last_gone().unwrap_or(first))))
}

fn one_by_one(stage: &Stage, jobs: &[Job]) -> Result<Vec<Line>> {
    let moments = moments(&stage.buildkite_calls(Timestamp::MIN)?);
    let since_scheduled = |moment: fn(&Moments) -> Option<Timestamp>| -> Vec<Duration> {
        jobs.iter().filter_map(|job| Some(span(job.scheduled, moment(moments.get(&job.id)?)?))).collect()
    };
    let created: Vec<Duration> =
        jobs.iter().filter_map(|job| Some(span(job.scheduled, stage.pods.of(job.id)?.created))).collect();
    let gone = jobs
        .iter()
        .filter_map(|job| Some(span(moments.get(&job.id)?.finished?, stage.pods.of(job.id)?.gone?)));
    let steps = [
        ("scheduled → pod created", created, None),
        ("scheduled → agent has the job", since_scheduled(|m| m.acquired), Some(("< 1.1 s", 1_100))),
        ("scheduled → first of the log", since_scheduled(|m| m.logged), Some(("< 1.6 s", 1_600))),
        ("scheduled → finished", since_scheduled(|m| m.finished), Some(("< 1.6 s", 1_600))),
        ("finished → pod gone", gone.collect(), Some(("< 1 s", 1_000))),
    ];
    Ok(steps
        .into_iter()
        .map(|(name, times, target)| {
            let (text, median) = spread(times);
            let line = Line::value(name, text);
            match target {
                Some((target, limit)) => line.with_target(target, median < Duration::from_millis(limit)),
                None => line,
            }
        })
        .collect())
}

/// When each job was acquired, first logged and finished.
pub(super) fn moments(calls: &[Call]) -> HashMap<Uuid, Moments> {
    let mut all = HashMap::<Uuid, Moments>::new();
    for call in calls.iter().filter(|call| (200..300).contains(&call.status)) {
        let Some(job) = call.job else { continue };
        let moments = all.entry(job).or_default();
        let moment = match call.kind.as_str() {
            "PUT jobs/…/acquire" => &mut moments.acquired,
            "POST jobs/…/chunks" => &mut moments.logged,
            "PUT jobs/…/finish" => &mut moments.finished,
            _ => continue,
        };
        moment.get_or_insert(call.at);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_success_of_each_kind_counts() {
        let job = Uuid::from_u128(1);
        let at = |second| Timestamp::from_second(second).unwrap();
        let call = |second, kind: &str, status| Call {
            at: at(second),
            kind: kind.to_owned(),
            job: Some(job),
            status,
        };
        let calls = [
            call(1, "PUT jobs/…/acquire", 423),
            call(2, "PUT jobs/…/acquire", 200),
            call(3, "POST jobs/…/chunks", 201),
            call(4, "POST jobs/…/chunks", 201),
            call(5, "PUT jobs/…/start", 200),
        ];
        let moments = moments(&calls);
        let moments = &moments[&job];
        assert_eq!((moments.acquired, moments.logged, moments.finished), (Some(at(2)), Some(at(3)), None));
    }
}
