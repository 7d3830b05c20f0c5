//! Jobs from their first call to their last, as agents make them that take one job each.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::http::Client;
use super::server::{REGISTRATION, Server};
use crate::figures::{Calls, Line};

/// How many agents are at work at any time.
const AGENTS: usize = 8;
/// The most jobs that one upload may bring.
const UPLOAD: usize = 500;
/// The most jobs of one build.
const LARGEST: usize = 4000;
const GZIP: &str = "Content-Encoding: gzip";
/// The calls of an agent that takes one job, in order.
const CALLS: [&str; 9] =
    ["register", "connect", "acquire", "start", "chunk", "state", "finish", "ping", "disconnect"];

/// One build of 4,000 jobs: the first job uploads the others.
pub(crate) fn one_build(binary: &Path) -> Result<Vec<Line>> {
    let server = Server::start(binary)?;
    let build = server.build("large", &json!({"steps": steps("first", 1)}), 1)?;
    let mut agent = Agent::register(&server)?;
    let first = build["jobs"][0]["id"].as_str().context("the build has a job")?;
    agent.begin(first)?;
    agent.client.times();
    let mut left = LARGEST - 1;
    let ((), upload_cpu) = server.cost(|| {
        while left > 0 {
            let count = left.min(UPLOAD);
            let name = format!("upload-{left}");
            let body = json!({"uuid": name, "pipeline": {"steps": steps(&name, count)}});
            agent.client.call("POST", &format!("/v3/jobs/{first}/pipelines?async=true"), &body)?;
            left -= count;
        }
        Ok(())
    })?;
    let times = agent.client.times();
    let upload = Line::calls("upload 500 jobs", Calls { times, cpu: Some(upload_cpu), target: None });
    agent.end(first)?;
    let mut lines = vec![upload];
    lines.extend(work_off(&server, "large", LARGEST - 1)?);
    Ok(lines)
}

/// 6,000 jobs in twelve builds.
pub(crate) fn many_builds(binary: &Path) -> Result<Vec<Line>> {
    let server = Server::start(binary)?;
    server.build("many", &json!({"steps": steps("step", UPLOAD)}), 12)?;
    work_off(&server, "many", 12 * UPLOAD)
}

/// Steps of ten jobs each.
fn steps(name: &str, jobs: usize) -> Value {
    let step = |index: usize| {
        json!({
            "key": format!("{name}-{index}"), "label": "Test", "command": "make test",
            "parallelism": (jobs - index * 10).min(10), "agents": {"queue": "bench"}
        })
    };
    (0..jobs.div_ceil(10)).map(step).collect()
}

/// Runs every scheduled job of the queue to its end.
fn work_off(server: &Server, pipeline: &str, jobs: usize) -> Result<Vec<Line>> {
    let ids = scheduled(server)?;
    ensure!(ids.len() == jobs, "{} jobs are scheduled, not {jobs}", ids.len());
    let queue = Mutex::new(ids.into_iter());
    let times = Mutex::new(BTreeMap::<&str, Vec<Duration>>::new());
    let started = Instant::now();
    let ((), cpu) = server.cost(|| {
        thread::scope(|scope| {
            let worker = || -> Result<()> {
                while let Some(id) = queue.lock().ok().and_then(|mut queue| queue.next()) {
                    let spent = one_job(server, &id)?;
                    let mut times = times.lock().map_err(|_| anyhow!("another agent failed"))?;
                    for (call, time) in spent {
                        times.entry(call).or_default().push(time);
                    }
                }
                Ok(())
            };
            let workers: Vec<_> = (0..AGENTS).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| anyhow!("an agent broke off"))?)
        })
    })?;
    let took = started.elapsed();
    let build = server.rest("GET", &format!("pipelines/{pipeline}/builds/1"), &Value::Null)?;
    ensure!(build["state"] == "passed", "the build is {}, not passed", build["state"]);
    let mut lines: Vec<_> = times
        .into_inner()
        .map_err(|_| anyhow!("an agent broke off"))?
        .into_iter()
        .map(|(call, times)| Line::calls(call, Calls { times, cpu: None, target: None }))
        .collect();
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    let count = jobs as f64;
    let rate = count / took.as_secs_f64();
    let each = cpu.as_secs_f64() * 1000.0 / count;
    lines.push(Line::value(
        format!("{jobs} jobs with {AGENTS} agents at a time"),
        format!("{:.1} s, {rate:.0} jobs/s, {each:.2} ms CPU per job", took.as_secs_f64()),
    ));
    let (memory, peak) = server.memory()?;
    lines.push(Line::value("resident memory", format!("{memory} MB, at most {peak} MB")));
    Ok(lines)
}

fn scheduled(server: &Server) -> Result<Vec<String>> {
    let mut client = server.client(REGISTRATION)?;
    let stack = json!({"key": "bench", "type": "custom", "queue_key": "bench", "metadata": {}});
    client.call("POST", "/v3/stacks/register", &stack)?;
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v3/stacks/bench/scheduled-jobs?queue_key=bench&limit=1000{after}");
        let page = client.call("GET", &path, &Value::Null)?;
        let jobs = page["jobs"].as_array().context("a page has jobs")?;
        ids.extend(jobs.iter().filter_map(|job| job["id"].as_str().map(str::to_owned)));
        match page["page_info"]["end_cursor"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => return Ok(ids),
        }
    }
}

/// The calls of an agent that takes one job, with how long each took.
fn one_job(server: &Server, id: &str) -> Result<Vec<(&'static str, Duration)>> {
    let mut agent = Agent::register(server)?;
    agent.begin(id)?;
    agent.chunk(id, 1, 0, &gzip(b"all is well\n")?, 12)?;
    agent.state(id)?;
    agent.end(id)?;
    Ok(CALLS.into_iter().zip(agent.client.times()).collect())
}

/// What agents send as log.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// An agent that takes one job.
pub(crate) struct Agent {
    pub(crate) client: Client,
    access: String,
    job: String,
}

impl Agent {
    pub(crate) fn register(server: &Server) -> Result<Self> {
        let mut client = server.client(REGISTRATION)?;
        let agent = json!({
            "name": "", "hostname": "bench", "os": "linux", "arch": "amd64", "version": "3.137.2", "build": "1",
            "ignore_in_dispatches": true, "script_eval_enabled": true, "features": [], "meta_data": ["queue=bench"]
        });
        let registered = client.call("POST", "/v3/register", &agent)?;
        let access =
            format!("Token {}", registered["access_token"].as_str().context("an agent has a token")?);
        client.authorize(access.clone());
        client.call("POST", "/v3/connect", &Value::Null)?;
        Ok(Self { client, access, job: String::new() })
    }

    /// Takes the job and starts it.
    pub(crate) fn begin(&mut self, id: &str) -> Result<()> {
        let job = self.client.call("PUT", &format!("/v3/jobs/{id}/acquire"), &Value::Null)?;
        self.job = format!("Token {}", job["token"].as_str().context("a job has a token")?);
        self.client.authorize(self.job.clone());
        self.client.call("PUT", &format!("/v3/jobs/{id}/start"), &json!({"started_at": ""}))?;
        Ok(())
    }

    /// Sends a piece of log.
    pub(crate) fn chunk(
        &mut self,
        id: &str,
        sequence: usize,
        offset: usize,
        gzip: &[u8],
        size: usize,
    ) -> Result<()> {
        let path = format!("/v3/jobs/{id}/chunks?sequence={sequence}&offset={offset}&size={size}");
        self.client.send("POST", &path, GZIP, gzip).map(drop)
    }

    /// Asks how the job is.
    pub(crate) fn state(&mut self, id: &str) -> Result<()> {
        self.client.call("GET", &format!("/v3/jobs/{id}"), &Value::Null).map(drop)
    }

    /// Says that the agent is alive.
    pub(crate) fn heartbeat(&mut self) -> Result<()> {
        self.client.authorize(self.access.clone());
        self.client.call("POST", "/v3/heartbeat", &json!({"sent_at": ""}))?;
        self.client.authorize(self.job.clone());
        Ok(())
    }

    /// Ends the job and leaves.
    pub(crate) fn end(&mut self, id: &str) -> Result<()> {
        let ending = json!({"exit_status": "0", "finished_at": "", "chunks_failed_count": 0});
        self.client.call("PUT", &format!("/v3/jobs/{id}/finish"), &ending)?;
        self.client.authorize(self.access.clone());
        self.client.call("GET", "/v3/ping", &Value::Null)?;
        self.client.call("POST", "/v3/disconnect", &Value::Null).map(drop)
    }
}
