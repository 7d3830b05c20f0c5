//! Dependencies that nobody asked for and that could never be met.
//!
//! Order and uploads bring dependencies of their own. Together with explicit ones they can close a circle: a
//! step depends on its uploader, and a wait inside the upload holds for all steps before it, that one
//! included. Such a dependency is left out, so that only circles of explicit ones remain.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Edge, Graph, Rank};

/// What is left out: the step that would wait, and what for.
pub(super) fn unmeetable(graph: &Graph, order: &[Uuid]) -> HashSet<(Uuid, Uuid)> {
    let suspects = suspects(graph, order);
    let mut wishes: Vec<(Rank, Uuid, Uuid)> = Vec::new();
    for step in order.iter().filter(|step| suspects.contains(step)) {
        let waits = graph.waits(*step).into_iter().filter(|(_, on)| suspects.contains(on));
        wishes.extend(waits.map(|(rank, on)| (rank, *step, on)));
    }
    // Stable, so that equals keep the order of the steps.
    wishes.sort_by_key(|(rank, ..)| *rank);
    let mut granted: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
    let mut dropped = HashSet::new();
    for (rank, step, on) in wishes {
        let known = granted.get(&step).is_some_and(|list| list.contains(&on));
        if known || dropped.contains(&(step, on)) {
            continue;
        }
        if rank > Rank::Explicit && leads(&granted, on, step) {
            dropped.insert((step, on));
        } else {
            granted.entry(step).or_default().push(on);
        }
    }
    dropped
}

fn leads(granted: &HashMap<Uuid, Vec<Uuid>>, from: Uuid, to: Uuid) -> bool {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        open.extend(granted.get(&at).into_iter().flatten().filter(|next| seen.insert(**next)));
    }
    false
}

/// The steps that may be part of a circle; mostly none. Every other one is behind all circles or before them.
fn suspects(graph: &Graph, order: &[Uuid]) -> HashSet<Uuid> {
    // Each step is there twice: alone, and with its parts.
    let index: HashMap<Uuid, usize> = order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let whole = |at: usize| at + order.len();
    let mut arrows: Vec<Vec<usize>> = vec![Vec::new(); 2 * order.len()];
    for (at, id) in order.iter().enumerate() {
        for edge in graph.edges.get(id).into_iter().flatten() {
            let Edge::Step { id: on, .. } = edge else { continue };
            let Some(on_at) = index.get(on).copied() else { continue };
            arrows[at].push(if graph.was_uploaded_by(*id, *on) { on_at } else { whole(on_at) });
        }
        arrows[whole(at)].push(at);
        let parts = graph.parts.get(id).into_iter().flatten().filter_map(|part| index.get(part));
        arrows[whole(at)].extend(parts.map(|part| whole(*part)));
    }
    let mut backwards = vec![Vec::new(); arrows.len()];
    for (from, list) in arrows.iter().enumerate() {
        for to in list {
            backwards[*to].push(from);
        }
    }
    let ends = peel(&arrows, &backwards);
    let starts = peel(&backwards, &arrows);
    order.iter().enumerate().filter(|(at, _)| !ends[*at] && !starts[*at]).map(|(_, id)| *id).collect()
}

/// Takes away what has no arrow left, again and again. Says what could be taken.
fn peel(arrows: &[Vec<usize>], backwards: &[Vec<usize>]) -> Vec<bool> {
    let mut left: Vec<usize> = arrows.iter().map(Vec::len).collect();
    let mut taken = vec![false; arrows.len()];
    let mut open: Vec<usize> = (0..arrows.len()).filter(|at| left[*at] == 0).collect();
    while let Some(at) = open.pop() {
        taken[at] = true;
        for from in &backwards[at] {
            left[*from] -= 1;
            if left[*from] == 0 {
                open.push(*from);
            }
        }
    }
    taken
}
