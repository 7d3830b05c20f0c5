//! What each step waits for.
//!
//! Implicit: a step waits for the nearest wait or block before it in its list; a wait or block waits for
//! everything since the one before. An explicit `depends_on` replaces that. Steps that a job uploaded wait
//! for that job, and whoever waits for the uploading step waits for them as well. What is explicit always
//! holds; of the rest, [`unmeetable`] leaves out what would close a circle.

mod unmeetable;

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::verdict::{Outcome, PlacedStep};
use crate::pipeline::step::Kind;

/// One thing a step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A step of the build.
    Step { id: Uuid, allow_failure: bool, rank: Rank },
    /// A key that no step has; an upload may still bring it.
    Missing,
}

/// Why a step waits for another; the first of these outlasts the others when not all can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `depends_on` names it, or the group that it is in.
    Explicit,
    /// Its job uploaded the step.
    Uploader,
    /// It was uploaded by a step that `depends_on` names.
    Uploaded,
    /// The order of the steps says so.
    Implicit,
}

/// Whether a step may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Waiting,
    Ready,
    /// A dependency has failed: it never will be.
    Hopeless,
}

/// The dependencies of a build, computed once and asked often.
pub(crate) struct Graph {
    edges: HashMap<Uuid, Vec<Edge>>,
    /// Steps uploaded by a step, or members of a group.
    parts: HashMap<Uuid, Vec<Uuid>>,
    uploader: HashMap<Uuid, Uuid>,
    /// Who would wait for whom, and does not.
    dropped: HashSet<(Uuid, Uuid)>,
}

impl Graph {
    pub(crate) fn new(steps: &[PlacedStep]) -> Self {
        let mut parts: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for placed in steps {
            for whole in [placed.group, placed.uploader].into_iter().flatten() {
                parts.entry(whole).or_default().push(placed.id);
            }
        }
        let uploader = steps.iter().filter_map(|placed| placed.uploader.map(|by| (placed.id, by))).collect();
        let order: Vec<Uuid> = steps.iter().map(|placed| placed.id).collect();
        let mut graph = Self { edges: edges(steps), parts, uploader, dropped: HashSet::new() };
        let barriers: HashSet<Uuid> =
            steps.iter().filter(|placed| is_barrier(placed)).map(|placed| placed.id).collect();
        loop {
            graph.dropped = unmeetable::unmeetable(&graph, &order);
            if graph.dropped.is_empty() || !graph.pass_on(&barriers) {
                return graph;
            }
        }
    }

    /// What a barrier cannot wait for, the next barrier does in its stead. Says whether that is news.
    fn pass_on(&mut self, barriers: &HashSet<Uuid>) -> bool {
        let mut news = false;
        for (barrier, on) in self.dropped.iter().filter(|(step, _)| barriers.contains(step)) {
            for (_, edges) in self.edges.iter_mut().filter(|(step, _)| barriers.contains(step) && *step != on)
            {
                let knows = edges.iter().any(|edge| matches!(edge, Edge::Step { id, .. } if id == on));
                let next = edges.iter().find_map(|edge| match edge {
                    Edge::Step { id, allow_failure, rank: Rank::Implicit } if id == barrier => {
                        Some(*allow_failure)
                    }
                    _ => None,
                });
                if let (false, Some(allow_failure)) = (knows, next) {
                    edges.push(Edge::Step { id: *on, allow_failure, rank: Rank::Implicit });
                    news = true;
                }
            }
        }
        news
    }

    /// Whether `step` waits for a key that does not exist.
    pub(crate) fn misses_a_key(&self, step: Uuid) -> bool {
        self.edges.get(&step).is_some_and(|edges| edges.contains(&Edge::Missing))
    }

    /// The steps that keep `step` from going on.
    pub(crate) fn pending(&self, step: Uuid, own: &HashMap<Uuid, Outcome>) -> Vec<Uuid> {
        let edges = self.edges.get(&step).into_iter().flatten();
        let steps = edges.filter_map(|edge| match edge {
            Edge::Step { id, .. } => Some(*id),
            Edge::Missing => None,
        });
        steps.filter(|id| self.outcome(*id, step, own) == Outcome::Pending).collect()
    }

    /// Whether the dependencies of `step` let it go on.
    pub(crate) fn readiness(&self, step: Uuid, own: &HashMap<Uuid, Outcome>) -> Readiness {
        let mut readiness = Readiness::Ready;
        for edge in self.edges.get(&step).into_iter().flatten() {
            let Edge::Step { id, allow_failure, .. } = edge else {
                readiness = Readiness::Waiting;
                continue;
            };
            match self.outcome(*id, step, own) {
                Outcome::Good => {}
                Outcome::Failed if *allow_failure => {}
                Outcome::Pending => readiness = Readiness::Waiting,
                Outcome::Failed | Outcome::Canceled => return Readiness::Hopeless,
            }
        }
        readiness
    }

    /// How `step` came out as `dependant` sees it.
    fn outcome(&self, step: Uuid, dependant: Uuid, own: &HashMap<Uuid, Outcome>) -> Outcome {
        self.whole(step, dependant)
            .into_iter()
            .filter(|on| !self.dropped.contains(&(dependant, *on)))
            .filter_map(|on| own.get(&on).copied())
            .fold(Outcome::Good, Outcome::and)
    }

    /// Everything that `step` waits for, one by one, if nothing is left out.
    fn waits(&self, step: Uuid) -> Vec<(Rank, Uuid)> {
        let mut waits = Vec::new();
        for edge in self.edges.get(&step).into_iter().flatten() {
            let Edge::Step { id, rank, .. } = edge else { continue };
            for on in self.whole(*id, step) {
                let named = on == *id || self.uploader.get(&on) == self.uploader.get(id);
                let rank = if *rank == Rank::Explicit && !named { Rank::Uploaded } else { *rank };
                waits.push((rank, on));
            }
        }
        waits
    }

    /// `step` as `dependant` sees it: with the members of the group that it is and with what it uploaded,
    /// unless the dependant is part of that upload.
    fn whole(&self, step: Uuid, dependant: Uuid) -> Vec<Uuid> {
        let mut whole = vec![step];
        if self.was_uploaded_by(dependant, step) {
            return whole;
        }
        let mut seen = HashSet::from([step, dependant]);
        let mut next = 0;
        while let Some(id) = whole.get(next) {
            let parts = self.parts.get(id).into_iter().flatten();
            whole.extend(parts.filter(|part| seen.insert(**part)).copied().collect::<Vec<_>>());
            next += 1;
        }
        whole
    }

    fn was_uploaded_by(&self, mut step: Uuid, ancestor: Uuid) -> bool {
        while let Some(by) = self.uploader.get(&step) {
            if *by == ancestor {
                return true;
            }
            step = *by;
        }
        false
    }
}

/// The scan over the list: the last barrier of each list, and what came since.
#[derive(Default)]
struct Scope {
    barrier: Option<Uuid>,
    since: Vec<Uuid>,
}

fn edges(steps: &[PlacedStep]) -> HashMap<Uuid, Vec<Edge>> {
    let keys: HashMap<&str, Uuid> =
        steps.iter().filter_map(|placed| placed.step.key.as_deref().map(|key| (key, placed.id))).collect();
    let mut top = Scope::default();
    let mut groups: HashMap<Uuid, (Scope, Vec<Edge>)> = HashMap::new();
    let mut all = HashMap::new();
    for placed in steps {
        let allow = allows_failure(placed);
        let edge = |id, rank| Edge::Step { id, allow_failure: allow, rank };
        let uploaded = placed.uploader.map(|id| edge(id, Rank::Uploader));
        let explicit = placed.step.depends_on.as_ref().map(|list| {
            list.iter()
                .map(|dependency| match keys.get(dependency.step.as_str()) {
                    Some(id) => Edge::Step {
                        id: *id,
                        allow_failure: allow || dependency.allow_failure,
                        rank: Rank::Explicit,
                    },
                    None => Edge::Missing,
                })
                .collect::<Vec<_>>()
        });
        let outer = |top: &Scope| top.barrier.map(|id| edge(id, Rank::Implicit));
        let implicit = match placed.group.and_then(|group| groups.get(&group)) {
            _ if matches!(placed.step.kind, Kind::Input(_)) => Vec::new(),
            Some((scope, inherited)) => {
                let mut edges = inner_edges(scope, placed, allow);
                edges.extend(inherited.iter().cloned());
                edges
            }
            None => inner_edges(&top, placed, allow),
        };
        if matches!(placed.step.kind, Kind::Group) {
            let inherited =
                explicit.clone().unwrap_or_else(|| outer(&top).into_iter().chain(uploaded.clone()).collect());
            groups.insert(placed.id, (Scope::default(), inherited));
        }
        let mut edges = explicit.unwrap_or_else(|| implicit.into_iter().chain(uploaded).collect());
        edges.retain(|edge| !matches!(edge, Edge::Step { id, .. } if *id == placed.id));
        all.insert(placed.id, edges);
        note(placed, &mut top, &mut groups);
    }
    all
}

/// A barrier waits for all since the last one, and for that; any other step for the last barrier.
fn inner_edges(scope: &Scope, placed: &PlacedStep, allow_failure: bool) -> Vec<Edge> {
    let since = if is_barrier(placed) { &scope.since[..] } else { &[] };
    let edge = |id: &Uuid| Edge::Step { id: *id, allow_failure, rank: Rank::Implicit };
    scope.barrier.iter().chain(since).map(edge).collect()
}

fn note(placed: &PlacedStep, top: &mut Scope, groups: &mut HashMap<Uuid, (Scope, Vec<Edge>)>) {
    let scope = match placed.group.and_then(|group| groups.get_mut(&group)) {
        Some((scope, _)) => {
            // A wait of the whole build also waits for what is inside groups.
            top.since.push(placed.id);
            scope
        }
        None => top,
    };
    if is_barrier(placed) {
        scope.barrier = Some(placed.id);
        scope.since.clear();
    } else {
        scope.since.push(placed.id);
    }
}

fn is_barrier(placed: &PlacedStep) -> bool {
    matches!(placed.step.kind, Kind::Wait { .. } | Kind::Block(_))
}

fn allows_failure(placed: &PlacedStep) -> bool {
    placed.step.allow_dependency_failure
        || matches!(placed.step.kind, Kind::Wait { continue_on_failure: true })
}
