//! What each step waits for.
//!
//! Implicit: a step waits for the nearest wait or block before it in its list; a wait or block waits for
//! everything since the one before. An explicit `depends_on` replaces that. Steps that a job uploaded wait
//! for that job, and whoever waits for the uploading step waits for them as well.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::verdict::{Build, Outcome, PlacedStep};
use crate::pipeline::step::Kind;

/// One thing a step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A step of the build.
    Step { id: Uuid, allow_failure: bool },
    /// A key that no step has; an upload may still bring it.
    Missing,
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
}

impl Graph {
    pub(crate) fn new(build: &Build) -> Self {
        let mut parts: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for placed in &build.steps {
            for whole in [placed.group, placed.uploader].into_iter().flatten() {
                parts.entry(whole).or_default().push(placed.id);
            }
        }
        let uploader =
            build.steps.iter().filter_map(|placed| placed.uploader.map(|by| (placed.id, by))).collect();
        Self { edges: edges(&build.steps), parts, uploader }
    }

    /// Whether `step` waits for a key that does not exist.
    pub(crate) fn misses_a_key(&self, step: Uuid) -> bool {
        self.edges.get(&step).is_some_and(|edges| edges.contains(&Edge::Missing))
    }

    /// Whether the dependencies of `step` let it go on.
    pub(crate) fn readiness(&self, step: Uuid, own: &HashMap<Uuid, Outcome>) -> Readiness {
        let mut readiness = Readiness::Ready;
        for edge in self.edges.get(&step).into_iter().flatten() {
            let Edge::Step { id, allow_failure } = edge else {
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

    /// The outcome of `step` as `dependant` sees it: with what it uploaded, unless the dependant is part of
    /// that upload.
    fn outcome(&self, step: Uuid, dependant: Uuid, own: &HashMap<Uuid, Outcome>) -> Outcome {
        let get = |id: &Uuid| own.get(id).copied().unwrap_or(Outcome::Good);
        if self.was_uploaded_by(dependant, step) {
            return get(&step);
        }
        let mut total = Outcome::Good;
        let mut seen = HashSet::from([step]);
        let mut open = vec![step];
        while let Some(id) = open.pop() {
            total = total.and(get(&id));
            let parts = self.parts.get(&id).into_iter().flatten();
            open.extend(parts.filter(|part| **part != dependant && seen.insert(**part)));
        }
        total
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
        let uploaded = placed.uploader.map(|id| Edge::Step { id, allow_failure: allow });
        let explicit = placed.step.depends_on.as_ref().map(|list| {
            list.iter()
                .map(|dependency| match keys.get(dependency.step.as_str()) {
                    Some(id) => Edge::Step { id: *id, allow_failure: allow || dependency.allow_failure },
                    None => Edge::Missing,
                })
                .collect::<Vec<_>>()
        });
        let outer = |top: &Scope| top.barrier.map(|id| Edge::Step { id, allow_failure: allow });
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
    scope.barrier.iter().chain(since).map(|id| Edge::Step { id: *id, allow_failure }).collect()
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
