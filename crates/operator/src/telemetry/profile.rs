//! `/debug/pprof/profile`: where the operator spends its time. Nobody listens unless the operator is told to.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    routing::get,
};
use pprof::{ProfilerGuard, ProfilerGuardBuilder, Report};
use serde::Deserialize;
use tokio::{net::TcpListener, sync::Semaphore};

/// How often the program is looked at, in a second of its work. Not in step with what happens each hundredth of a second.
const FREQUENCY: i32 = 99;

/// How many seconds a profile may take.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=300;

/// What is not looked into: their own records of how to go back are not to be trusted in the middle of a call.
const LEFT_OUT: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// What is asked for.
#[derive(Deserialize)]
struct Wanted {
    #[serde(default = "half_a_minute")]
    seconds: u64,
}

fn half_a_minute() -> u64 {
    30
}

type Answer = Result<String, (StatusCode, String)>;

/// Answers until `end`.
pub async fn serve_profiles(listener: TcpListener, end: impl Future<Output = ()> + Send + 'static) {
    let served = axum::serve(listener, routes()).with_graceful_shutdown(end).await;
    if let Err(error) = served {
        tracing::error!(%error, "cannot answer requests for profiles any more");
    }
}

fn routes() -> Router {
    // There is one clock for it in the process.
    Router::new().route("/debug/pprof/profile", get(profile)).with_state(Arc::new(Semaphore::new(1)))
}

/// Looks at the program for a while. It stops looking when the caller goes.
async fn profile(State(turn): State<Arc<Semaphore>>, Query(Wanted { seconds }): Query<Wanted>) -> Answer {
    if !SECONDS.contains(&seconds) {
        let (least, most) = SECONDS.into_inner();
        return Err((StatusCode::BAD_REQUEST, format!("`seconds` must be {least} to {most}\n")));
    }
    let Ok(_turn) = turn.try_acquire() else {
        return Err((StatusCode::CONFLICT, "another profile is being taken: try again later\n".to_owned()));
    };
    let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&LEFT_OUT).build();
    let guard = guard.map_err(|error| broken(&error))?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    // Finding the names takes a while.
    tokio::task::spawn_blocking(move || written(&guard)).await.map_err(|error| broken(&error))?
}

fn written(guard: &ProfilerGuard<'_>) -> Answer {
    let report = guard.report().build().map_err(|error| broken(&error))?;
    Ok(folded(&report))
}

fn broken(error: &dyn std::error::Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot take a profile: {error}\n"))
}

/// One line for each stack, from its thread inwards, with how often it was seen: the form that tools for flame graphs read.
fn folded(report: &Report) -> String {
    let mut lines: BTreeMap<String, isize> = BTreeMap::new();
    for (stack, count) in &report.data {
        let frames = stack.frames.iter().rev().flat_map(|inlined| inlined.iter().rev());
        let names = frames.map(|symbol| symbol.name().replace(';', ":"));
        let line: Vec<String> = std::iter::once(stack.thread_name.clone()).chain(names).collect();
        *lines.entry(line.join(";")).or_default() += count;
    }
    lines.iter().map(|(line, count)| format!("{line} {count}\n")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use std::{
        hint::black_box,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    async fn server() -> String {
        bk_ops::http::install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/debug/pprof/profile", listener.local_addr().unwrap());
        tokio::spawn(serve_profiles(listener, std::future::pending()));
        url
    }

    async fn ask(url: String) -> (u16, String) {
        let client = bk_ops::http::client("test", Duration::from_mins(2)).unwrap();
        let answer = client.get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    #[inline(never)]
    fn works_without_pause(stop: &AtomicBool) -> u64 {
        let mut sum = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        sum
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_profile_names_who_works() {
        let url = server().await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let worker = std::thread::spawn(move || works_without_pause(&stopping));
        let (status, profile) = ask(format!("{url}?seconds=1")).await;
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert_eq!(status, 200, "{profile}");
        let line = profile.lines().find(|line| line.contains("works_without_pause"));
        let (stack, count) = line.and_then(|line| line.rsplit_once(' ')).expect(&profile);
        assert!(stack.contains(';') && count.parse::<u32>().is_ok_and(|count| count > 0), "{stack} {count}");
    }

    #[tokio::test]
    async fn senseless_times_are_refused() {
        let url = server().await;
        for seconds in ["0", "301"] {
            let expected = (400, "`seconds` must be 1 to 300\n".to_owned());
            assert_eq!(ask(format!("{url}?seconds={seconds}")).await, expected);
        }
        assert_eq!(ask(format!("{url}?seconds=all")).await.0, 400);
    }
}
