//! Ten thousand scheduled jobs, as a stack sees them; and doing nothing with them.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::server::{REGISTRATION, Server};
use crate::figures::{Calls, Line};

const JOBS: usize = 10_000;
const PAGE: usize = 1000;
/// How often the whole queue is listed.
const ROUNDS: usize = 5;
const IDLE: Duration = Duration::from_secs(20);

pub(crate) fn run(binary: &Path) -> Result<Vec<Line>> {
    let server = Server::start(binary)?;
    let steps: Vec<Value> = (0..10)
        .map(|step| {
            json!({
                "key": format!("step-{step}"), "label": "Test", "command": "make test", "parallelism": 50,
                "agents": {"queue": "bench", "os": "linux"}
            })
        })
        .collect();
    server.build("queue", &json!({ "steps": steps }), JOBS / 500)?;
    let mut client = server.client(REGISTRATION)?;
    let stack = json!({"key": "bench", "type": "custom", "queue_key": "bench", "metadata": {}});
    client.call("POST", "/v3/stacks/register", &stack)?;
    client.times();

    let (pages, cpu) = server.cost(|| {
        let mut ids = Vec::new();
        for _ in 0..ROUNDS {
            ids = list(&mut client)?;
        }
        Ok(ids)
    })?;
    ensure!(pages.iter().map(Vec::len).sum::<usize>() == JOBS, "not all jobs were listed");
    let target = Some(Duration::from_millis(20));
    let list = Line::calls("list a page of 1,000", Calls { times: client.times(), cpu: Some(cpu), target });

    let ((), cpu) = server.cost(|| pages.iter().try_for_each(|ids| reserve(&mut client, ids)))?;
    let target = Some(Duration::from_millis(50));
    let times = client.times();
    let reserve_line = Line::calls("reserve 1,000", Calls { times, cpu: Some(cpu), target });

    let ((), cpu) = server.cost(|| pages.iter().try_for_each(|ids| reserve(&mut client, ids)))?;
    let times = client.times();
    let extend = Line::calls("extend 1,000 reservations", Calls { times, cpu: Some(cpu), target });

    let ((), cpu) = server.cost(|| {
        pages.iter().try_for_each(|ids| {
            let states =
                client.call("POST", "/v3/stacks/bench/jobs/get-states", &json!({ "job_uuids": ids }))?;
            ensure!(states["states"].as_object().is_some_and(|states| states.len() == ids.len()), "{states}");
            Ok(())
        })
    })?;
    let states =
        Line::calls("states of 1,000 jobs", Calls { times: client.times(), cpu: Some(cpu), target: None });

    let ((), cpu) = server.cost(|| {
        pages[0].iter().try_for_each(|id| {
            let job = client.call("GET", &format!("/v3/stacks/bench/jobs/{id}"), &Value::Null)?;
            ensure!(job["command"] == "make test", "{job}");
            Ok(())
        })
    })?;
    let show = Line::calls("get a job", Calls { times: client.times(), cpu: Some(cpu), target: None });

    let (memory, peak) = server.memory()?;
    let memory = Line::value("resident memory", format!("{memory} MB, at most {peak} MB"));

    let ((), cpu) = server.cost(|| {
        thread::sleep(IDLE);
        Ok(())
    })?;
    let share = 100.0 * cpu.as_secs_f64() / IDLE.as_secs_f64();
    let idle = Line::value("processor while idle, over 20 s", format!("{share:.2} %"));
    Ok(vec![list, reserve_line, extend, states, show, memory, idle.with_target("< 0.5 %", share < 0.5)])
}

/// The ids of all scheduled jobs, page by page.
fn list(client: &mut super::http::Client) -> Result<Vec<Vec<String>>> {
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v3/stacks/bench/scheduled-jobs?queue_key=bench&limit={PAGE}{after}");
        let page = client.call("GET", &path, &Value::Null)?;
        let jobs = page["jobs"].as_array().context("a page has jobs")?;
        pages.push(jobs.iter().filter_map(|job| job["id"].as_str().map(str::to_owned)).collect());
        match page["page_info"]["end_cursor"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => return Ok(pages),
        }
    }
}

fn reserve(client: &mut super::http::Client, ids: &[String]) -> Result<()> {
    let path = "/v3/stacks/bench/scheduled-jobs/batch-reserve";
    let got = client.call("PUT", path, &json!({"job_uuids": ids, "reservation_expiry_seconds": 3600}))?;
    ensure!(got["reserved"].as_array().map(Vec::len) == Some(ids.len()), "not all were reserved: {got}");
    Ok(())
}
