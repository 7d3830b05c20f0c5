//! Waiting for conditions, never for time to pass.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Longer than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls `probe` until it yields a value, and fails with `what` if it does not in time.
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    loop {
        let last = match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not yet".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        if begin.elapsed() > DEADLINE {
            bail!("waited {} s for this: {what}; last answer: {last}", DEADLINE.as_secs());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
