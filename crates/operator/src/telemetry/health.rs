//! Whether the operator does its work.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How old the last good listing of a queue may be. Buildkite takes a queue for abandoned after that, too.
const SILENCE: Duration = Duration::from_secs(30);

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
}

/// When each queue was last listed.
type Connections = BTreeMap<String, Option<Instant>>;

impl Health {
    /// These queues are to be served from now on, and no others. When those were listed that were served before stays known.
    pub fn serve(&self, queues: impl IntoIterator<Item = String>) {
        let mut state = self.lock();
        let before = state.connections.take().unwrap_or_default();
        let listed = |queue: String| {
            let at = before.get(&queue).copied().flatten();
            (queue, at)
        };
        state.connections = Some(queues.into_iter().map(listed).collect());
    }

    /// Another replica works, as was seen then; or this one begins to.
    pub fn stand_by(&self, at: Option<Instant>) {
        self.lock().stood_by = at;
    }

    /// A queue was listed.
    pub fn listed(&self, queue: &str, at: Instant) {
        self.lock().connections.get_or_insert_default().insert(queue.to_owned(), Some(at));
    }

    /// Whether every queue was listed of late; if not, one line for each that was not. A replica that stands by is ready if it
    /// would notice that the other is gone.
    pub fn readiness(&self, now: Instant) -> Result<(), String> {
        let state = self.lock();
        let Some(connections) = state.connections.as_ref() else {
            return match state.stood_by.map(|at| now.duration_since(at)) {
                None => Err("starting: the log says what is waited for\n".to_owned()),
                Some(silence) if silence > SILENCE => {
                    Err(format!("standing by: the Lease was not seen for {} s\n", silence.as_secs()))
                }
                Some(_) => Ok(()),
            };
        };
        let silent: Vec<String> = connections
            .iter()
            .filter_map(|(queue, listed)| match listed.map(|at| now.duration_since(at)) {
                None => Some(format!("queue {queue}: not listed yet\n")),
                Some(silence) if silence > SILENCE => {
                    Some(format!("queue {queue}: not listed for {} s; the log says why\n", silence.as_secs()))
                }
                Some(_) => None,
            })
            .collect();
        if silent.is_empty() { Ok(()) } else { Err(silent.concat()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
}
