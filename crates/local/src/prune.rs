//! Old builds go by themselves, a little at a time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{Shared, files};
use crate::problem::Problem;
use crate::store::prune::{self, Keep};

/// How long agents and stacks are remembered after they left.
const GONE_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Looks for old things again and again, for as long as the server runs.
pub(crate) async fn run(app: Shared) {
    loop {
        match round(&app).await {
            Ok(0) => {}
            Ok(builds) => tracing::info!(builds, "old builds were removed"),
            Err(Problem::Stopping) => return,
            Err(problem) => {
                tracing::error!(error = bk_ops::report::one_line(&problem), "cannot remove what is old");
            }
        }
        tokio::time::sleep(app.config.prune_every).await;
    }
}

/// Removes what is old now. Says how many builds there were.
async fn round(app: &Shared) -> Result<usize, Problem> {
    let now = Timestamp::now();
    let before = |span: SignedDuration| now.saturating_sub(span).unwrap_or(Timestamp::MIN);
    let span = |age: Duration| SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    let keep = Keep {
        builds: app.config.keep_builds,
        since: app.config.keep_builds_for.map(|age| before(span(age))),
    };
    let mut builds = 0;
    let some = keep.builds.is_some() || keep.since.is_some();
    while some
        && let Some(build) =
            app.store.transact(move |transaction| prune::next_build(transaction, keep)).await?
    {
        // Each part is a transaction of its own: other requests take their turn in between.
        while !app.store.transact(move |transaction| prune::remove_some(transaction, build)).await? {}
        builds += 1;
    }
    if builds > 0 {
        files::sweep(app).await?;
    }
    let then = before(GONE_KEPT);
    while app.store.transact(move |transaction| prune::remove_gone(transaction, then)).await? > 0 {}
    Ok(builds)
}
