//! Two hundred agents that stream their logs; and as much log as the server takes.

use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::load::{Agent, gzip};
use super::server::Server;
use crate::figures::{Calls, Line};

const AGENTS: usize = 200;
const SECONDS: usize = 20;
/// What each agent writes per second, so that all of them write 1 MB.
const PER_SECOND: usize = 5_000;
/// The largest chunk that agents are told to send.
const LARGE: usize = 100 * 1024;
const FLOOD: Duration = Duration::from_secs(5);
/// What the server may use while they stream.
const MEMORY: u64 = 150;

pub(crate) fn run(binary: &Path) -> Result<Vec<Line>> {
    let server = Server::start(binary)?;
    let step =
        json!({"label": "log", "command": "make", "parallelism": AGENTS, "agents": {"queue": "bench"}});
    let build = server.build("logs", &json!({"steps": [step]}), 1)?;
    let jobs: Vec<&str> =
        build["jobs"].as_array().into_iter().flatten().filter_map(|job| job["id"].as_str()).collect();
    ensure!(jobs.len() == AGENTS, "the build has {} jobs", jobs.len());
    let mut agents = Vec::new();
    for job in &jobs {
        let mut agent = Agent::register(&server)?;
        agent.begin(job)?;
        agents.push((*job, agent));
    }
    let mut lines = stream(&server, &mut agents)?;
    check(&server, jobs[0])?;
    lines.push(flood(&server, &mut agents)?);
    let (memory, peak) = server.memory()?;
    lines.push(Line::value("resident memory after that", format!("{memory} MB, at most {peak} MB")));
    agents.iter_mut().try_for_each(|(job, agent)| agent.end(job))?;
    Ok(lines)
}

/// Lines as compilers write them, with the agent's time stamps.
fn text(bytes: usize) -> Vec<u8> {
    let line = |number: u64| {
        let (time, hash) = (1_790_000_000_000 + number * 7, number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        format!("\x1b_bk;t={time}\x07   Compiling part-{number} v0.{}.1 ({hash:016x})\r\n", number % 90)
    };
    // No line is shorter than forty bytes.
    let mut text: String = (0..=bytes as u64 / 40).map(line).collect();
    text.truncate(bytes);
    text.into_bytes()
}

/// Every agent sends a chunk and looks at its job each second, and is alive every five.
fn stream(server: &Server, agents: &mut [(&str, Agent)]) -> Result<Vec<Line>> {
    let chunk = gzip(&text(PER_SECOND))?;
    let times = Mutex::new(Vec::new());
    let started = Instant::now();
    let (most, cpu) = server.cost(|| {
        thread::scope(|scope| {
            let workers: Vec<_> = agents
                .iter_mut()
                .enumerate()
                .map(|(index, (job, agent))| {
                    let (chunk, times) = (&chunk, &times);
                    scope.spawn(move || -> Result<()> {
                        agent.client.times();
                        let phase = Duration::from_millis(index as u64 * 1000 / AGENTS as u64);
                        for second in 0..SECONDS {
                            let due = started + phase + Duration::from_secs(second as u64);
                            thread::sleep(due.saturating_duration_since(Instant::now()));
                            agent.chunk(job, second, second * PER_SECOND, chunk, PER_SECOND)?;
                            let took = agent.client.times();
                            times.lock().map_err(|_| anyhow!("another agent failed"))?.extend(took);
                            agent.state(job)?;
                            if second % 5 == index % 5 {
                                agent.heartbeat()?;
                            }
                            agent.client.times();
                        }
                        Ok(())
                    })
                })
                .collect();
            let mut most = 0;
            while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::sleep(Duration::from_millis(200));
                most = most.max(server.memory()?.0);
            }
            for worker in workers {
                worker.join().map_err(|_| anyhow!("an agent broke off"))??;
            }
            Ok(most)
        })
    })?;
    let share = 100.0 * cpu.as_secs_f64() / started.elapsed().as_secs_f64();
    let times = times.into_inner().map_err(|_| anyhow!("an agent broke off"))?;
    Ok(vec![
        Line::calls("200 agents, 1 MB/s: a chunk", Calls { times, cpu: None, target: None }),
        Line::value("  resident memory meanwhile", format!("{most} MB"))
            .with_target("< 150 MB", most < MEMORY),
        Line::value("  processor meanwhile", format!("{share:.1} % of a core")),
    ])
}

/// What was sent can be read.
fn check(server: &Server, job: &str) -> Result<()> {
    let path = format!("pipelines/logs/builds/1/jobs/{job}/log?offset={}", (SECONDS - 1) * PER_SECOND);
    let log = server.rest("GET", &path, &Value::Null)?;
    let next = log["next_offset"].as_u64().context("a log says where it ends")?;
    ensure!(next > ((SECONDS - 1) * PER_SECOND) as u64, "the log ends at {next}");
    Ok(())
}

/// Four agents send chunks of the largest size, one after the other.
fn flood(server: &Server, agents: &mut [(&str, Agent)]) -> Result<Line> {
    let chunk = gzip(&text(LARGE))?;
    let started = Instant::now();
    let (sent, cpu) = server.cost(|| {
        thread::scope(|scope| {
            let workers: Vec<_> = agents
                .iter_mut()
                .take(4)
                .map(|(job, agent)| {
                    let chunk = &chunk;
                    scope.spawn(move || -> Result<usize> {
                        let mut sent = 0;
                        while started.elapsed() < FLOOD {
                            let offset = SECONDS * PER_SECOND + sent * LARGE;
                            agent.chunk(job, SECONDS + sent, offset, chunk, LARGE)?;
                            sent += 1;
                        }
                        Ok(sent)
                    })
                })
                .collect();
            let mut sent = 0;
            for worker in workers {
                sent += worker.join().map_err(|_| anyhow!("an agent broke off"))??;
            }
            Ok(sent)
        })
    })?;
    #[allow(clippy::cast_precision_loss, reason = "some hundred megabytes")]
    let megabytes = (sent * LARGE) as f64 / 1e6;
    let rate = megabytes / started.elapsed().as_secs_f64();
    let each = cpu.as_secs_f64() * 1000.0 / megabytes;
    Ok(Line::value(
        "chunks of 100 KiB as fast as they go",
        format!("{rate:.0} MB/s, {each:.2} ms CPU per MB"),
    ))
}
