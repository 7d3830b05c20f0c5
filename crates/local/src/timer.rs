//! What the server does by itself: reservations that expire, timeouts, agents that fall silent.
//!
//! The database knows the next deadline. The task sleeps until then, or until the deadline moves.

use std::future::pending;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Transaction;

use crate::api::Shared;
use crate::build::{Event, Policy};
use crate::problem::Problem;
use crate::store::agents::AgentRow;
use crate::store::{agents, builds, jobs};

/// After an error of the database, before the next try.
const RETRY: Duration = Duration::from_secs(1);

/// Acts on deadlines for as long as the server runs.
pub(crate) async fn run(app: Shared) {
    let mut deadline = app.store.deadline();
    loop {
        let next = *deadline.borrow_and_update();
        tokio::select! {
            changed = deadline.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = sleep_until(next) => {}
        }
        let policy = app.policy;
        let acted = app.store.transact(move |transaction| act(transaction, &policy, Timestamp::now())).await;
        match acted {
            Ok(()) => {}
            Err(Problem::Stopping) => return,
            Err(problem) => {
                tracing::error!(error = bk_ops::report::one_line(&problem), "cannot act on deadlines");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn sleep_until(deadline: Option<Timestamp>) {
    match deadline {
        // A millisecond more: the database keeps no finer time, and what is due must be past.
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
            tokio::time::sleep(wait + Duration::from_millis(1)).await;
        }
        None => pending().await,
    }
}

fn act(transaction: &Transaction<'_>, policy: &Policy, now: Timestamp) -> Result<(), Problem> {
    for agent in agents::silent(transaction, now)? {
        tracing::warn!(agent = agent.name, "agent lost: no heartbeat");
        lose(transaction, &agent, policy, now)?;
    }
    for overdue in jobs::overdue(transaction, now)? {
        // An earlier one of this round may have moved it on.
        let owned = jobs::get(transaction, overdue.job.id)?;
        if owned.job.deadline(policy).is_some_and(|deadline| deadline <= now) {
            tracing::info!(job = %owned.job.id, state = %owned.job.state, "job ran out of time");
            let event = Event::DeadlinePassed { job: owned.job.id };
            builds::apply(transaction, owned.build, &event, policy, now)?;
        } else {
            // An earlier server gave it less time: what is kept would be due for ever.
            jobs::save(transaction, owned.build, &owned.job, policy)?;
        }
    }
    Ok(())
}

/// Gives an agent up, and with it every job that it has.
pub(crate) fn lose(
    transaction: &Transaction<'_>,
    agent: &AgentRow,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Problem> {
    agents::gone(transaction, agent.id, "lost")?;
    while let Some(owned) = jobs::of_agent(transaction, agent.id)? {
        let event = Event::AgentGone { job: owned.job.id, signal_reason: None };
        builds::apply(transaction, owned.build, &event, policy, now)?;
        let detail = format!("the agent {} was lost", agent.name);
        jobs::add_event(transaction, owned.job.id, now, "agent_lost", &detail)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::store::Store;
    use crate::store::builds::NewBuild;
    use crate::store::pipelines::{self, PipelineRow};

    fn policy(expire_after: i64) -> Policy {
        let minute = SignedDuration::from_mins(1);
        Policy {
            start_within: minute,
            stop_within: minute,
            expire_after: SignedDuration::from_mins(expire_after),
        }
    }

    #[tokio::test]
    async fn a_server_that_is_more_patient_than_the_last_one_is_not_due_at_once() {
        let store = Store::open(None).unwrap();
        let now = Timestamp::now();
        let pipeline = PipelineRow {
            id: uuid::Uuid::now_v7(),
            slug: "demo".into(),
            name: "demo".into(),
            repository: "https://git.local/demo.git".into(),
            configuration: "steps: [{command: x}]".into(),
            default_branch: "main".into(),
            created_at: now,
        };
        let begin = move |transaction: &Transaction<'_>| {
            pipelines::save(transaction, &pipeline)?;
            builds::create(transaction, &pipeline, &NewBuild::default(), &policy(1), now)
        };
        store.transact(begin).await.unwrap();
        assert_eq!(deadline(&store).await, Some(at(now, 1)));
        // The time of the first server is over, that of the second is not.
        let later = at(now, 5);
        store.transact(move |transaction| act(transaction, &policy(10), later)).await.unwrap();
        assert_eq!(deadline(&store).await, Some(at(now, 10)));
    }

    /// The deadline is told after the answer; the next answer comes behind it.
    async fn deadline(store: &Store) -> Option<Timestamp> {
        store.transact(|_| Ok(())).await.unwrap();
        *store.deadline().borrow()
    }

    fn at(now: Timestamp, minutes: i64) -> Timestamp {
        let at = now + SignedDuration::from_mins(minutes);
        Timestamp::from_millisecond(at.as_millisecond()).unwrap()
    }
}
