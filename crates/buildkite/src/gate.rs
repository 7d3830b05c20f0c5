//! Keeping to the service's limits: so many calls per second, for each stack and each kind of call.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use reqwest::{StatusCode, header::HeaderMap};

/// The window that limits are counted in, with room for calls that travel at different speeds.
const WINDOW: Duration = Duration::from_millis(1_100);

/// The longest that calls are held back. Callers have better things to do than to wait here.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// The longest that they are held back without being refused.
const LONGEST_UNASKED: Duration = Duration::from_secs(3);

/// Kinds of calls that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    List,
    Reserve,
    Show,
    States,
    Finish,
    Notify,
    Other,
}

impl Call {
    /// How many of them the service allows per second.
    fn limit(self) -> usize {
        match self {
            Self::List | Self::Reserve | Self::Other => 10,
            Self::States => 20,
            Self::Finish => 100,
            Self::Notify => 200,
            Self::Show => 1000,
        }
    }
}

/// One gate for each stack and kind of call. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates(Arc<Mutex<HashMap<(String, Call), Gate>>>);

impl Gates {
    /// Waits until the call may be made; if that is long, it is not made, and may be after the time that is returned.
    pub(crate) async fn pass(&self, stack: &str, call: Call) -> Result<(), Duration> {
        loop {
            let at = self.with(stack, call, |gate| gate.admit(Instant::now()))?;
            tokio::time::sleep_until(at.into()).await;
            // An answer to another call may have closed the gate meanwhile.
            if self.with(stack, call, |gate| gate.is_open(Instant::now())) {
                return Ok(());
            }
        }
    }

    /// Takes down what an answer says about the limit, and how long it asks to be left alone.
    pub(crate) fn learn(
        &self,
        stack: &str,
        call: Call,
        status: StatusCode,
        headers: &HeaderMap,
        asked: Option<Duration>,
    ) {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
        let reset =
            || number("ratelimit-reset").and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let period = if status == StatusCode::TOO_MANY_REQUESTS {
            asked.unwrap_or(WINDOW)
        } else if number("ratelimit-remaining") == Some(0.0) {
            reset().unwrap_or(WINDOW).min(LONGEST_UNASKED)
        } else {
            return;
        };
        self.with(stack, call, |gate| gate.close(Instant::now(), period));
    }

    fn with<T>(&self, stack: &str, call: Call, act: impl FnOnce(&mut Gate) -> T) -> T {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (stack.to_owned(), call);
        act(gates.entry(key).or_insert_with(|| Gate::new(call.limit())))
    }
}

/// Lets through so many calls per window.
#[derive(Debug)]
struct Gate {
    limit: usize,
    /// When the last calls were let through, or will be.
    passed: VecDeque<Instant>,
    closed_until: Option<Instant>,
}

impl Gate {
    fn new(limit: usize) -> Self {
        Self { limit, passed: VecDeque::new(), closed_until: None }
    }

    /// When the next call may be made; it counts as made then. If the service wants to be left alone for long, no call
    /// is admitted, but told how long that is.
    fn admit(&mut self, now: Instant) -> Result<Instant, Duration> {
        let closed = self.closed_until.map(|until| until.saturating_duration_since(now));
        if let Some(left) = closed.filter(|left| *left > LONGEST_HOLD) {
            return Err(left);
        }
        let full = self.passed.len() >= self.limit;
        let room = full.then(|| self.passed.pop_front()).flatten().map(|oldest| oldest + WINDOW);
        let at = [room, self.closed_until, self.passed.back().copied()]
            .into_iter()
            .flatten()
            .fold(now, Instant::max);
        self.passed.push_back(at);
        Ok(at)
    }

    fn is_open(&self, now: Instant) -> bool {
        self.closed_until.is_none_or(|until| until <= now)
    }

    /// The limit is spent for so long.
    fn close(&mut self, now: Instant, period: Duration) {
        let until = now + period;
        self.closed_until = Some(self.closed_until.map_or(until, |before| before.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn no_window_has_more_calls_than_the_limit() {
        let mut gate = Gate::new(10);
        let begin = Instant::now();
        let times: Vec<Instant> =
            (0..95).map(|number| gate.admit(begin + number * Duration::from_millis(7)).unwrap()).collect();
        assert!(times.is_sorted());
        for (index, time) in times.iter().enumerate() {
            let within = times[index..].iter().take_while(|other| **other < *time + WINDOW).count();
            assert!(within <= 10, "{within} calls after {:?}", *time - begin);
        }
        assert!(times[9] < begin + WINDOW, "the first ten do not wait");
        assert!(times[94] < begin + WINDOW * 10, "nobody waits for longer than needed");
    }

    #[test]
    fn the_memory_of_a_gate_is_bounded() {
        let mut gate = Gate::new(3);
        let begin = Instant::now();
        for second in 0..1_000 {
            gate.admit(begin + Duration::from_secs(second)).unwrap();
        }
        assert_eq!(gate.passed.len(), 3);
    }

    #[rstest]
    #[case::spent(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "1")], 1_000)]
    #[case::not_spent(200, &[("ratelimit-remaining", "1"), ("ratelimit-reset", "1")], 0)]
    #[case::refused_without_a_word(429, &[], 1_100)]
    #[case::not_for_ever(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "3600")], 3_000)]
    #[case::nonsense(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "-1")], 1_100)]
    fn calls_wait_until_the_limit_is_renewed(
        #[case] status: u16,
        #[case] headers: &[(&'static str, &'static str)],
        #[case] expected: u64,
    ) {
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let gates = Gates::default();
        let before = Instant::now();
        gates.learn("ops", Call::List, StatusCode::from_u16(status).unwrap(), &headers, None);
        let wait = gates.with("ops", Call::List, |gate| gate.admit(before)).unwrap() - before;
        let expected = Duration::from_millis(expected);
        assert!(wait >= expected && wait < expected + Duration::from_millis(400), "{wait:?}");
        let others = [("ops", Call::States), ("other", Call::List)];
        for (stack, call) in others {
            assert_eq!(gates.with(stack, call, |gate| gate.admit(before)), Ok(before));
        }
    }

    #[tokio::test]
    async fn a_service_that_asks_to_be_left_alone_is() {
        let gates = Gates::default();
        let refuse = |seconds| {
            let (status, asked) = (StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs_f64(seconds)));
            gates.learn("ops", Call::Show, status, &HeaderMap::new(), asked);
        };
        let begin = Instant::now();
        refuse(0.05);
        let waiting = gates.pass("ops", Call::Show);
        let close_again = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            refuse(0.1);
        };
        let (passed, ()) = tokio::join!(waiting, close_again);
        assert!(passed.is_ok() && begin.elapsed() >= Duration::from_millis(110), "{:?}", begin.elapsed());
        refuse(60.0);
        let left = gates.pass("ops", Call::Show).await.unwrap_err();
        assert!(left > Duration::from_secs(50), "nobody waits for that here: {left:?}");
        assert_eq!(gates.pass("ops", Call::Finish).await, Ok(()));
    }
}
