//! A step of a pipeline in a file, as its job has it.

use std::path::Path;

use anyhow::{Result, anyhow};
use bk_pipeline::{
    from_stored,
    step::{Document, Env, Kind, Step},
    variables,
};
use bk_plan::standalone::Hook;

use crate::cli::plan;

/// The environment of a step's job, from the pipeline in a file.
pub(super) fn read(path: &Path, wanted: &str) -> Result<Hook> {
    let text = plan::read_text(path)?;
    hook(&text, wanted).map_err(|problem| anyhow!("{}: {problem}", plan::name(path)))
}

fn hook(text: &str, wanted: &str) -> Result<Hook, String> {
    let document = from_stored(text, &Env::new()).map_err(|problem| problem.to_string())?;
    let step = find(&document, wanted)?;
    let Kind::Command(command) = &step.kind else { return Err(format!("{wanted} runs nothing")) };
    if command.matrix.is_some() {
        return Err(format!(
            "step `{wanted}` has a matrix, and so is several jobs; give it the command of one"
        ));
    }
    let mut env = document.env.clone();
    env.extend(variables::of_step(step, command));
    let given = Some(env.keys().cloned().collect());
    Ok(Hook { env, given })
}

/// The command step with this key, label or number.
fn find<'a>(document: &'a Document, wanted: &str) -> Result<&'a Step, String> {
    let trees = document.steps.iter().flat_map(|tree| std::iter::once(tree).chain(&tree.members));
    let steps: Vec<&Step> =
        trees.map(|tree| &tree.step).filter(|step| matches!(step.kind, Kind::Command(_))).collect();
    let by = |name: fn(&Step) -> Option<&String>| {
        steps.iter().find(|step| name(step).is_some_and(|name| name == wanted))
    };
    let numbered = || steps.get(wanted.parse::<usize>().ok()?.checked_sub(1)?);
    let found = by(|step| step.key.as_ref()).or_else(|| by(|step| step.label.as_ref())).or_else(numbered);
    found.copied().ok_or_else(|| {
        let name = |step: &Step| {
            step.key.clone().or_else(|| step.label.clone()).unwrap_or_else(|| "unnamed".to_owned())
        };
        let names = steps.iter().enumerate().map(|(index, step)| format!("{} ({})", index + 1, name(step)));
        format!("there is no command step `{wanted}`; there are {}", names.collect::<Vec<_>>().join(", "))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PIPELINE: &str = "env: {A: a, B: b}\nsteps:\n- {command: make, key: build, env: {B: c}, image: golang}\n- wait\n\
                            - group: tests\n  steps: [{command: make test, label: Test}, {command: make e2e}]\n\
                            - {command: x, key: many, matrix: [1, 2]}\n";

    #[rstest]
    #[case("build", "make")]
    #[case("Test", "make test")]
    #[case("1", "make")]
    #[case("3", "make e2e")]
    fn a_step_has_a_key_a_label_or_a_number(#[case] wanted: &str, #[case] command: &str) {
        assert_eq!(hook(PIPELINE, wanted).unwrap().env["BUILDKITE_COMMAND"], command);
    }

    #[test]
    fn its_job_has_what_pipeline_and_step_say() {
        let Hook { env, given } = hook(PIPELINE, "build").unwrap();
        assert_eq!((&*env["A"], &*env["B"], &*env["BUILDKITE_IMAGE"]), ("a", "c", "golang"));
        assert!(given.unwrap().contains("A"));
    }

    #[rstest]
    #[case("0", "there is no command step `0`; there are 1 (build), 2 (Test), 3 (unnamed), 4 (many)")]
    #[case("many", "step `many` has a matrix, and so is several jobs; give it the command of one")]
    fn what_is_not_there_is_said(#[case] wanted: &str, #[case] expected: &str) {
        assert_eq!(hook(PIPELINE, wanted).unwrap_err(), expected);
    }
}
