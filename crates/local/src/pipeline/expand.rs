//! Laying a document out for a build: flat steps with ids, and the jobs of each.

use std::collections::BTreeSet;
use std::iter;

use uuid::Uuid;

use super::PipelineProblem;
use super::step::{Document, Kind, Step, StepTree};

/// The most jobs that one document may create.
const MAX_JOBS: usize = 500;

/// A step with its place in a build.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaidStep {
    pub(crate) id: Uuid,
    /// The group it is a member of.
    pub(crate) group: Option<Uuid>,
    pub(crate) step: Step,
    pub(crate) jobs: Vec<LaidJob>,
}

/// A job of a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaidJob {
    pub(crate) id: Uuid,
    /// Index and count within a parallel step.
    pub(crate) parallel: Option<(u32, u32)>,
}

/// Flattens groups, merges what a group says into its members, and creates the jobs.
/// `taken` are the keys that the build has already.
pub(crate) fn expand(
    document: &Document,
    taken: &BTreeSet<String>,
    new_id: &mut dyn FnMut() -> Uuid,
) -> Result<Vec<LaidStep>, PipelineProblem> {
    let mut laid = Vec::new();
    for tree in &document.steps {
        let outer = lay(tree.step.clone(), None, new_id);
        let group = outer.id;
        laid.push(outer);
        for member in &tree.members {
            laid.push(lay(joined(member.step.clone(), &tree.step), Some(group), new_id));
        }
    }
    check_keys(&document.steps, taken)?;
    let jobs: usize = laid.iter().map(|step| step.jobs.len()).sum();
    if jobs > MAX_JOBS {
        return Err(PipelineProblem::whole(format!(
            "the pipeline would create {jobs} jobs; at most {MAX_JOBS} are allowed at once"
        )));
    }
    Ok(laid)
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

fn lay(step: Step, group: Option<Uuid>, new_id: &mut dyn FnMut() -> Uuid) -> LaidStep {
    let id = new_id();
    let mut job = |parallel| LaidJob { id: new_id(), parallel };
    let jobs = match &step.kind {
        Kind::Group => Vec::new(),
        Kind::Command(command) => match command.parallelism {
            Some(count) if count > 0 && step.skip.is_none() => {
                // Bounded, so that a silly number is counted and refused instead of allocated.
                let capped = count.min(u32::try_from(MAX_JOBS).expect("fits") + 1);
                (0..capped).map(|index| job(Some((index, count)))).collect()
            }
            _ => vec![job(None)],
        },
        Kind::Wait { .. } | Kind::Block(_) | Kind::Input(_) => vec![job(None)],
    };
    LaidStep { id, group, step, jobs }
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
