//! One registration at a time for each one-time token: whoever has one that is not used yet could otherwise have Buildkite asked as often as it
//! likes, by coming many times at once or by hanging up again and again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bk_plan::broker::Ticket;

/// The one-time tokens whose turn it is. Cheap to clone.
#[derive(Clone)]
pub(super) struct Turns {
    taken: Arc<Mutex<HashSet<Ticket>>>,
    rest: Duration,
}

/// A turn, for as long as it lives.
pub(super) struct Turn {
    turns: Turns,
    ticket: Ticket,
}

impl Turns {
    /// After a turn that came to nothing there is none for so long.
    pub(super) fn new(rest: Duration) -> Self {
        Self { taken: Arc::default(), rest }
    }

    /// Takes the turn, unless somebody else has it.
    pub(super) fn take(&self, ticket: &Ticket) -> Option<Turn> {
        let is_first = self.lock().insert(ticket.clone());
        is_first.then(|| Turn { turns: self.clone(), ticket: ticket.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Ticket>> {
        // Each change is a single step.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// It came to nothing. The next one is not at once.
    pub(super) async fn rest(self) {
        tokio::time::sleep(self.turns.rest).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(attempt: u32) -> Ticket {
        Ticket { job_uuid: "j".to_owned(), uid: "b".to_owned(), attempt, build_job: "nightly".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_one_time_token_has_one_turn_at_a_time_and_rests_when_it_came_to_nothing() {
        let turns = Turns::new(Duration::from_secs(5));
        let turn = turns.take(&ticket(0)).expect("it is the first");
        assert!(turns.take(&ticket(0)).is_none() && turns.take(&ticket(1)).is_some());
        let rest = tokio::spawn(turn.rest());
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(turns.take(&ticket(0)).is_none());
        rest.await.unwrap();
        assert!(turns.take(&ticket(0)).is_some());
    }
}
