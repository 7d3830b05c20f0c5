//! Keeping to the GraphQL API's limit: an organisation has so many points for five minutes, and other programs want some.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What one point takes to come back: 40 in a second are 12,000 in five minutes, of 20,000 that an organisation has at least.
const POINT: Duration = Duration::from_millis(25);

/// How many points may be spent at once.
const RESERVE: u32 = 1_000;

/// The longest that queries are held back once the service says that nothing is left, and those that are needed soon in any case.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// The points that queries may spend. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Mutex<Account>>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Account::new(Instant::now()))))
    }
}

impl Budget {
    /// Waits until there are so many points, and spends them.
    pub(crate) async fn spend(&self, points: u32) {
        let at = self.account(|account| account.spend(Instant::now(), points));
        tokio::time::sleep_until(at.into()).await;
    }

    /// The same for a query whose answer is needed soon: it does not wait for long, and others wait for it.
    pub(crate) async fn spend_soon(&self, points: u32) {
        let now = Instant::now();
        let at = self.account(|account| account.spend(now, points)).min(now + LONGEST_HOLD);
        tokio::time::sleep_until(at.into()).await;
    }

    /// Takes points that are spent already; later queries wait for them.
    pub(crate) fn charge(&self, points: u32) {
        self.account(|account| account.spend(Instant::now(), points));
    }

    /// The service says that nothing is left for so long.
    pub(crate) fn exhausted(&self, renewed_in: Option<Duration>) {
        let pause = renewed_in.unwrap_or(LONGEST_HOLD).min(LONGEST_HOLD);
        self.account(|account| account.exhaust(Instant::now() + pause));
    }

    fn account<T>(&self, act: impl FnOnce(&mut Account) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The points that are left, as the time at which all would be back.
#[derive(Debug)]
struct Account {
    full_at: Instant,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// When the points may be spent; they are gone then. A query that costs more than there can be waits for all of them.
    fn spend(&mut self, now: Instant, points: u32) -> Instant {
        let earliest = self.full_at + POINT * points.min(RESERVE);
        let at = earliest.checked_sub(POINT * RESERVE).map_or(now, |at| at.max(now));
        self.full_at = self.full_at.max(now) + POINT * points;
        at
    }

    /// Nothing is left before `until`.
    fn exhaust(&mut self, until: Instant) {
        self.full_at = self.full_at.max(until + POINT * RESERVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(account: &mut Account, now: Instant, points: u32) -> Duration {
        account.spend(now, points) - now
    }

    #[test]
    fn the_reserve_is_spent_at_once_and_the_rest_as_it_comes_back() {
        let now = Instant::now();
        let mut account = Account::new(now);
        assert_eq!(after(&mut account, now, 400), Duration::ZERO);
        assert_eq!(after(&mut account, now, 600), Duration::ZERO);
        assert_eq!(after(&mut account, now, 40), Duration::from_secs(1));
        assert_eq!(after(&mut account, now, 40), Duration::from_secs(2));
        let later = now + Duration::from_mins(5);
        assert_eq!(after(&mut account, later, 1_000), Duration::ZERO);
    }

    #[test]
    fn five_minutes_never_cost_more_than_an_organisation_has() {
        let begin = Instant::now();
        let mut account = Account::new(begin);
        let mut spent = Vec::new();
        let mut now = begin;
        while now < begin + Duration::from_mins(20) {
            now = account.spend(now, 304);
            spent.push(now);
        }
        for (index, first) in spent.iter().enumerate() {
            let within = spent[index..].iter().take_while(|at| **at < *first + Duration::from_mins(5));
            let points = within.count() * 304;
            assert!(points <= 14_000, "{points} points after {:?}", *first - begin);
        }
    }

    #[test]
    fn a_query_that_costs_more_than_the_reserve_is_not_made_to_wait_for_ever() {
        let now = Instant::now();
        let mut account = Account::new(now);
        assert_eq!(after(&mut account, now, 5_000), Duration::ZERO);
        assert_eq!(after(&mut account, now, 1), Duration::from_millis(4_001 * 25));
    }

    #[test]
    fn nothing_is_spent_while_the_service_says_so() {
        let now = Instant::now();
        let mut account = Account::new(now);
        account.exhaust(now + Duration::from_secs(3));
        let wait = after(&mut account, now, 4);
        assert_eq!(wait, Duration::from_millis(3_100));
    }
}
