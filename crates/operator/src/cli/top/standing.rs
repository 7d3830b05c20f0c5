//! BuildJobs + the operator's numbers → how things stand.

use std::collections::BTreeMap;

use bk_api::{BuildJob, Phase, config::Config};
use bk_metrics::{family::Families, text};
use bk_plan::decide;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Serialize;

use crate::cli::{
    elapsed,
    get::{crop, queue},
    output::table,
};

/// How many ends are shown.
const ENDS: usize = 8;
/// How much of a reason is shown.
const REASON: usize = 90;

/// The operator's own numbers.
pub(super) struct Numbers(Families);

impl Numbers {
    /// Those of a page of metrics.
    pub(super) fn read(page: &str) -> Result<Self, String> {
        // What metrics mean is known; only their values are of interest.
        let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        text::read(&values.join("\n"))
            .map(Self)
            .map_err(|error| format!("line {}: {}", error.line, error.problem))
    }

    /// Whether the replica that they are of works.
    pub(super) fn leads(&self) -> bool {
        self.value("leader", None).is_some_and(|value| value > 0.0)
    }

    fn value(&self, name: &str, queue: Option<&str>) -> Option<f64> {
        let family = self.0.get(&format!("buildkite_operator_{name}"))?;
        let is_its = |labels: &BTreeMap<String, String>| {
            queue.is_none() || labels.get("queue").map(String::as_str) == queue
        };
        family.samples.iter().find(|sample| is_its(&sample.labels)).map(|sample| sample.value)
    }

    fn queues(&self) -> impl Iterator<Item = String> {
        let families =
            ["jobs_waiting", "queue_connected"].map(|name| self.0.get(&format!("buildkite_operator_{name}")));
        let samples = families.into_iter().flatten().flat_map(|family| &family.samples);
        samples.filter_map(|sample| sample.labels.get("queue").cloned())
    }
}

/// How things stand.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Standing {
    namespace: String,
    queues: Vec<QueueStanding>,
    /// How many jobs of all queues may be under way at once.
    limit: Option<usize>,
    phases: BTreeMap<String, usize>,
    waits: Vec<Wait>,
    ends: Vec<End>,
    /// Why the operator's numbers are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueStanding {
    queue: String,
    /// Jobs in the last listing at Buildkite.
    waiting: Option<f64>,
    /// Whether that listing succeeded.
    connected: Option<bool>,
    /// How long the operator waits after a failure.
    pause_seconds: Option<f64>,
    /// BuildJobs that have not ended.
    in_flight: usize,
    /// How many more may come.
    credit: Option<usize>,
}

/// What jobs wait for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wait {
    reason: String,
    jobs: usize,
    oldest: String,
    oldest_seconds: i64,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct End {
    name: String,
    phase: String,
    verdict: Option<String>,
    exit_status: Option<i32>,
    seconds_ago: i64,
}

/// How things stand.
pub(super) fn of(
    jobs: &[BuildJob],
    numbers: Result<Numbers, String>,
    config: Option<&Config>,
    namespace: &str,
    now: Timestamp,
) -> Standing {
    let (numbers, problem) = match numbers {
        Ok(numbers) => (Some(numbers), None),
        Err(problem) => (None, Some(problem)),
    };
    let mut phases: BTreeMap<String, usize> =
        Phase::ALL.iter().map(|phase| (format!("{phase:?}"), 0)).collect();
    for job in jobs {
        *phases.entry(format!("{:?}", job.status_or_default().phase)).or_default() += 1;
    }
    Standing {
        namespace: namespace.to_owned(),
        queues: queues(jobs, numbers.as_ref(), config),
        limit: config.map(|config| config.spawner.max_in_flight),
        phases,
        waits: waits(jobs, now),
        ends: ends(jobs, now),
        problem,
    }
}

fn queues(jobs: &[BuildJob], numbers: Option<&Numbers>, config: Option<&Config>) -> Vec<QueueStanding> {
    let under_way: Vec<&BuildJob> = jobs.iter().filter(|job| !job.is_terminal()).collect();
    let configured = config.map(|config| config.spawner.queues()).unwrap_or_default();
    let mut keys: Vec<String> = configured.iter().map(|queue| queue.key.clone()).collect();
    let others = under_way.iter().filter_map(|job| queue(job).map(str::to_owned));
    for key in numbers.into_iter().flat_map(Numbers::queues).chain(others) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let all = config.map(|config| config.spawner.max_in_flight.saturating_sub(under_way.len()));
    let standing = |key: String| {
        let in_flight = under_way.iter().filter(|job| queue(job) == Some(&key)).count();
        let value = |name| numbers.and_then(|numbers| numbers.value(name, Some(&key)));
        let own = configured.iter().find(|queue| queue.key == key).and_then(|queue| queue.max_in_flight);
        let own = own.map(|limit| limit.saturating_sub(in_flight));
        QueueStanding {
            waiting: value("jobs_waiting"),
            connected: value("queue_connected").map(|value| value > 0.0),
            pause_seconds: value("intake_pause_seconds"),
            in_flight,
            credit: all.map(|all| own.unwrap_or(all).min(all)),
            queue: key,
        }
    };
    keys.into_iter().map(standing).collect()
}

/// Jobs that have not started, by what they wait for; what most wait for first.
fn waits(jobs: &[BuildJob], now: Timestamp) -> Vec<Wait> {
    let mut found: BTreeMap<String, Wait> = BTreeMap::new();
    for job in jobs {
        let status = job.status_or_default();
        if !matches!(status.phase, Phase::Pending | Phase::Starting) {
            continue;
        }
        let reason = status.waiting_for.unwrap_or_else(|| match status.phase {
            Phase::Pending => "a pod".to_owned(),
            _ => "its containers to start".to_owned(),
        });
        let age =
            job.creation_timestamp().map(|time| now.duration_since(time.0).as_secs()).unwrap_or_default();
        let new = || Wait { reason: reason.clone(), jobs: 0, oldest: String::new(), oldest_seconds: -1 };
        // Counts in a reason change all the time.
        let wait = found.entry(decide::subject(&reason)).or_insert_with(new);
        wait.jobs += 1;
        if age > wait.oldest_seconds {
            (wait.oldest, wait.oldest_seconds) = (job.name_any(), age);
        }
    }
    let mut waits: Vec<Wait> = found.into_values().collect();
    waits.sort_by_key(|wait| (std::cmp::Reverse(wait.jobs), std::cmp::Reverse(wait.oldest_seconds)));
    waits
}

/// The last ends, the newest first.
fn ends(jobs: &[BuildJob], now: Timestamp) -> Vec<End> {
    let mut ends: Vec<End> = jobs
        .iter()
        .filter_map(|job| {
            let status = job.status_or_default();
            let at = status.finished_at.as_ref().filter(|_| status.phase.is_terminal())?.0;
            Some(End {
                name: job.name_any(),
                phase: format!("{:?}", status.phase),
                verdict: status.verdict.map(|verdict| verdict.code.as_str().to_owned()),
                exit_status: status.exit_status,
                seconds_ago: now.duration_since(at).as_secs(),
            })
        })
        .collect();
    ends.sort_by(|one, other| (one.seconds_ago, &one.name).cmp(&(other.seconds_ago, &other.name)));
    ends.truncate(ENDS);
    ends
}

impl Standing {
    /// As people read it.
    pub(super) fn lines(&self) -> Vec<String> {
        let limit = self.limit.map(|limit| format!(", {limit} jobs at once at most")).unwrap_or_default();
        let mut lines = vec![format!("namespace {}{limit}", self.namespace)];
        lines.extend(self.problem.as_ref().map(|problem| format!("no numbers of the operator: {problem}")));
        lines.push(String::new());
        let number = |value: Option<String>| value.unwrap_or_default();
        let rows: Vec<Vec<String>> = self
            .queues
            .iter()
            .map(|queue| {
                vec![
                    queue.queue.clone(),
                    number(queue.waiting.map(|value| value.to_string())),
                    queue.in_flight.to_string(),
                    number(queue.credit.map(|credit| credit.to_string())),
                    match (queue.connected, queue.pause_seconds) {
                        (Some(true), _) => "yes".to_owned(),
                        (Some(false), Some(pause)) if pause > 0.0 => format!("no, again in {pause:.0}s"),
                        (Some(false), _) => "no".to_owned(),
                        (None, _) => String::new(),
                    },
                ]
            })
            .collect();
        lines.extend(table(&["QUEUE", "WAITING", "IN-FLIGHT", "CREDIT", "CONNECTED"], &rows));
        lines.push(String::new());
        let counted = Phase::ALL.iter().map(|phase| format!("{phase:?}"));
        let phases =
            counted.map(|phase| format!("{phase} {}", self.phases.get(&phase).copied().unwrap_or_default()));
        lines.push(phases.collect::<Vec<_>>().join("  "));
        let age = |seconds: i64| elapsed::short(SignedDuration::from_secs(seconds));
        if !self.waits.is_empty() {
            let rows: Vec<_> = self
                .waits
                .iter()
                .map(|wait| {
                    vec![
                        wait.jobs.to_string(),
                        age(wait.oldest_seconds),
                        wait.oldest.clone(),
                        crop(&wait.reason, REASON),
                    ]
                })
                .collect();
            lines.push(String::new());
            lines.extend(table(&["JOBS", "FOR", "OLDEST", "WAITING FOR"], &rows));
        }
        if !self.ends.is_empty() {
            let rows: Vec<_> = self
                .ends
                .iter()
                .map(|end| {
                    let exit = number(end.exit_status.map(|status| status.to_string()));
                    let verdict = end.verdict.clone().unwrap_or_default();
                    vec![age(end.seconds_ago), end.phase.clone(), exit, verdict, end.name.clone()]
                })
                .collect();
            lines.push(String::new());
            lines.extend(table(&["ENDED", "PHASE", "EXIT", "VERDICT", "NAME"], &rows));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cli::sample,
        telemetry::{Form, Metrics, Places},
    };

    fn config() -> Config {
        let spawner = "queues: [{key: linux, maxInFlight: 3}, {key: gpu}]\nmaxInFlight: 25\n";
        Config::from_data(&BTreeMap::from([("job_spawner_config".to_owned(), spawner.to_owned())])).unwrap()
    }

    /// The page that the operator itself writes.
    fn numbers() -> Numbers {
        let metrics = Metrics::default();
        metrics.leads(true);
        metrics.queues.listed("linux", 12, 3, Places { taken: 3, limit: 3, free: 0 });
        metrics.queues.failed("gpu", std::time::Duration::from_secs(4));
        Numbers::read(std::str::from_utf8(&metrics.page(Form::Text)).unwrap()).unwrap()
    }

    #[test]
    fn with_the_operators_numbers() {
        assert!(numbers().leads());
        let mut late = sample::waiting("late");
        late.status.as_mut().unwrap().waiting_for =
            Some("a node: 0/14 nodes are available: 9 Insufficient cpu".to_owned());
        let mut early = late.clone();
        early.metadata.name = Some("early".to_owned());
        early.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            sample::now() - SignedDuration::from_mins(30),
        ));
        let jobs = [
            late,
            early,
            sample::failed("b"),
            sample::job("new", json!(null)),
            sample::job("c", json!({"phase": "Running"})),
        ];
        let standing = of(&jobs, Ok(numbers()), Some(&config()), "ci", sample::now());
        insta::assert_snapshot!(standing.lines().join("\n"));
        sample::documented(&standing.lines().join("\n"));
        insta::assert_json_snapshot!(standing);
    }

    #[test]
    fn without_them() {
        let standing = of(&[], Err("no pod of the operator runs".to_owned()), None, "ci", sample::now());
        insta::assert_snapshot!(standing.lines().join("\n"));
    }
}
