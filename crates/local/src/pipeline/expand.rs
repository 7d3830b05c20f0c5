//! Laying a document out for a build: flat steps with ids, and the jobs of each.

use std::collections::BTreeSet;
use std::iter;

use bk_pipeline::branches;
use uuid::Uuid;

use super::PipelineProblem;
use super::condition::Facts;
use super::step::{Document, Kind, Permutation, Step, StepTree};

/// The most jobs that one document may create.
const MAX_JOBS: usize = 500;

/// A step with its place in a build.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaidStep {
    pub(crate) id: Uuid,
    /// The group it is a member of.
    pub(crate) group: Option<Uuid>,
    pub(crate) step: Step,
    /// Its `if` or `branches`, or that of its group, does not hold.
    pub(crate) unwanted: bool,
    pub(crate) jobs: Vec<LaidJob>,
}

/// A job of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaidJob {
    pub(crate) id: Uuid,
    /// Index and count within a parallel step.
    pub(crate) parallel: Option<(u32, u32)>,
    pub(crate) matrix: Option<Permutation>,
    /// The matrix leaves this combination out.
    pub(crate) skipped: bool,
}

/// What the build that a document is laid out for has and is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// The keys of the steps that it has already.
    pub(crate) taken: &'a BTreeSet<String>,
    pub(crate) branch: &'a str,
    pub(crate) facts: &'a Facts,
}

/// Flattens groups, merges what a group says into its members, decides filters, and creates the jobs.
pub(crate) fn expand(
    document: &Document,
    setting: Setting<'_>,
    new_id: &mut dyn FnMut() -> Uuid,
) -> Result<Vec<LaidStep>, PipelineProblem> {
    check_keys(&document.steps, setting.taken)?;
    let mut laid = Vec::new();
    for tree in without_swallowed(&document.steps) {
        let unwanted = is_unwanted(tree, setting)?;
        let outer = lay(tree.step.clone(), None, unwanted, new_id);
        let group = outer.id;
        laid.push(outer);
        for member in without_swallowed(&tree.members) {
            let unwanted = is_unwanted(member, setting)? || unwanted;
            laid.push(lay(joined(member.step.clone(), &tree.step), Some(group), unwanted, new_id));
        }
    }
    let jobs: usize = laid.iter().map(|step| step.jobs.len()).sum();
    if jobs > MAX_JOBS {
        return Err(PipelineProblem::whole(format!(
            "the pipeline would create {jobs} jobs; at most {MAX_JOBS} are allowed at once"
        )));
    }
    Ok(laid)
}

/// The steps without each plain wait next to a block, which holds things up well enough alone.
fn without_swallowed(trees: &[StepTree]) -> impl Iterator<Item = &StepTree> {
    let plain_wait = Step::bare(Kind::Wait { continue_on_failure: false });
    trees
        .iter()
        .enumerate()
        .filter(move |(index, tree)| {
            let neighbours = [index.checked_sub(1), Some(index + 1)];
            let next_to_block =
                neighbours.into_iter().flatten().filter_map(|at| trees.get(at)).any(|neighbour| {
                    matches!(neighbour.step.kind, Kind::Block(_)) && is_unfiltered(&neighbour.step)
                });
            !(tree.step == plain_wait && next_to_block)
        })
        .map(|(_, tree)| tree)
}

fn is_unfiltered(step: &Step) -> bool {
    step.condition.is_none() && step.branches.is_none() && step.skip.is_none() && step.depends_on.is_none()
}

/// Whether the step's own filter rules it out.
fn is_unwanted(tree: &StepTree, setting: Setting<'_>) -> Result<bool, PipelineProblem> {
    let step = &tree.step;
    if let Some(condition) = &step.condition {
        return match condition.holds(setting.facts) {
            Ok(holds) => Ok(!holds),
            Err(reason) => Err(PipelineProblem::on_path(tree.place, &format!("{}.if", tree.path), reason)),
        };
    }
    Ok(step.branches.as_ref().is_some_and(|patterns| !branches::matches(patterns, setting.branch)))
}

/// A member with what its group says: skip, and dependencies on top of its own.
fn joined(mut member: Step, group: &Step) -> Step {
    member.skip = member.skip.or_else(|| group.skip.clone());
    member.allow_dependency_failure |= group.allow_dependency_failure;
    if let (Some(own), Some(outer)) = (&mut member.depends_on, &group.depends_on) {
        own.extend(outer.iter().cloned());
    }
    member
}

fn lay(step: Step, group: Option<Uuid>, unwanted: bool, new_id: &mut dyn FnMut() -> Uuid) -> LaidStep {
    let id = new_id();
    let mut job = |parallel, matrix, skipped| LaidJob { id: new_id(), parallel, matrix, skipped };
    let matrix = match &step.kind {
        Kind::Command(command) => command.matrix.as_ref(),
        _ => None,
    };
    let jobs = match (step.parallelism(), matrix) {
        _ if step.kind == Kind::Group => Vec::new(),
        // One stands for all that are not to run.
        _ if step.skip.is_some() || unwanted => vec![job(None, None, false)],
        (Some(count), _) => {
            // Bounded, so that a silly number is counted and refused instead of allocated.
            let capped = count.min(u32::try_from(MAX_JOBS).expect("fits") + 1);
            (0..capped).map(|index| job(Some((index, count)), None, false)).collect()
        }
        (None, Some(matrix)) => matrix
            .permutations()
            .into_iter()
            .map(|(permutation, skip)| job(None, Some(permutation), skip.is_some()))
            .collect(),
        (None, None) => vec![job(None, None, false)],
    };
    LaidStep { id, group, step, unwanted, jobs }
}

fn check_keys(trees: &[StepTree], taken: &BTreeSet<String>) -> Result<(), PipelineProblem> {
    let mut seen = BTreeSet::new();
    for tree in trees.iter().flat_map(|tree| iter::once(tree).chain(&tree.members)) {
        let Some(key) = &tree.step.key else { continue };
        if taken.contains(key) || !seen.insert(key) {
            let reason = format!("the key {key:?} has already been used by another step in this build");
            return Err(PipelineProblem::on_path(tree.place, &tree.path, reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
