//! Waiting for conditions, never for time to pass.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Longer than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);
/// How much longer one of many jobs may take it there.
const PER_JOB: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls `probe` until it yields a value, and fails with `what` if it does not in time.
pub async fn eventually<T>(what: &str, probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    eventually_for(1, what, probe).await
}

/// The same for something that takes the longer the more jobs there are.
pub async fn eventually_for<T>(
    jobs: usize,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begin = Instant::now();
    let deadline = DEADLINE + PER_JOB * u32::try_from(jobs)?;
    loop {
        let last = match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not yet".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if begin.elapsed() > deadline {
            bail!("waited {} s for this: {what}; last answer: {last}", deadline.as_secs());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
