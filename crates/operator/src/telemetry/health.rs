//! Whether the operator does its work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How old the last good listing of a queue may be. Buildkite takes a queue for abandoned after that, too.
const SILENCE: Duration = Duration::from_secs(30);

/// How much later than it should a round of a queue may begin. Each call of a round has a time limit: one that takes so long has come to
/// a standstill, whatever Buildkite answers.
const STANDSTILL: Duration = Duration::from_mins(10);

/// How the connection to each queue is; nothing before it is known which queues are served. Cheap to clone.
///
/// What went wrong is not said here: everybody in the cluster may ask, and services say all kinds of things in their answers.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    connections: Option<Connections>,
    /// When the Lease was last seen to be somebody else's.
    stood_by: Option<Instant>,
    /// Whether the broker lacks what it proves itself with.
    lacks_certificate: bool,
}

type Connections = BTreeMap<String, Connection>;

/// How a queue stands.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// When it was last listed.
    listed: Option<Instant>,
    /// When its next round should begin; nothing before the first.
    due: Option<Instant>,
}

impl Health {
    /// These queues are to be served from now on, and no others. When those were listed that were served before stays known.
    pub fn serve(&self, queues: impl IntoIterator<Item = String>) {
        let mut state = self.lock();
        let before = state.connections.take().unwrap_or_default();
        let connection = |queue: String| {
            let listed = before.get(&queue).and_then(|connection| connection.listed);
            (queue, Connection { listed, due: None })
        };
        state.connections = Some(queues.into_iter().map(connection).collect());
    }

    /// Another replica works, as was seen then; or this one begins to.
    pub fn stand_by(&self, at: Option<Instant>) {
        self.lock().stood_by = at;
    }

    /// Whether agents wait for the broker to get its certificate. A replica without a broker has nobody waiting.
    pub fn lacks_certificate(&self, lacks: bool) {
        self.lock().lacks_certificate = lacks;
    }

    /// A queue was listed.
    pub fn listed(&self, queue: &str, at: Instant) {
        self.change(queue, |connection| connection.listed = Some(at));
    }

    /// The next round of a queue is to begin then, whatever came of the last.
    pub fn due(&self, queue: &str, at: Instant) {
        self.change(queue, |connection| connection.due = Some(at));
    }

    /// Whether rounds go on, well or badly; if not, one line for each queue whose do not. Then nothing but a new process helps.
    pub fn liveness(&self, now: Instant) -> Result<(), String> {
        let state = self.lock();
        let stuck: Vec<String> = state
            .connections
            .iter()
            .flatten()
            .filter_map(|(queue, connection)| Some((queue, now.saturating_duration_since(connection.due?))))
            .filter(|(_, late)| *late > STANDSTILL)
            .map(|(queue, late)| format!("queue {queue}: no round has begun for {} s\n", late.as_secs()))
            .collect();
        if stuck.is_empty() { Ok(()) } else { Err(stuck.concat()) }
    }

    /// Whether every queue was listed of late, and agents can register; if not, one line for each that was not. A replica that stands by is
    /// ready if it would notice that the other is gone.
    pub fn readiness(&self, now: Instant) -> Result<(), String> {
        let state = self.lock();
        let mut lacking = state.unready(now);
        lacking.extend(state.lacks_certificate.then(|| "broker: no certificate yet\n".to_owned()));
        if lacking.is_empty() { Ok(()) } else { Err(lacking.concat()) }
    }

    fn change(&self, queue: &str, change: impl FnOnce(&mut Connection)) {
        // One that is no longer served is nobody's business.
        if let Some(connection) = self.lock().connections.as_mut().and_then(|all| all.get_mut(queue)) {
            change(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One line for each queue that was not listed of late, or for what keeps the replica from standing by or from its work.
    fn unready(&self, now: Instant) -> Vec<String> {
        let Some(connections) = self.connections.as_ref() else {
            return match self.stood_by.map(|at| now.duration_since(at)) {
                None => vec!["starting: the log says what is waited for\n".to_owned()],
                Some(silence) if silence > SILENCE => {
                    vec![format!("standing by: the Lease was not seen for {} s\n", silence.as_secs())]
                }
                Some(_) => Vec::new(),
            };
        };
        let silent = |(queue, connection): (&String, &Connection)| {
            let silence = connection.listed.map(|at| now.duration_since(at));
            match silence {
                None => Some(format!("queue {queue}: not listed yet\n")),
                Some(silence) if silence > SILENCE => {
                    Some(format!("queue {queue}: not listed for {} s; the log says why\n", silence.as_secs()))
                }
                Some(_) => None,
            }
        };
        connections.iter().filter_map(silent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_stands_by_is_ready_while_it_sees_the_lease() {
        let health = Health::default();
        let now = Instant::now();
        health.stand_by(Some(now));
        assert_eq!(health.readiness(now + SILENCE), Ok(()));
        let later = now + SILENCE + Duration::from_secs(1);
        assert_eq!(health.readiness(later), Err("standing by: the Lease was not seen for 31 s\n".to_owned()));
        health.stand_by(None);
        assert_eq!(health.readiness(now), Err("starting: the log says what is waited for\n".to_owned()));
        health.serve(["a".to_owned()]);
        assert_eq!(health.readiness(now), Err("queue a: not listed yet\n".to_owned()));
    }

    #[test]
    fn every_queue_must_have_been_listed_of_late() {
        let health = Health::default();
        let now = Instant::now();
        assert_eq!(health.readiness(now), Err("starting: the log says what is waited for\n".to_owned()));
        health.serve(["a".to_owned(), "b".to_owned()]);
        health.listed("a", now);
        assert_eq!(health.readiness(now), Err("queue b: not listed yet\n".to_owned()));
        health.listed("b", now);
        assert_eq!(health.readiness(now + SILENCE), Ok(()));
        health.listed("b", now + SILENCE);
        let later = now + SILENCE + Duration::from_secs(1);
        assert_eq!(
            health.readiness(later),
            Err("queue a: not listed for 31 s; the log says why\n".to_owned())
        );
    }

    #[test]
    fn agents_need_the_certificate_of_the_broker_whoever_works() {
        let health = Health::default();
        let now = Instant::now();
        health.lacks_certificate(true);
        let starting = "starting: the log says what is waited for\nbroker: no certificate yet\n";
        assert_eq!(health.readiness(now), Err(starting.to_owned()));
        health.stand_by(Some(now));
        assert_eq!(health.readiness(now), Err("broker: no certificate yet\n".to_owned()));
        health.serve(["a".to_owned()]);
        health.listed("a", now);
        assert_eq!(health.readiness(now), Err("broker: no certificate yet\n".to_owned()));
        assert_eq!(health.liveness(now), Ok(()), "a new process would have none either");
        health.lacks_certificate(false);
        assert_eq!(health.readiness(now), Ok(()));
    }

    #[test]
    fn other_queues_do_not_make_those_forgotten_that_stay() {
        let health = Health::default();
        let now = Instant::now();
        health.serve(["a".to_owned(), "b".to_owned()]);
        health.listed("a", now);
        health.serve(["a".to_owned()]);
        assert_eq!(health.readiness(now), Ok(()));
        health.serve(["a".to_owned(), "c".to_owned()]);
        assert_eq!(health.readiness(now), Err("queue c: not listed yet\n".to_owned()));
    }

    #[test]
    fn a_queue_without_rounds_is_no_life_and_one_that_fails_is() {
        let health = Health::default();
        let now = Instant::now();
        assert_eq!(health.liveness(now), Ok(()), "it stands by, or waits to begin");
        health.serve(["a".to_owned(), "b".to_owned()]);
        let later = now + STANDSTILL;
        assert_eq!(health.liveness(later + STANDSTILL), Ok(()), "at its start the operator waits");
        health.due("b", now);
        assert_eq!(health.liveness(later), Ok(()));
        // Buildkite has asked for a long pause.
        health.due("a", later + STANDSTILL);
        let late = later + Duration::from_secs(1);
        assert_eq!(health.liveness(late), Err("queue b: no round has begun for 601 s\n".to_owned()));
        health.due("b", late);
        assert_eq!(health.liveness(late), Ok(()), "it has never been listed, and yet is tried");
        assert!(health.readiness(late).is_err());
        let never = late + 3 * STANDSTILL;
        assert!(health.liveness(never).is_err());
        health.serve(["a".to_owned()]);
        assert_eq!(health.liveness(never), Ok(()), "another shift has yet to begin");
    }
}
