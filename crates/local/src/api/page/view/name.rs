//! What steps and jobs are called: one name for the page's lists, links and reasons.

use crate::pipeline::step::{Kind, Permutation, Step};

/// What a step is called: its label or key, or the first line of what it runs. Where its jobs differ in a value,
/// the value's name stands in its place.
pub(super) fn of_step(step: &Step) -> String {
    without_number(&with_placeholders(&bare(step)))
}

/// What a job is called among those of its step: with the values of its combination, and its number.
pub(super) fn of_job(step: &Step, matrix: Option<&Permutation>, parallel: Option<(u32, u32)>) -> String {
    let named = bare(&step.permuted(matrix));
    let named = match matrix {
        // No value is in the label: they stand after it.
        Some(matrix) if named == bare(step) => {
            let values: Vec<&str> = matrix.values().map(String::as_str).collect();
            format!("{named} {}", values.join(", "))
        }
        _ => named,
    };
    match parallel {
        Some((index, total)) => numbered(&named, index, total),
        None => named,
    }
}

fn bare(step: &Step) -> String {
    let command = match &step.kind {
        Kind::Command(command) => command.script.lines().find(|line| !line.trim().is_empty()),
        Kind::Trigger(trigger) => Some(trigger.pipeline.as_str()),
        Kind::Wait { .. } => Some("wait"),
        Kind::Block(_) => Some("block"),
        Kind::Input(_) => Some("input"),
        Kind::Group => Some("group"),
    };
    step.label.as_deref().or(step.key.as_deref()).or(command).unwrap_or("command").to_owned()
}

/// `%n` counts from nothing, `%N` from one, `%t` is how many there are; without any, the number comes last.
fn numbered(name: &str, index: u32, total: u32) -> String {
    if !["%n", "%N", "%t"].iter().any(|placeholder| name.contains(placeholder)) {
        return format!("{name} {}/{total}", index + 1);
    }
    name.replace("%n", &index.to_string())
        .replace("%N", &(index + 1).to_string())
        .replace("%t", &total.to_string())
}

fn without_number(name: &str) -> String {
    let words = name.replace("%n/%t", "").replace("%N/%t", "");
    let words = words.replace("%n", "").replace("%N", "").replace("%t", "");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `{{matrix.os}}` as `‹os›`: the step stands for all its combinations.
fn with_placeholders(name: &str) -> String {
    let mut shown = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inside, behind)) = after.split_once("}}") else { break };
        let inside = inside.trim();
        let inside = inside.strip_prefix("matrix.").unwrap_or(inside);
        shown.extend([before, "‹", inside, "›"]);
        rest = behind;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::pipeline;

    fn first(yaml: &str) -> Step {
        let document = pipeline::from_yaml(&format!("steps: [{yaml}]")).unwrap();
        document.steps.into_iter().next().unwrap().step
    }

    #[rstest]
    #[case::the_label("{label: Test, key: t, command: make}", "Test", "Test 2/3")]
    #[case::else_the_key("{key: t, command: make}", "t", "t 2/3")]
    #[case::else_the_command("{command: \"\\nmake\\nmore\"}", "make", "make 2/3")]
    #[case::a_number_from_nothing("{label: Test %n, command: make}", "Test", "Test 1")]
    #[case::a_number_from_one("{label: \"Test %N/%t\", command: make}", "Test", "Test 2/3")]
    fn parallel_jobs(#[case] yaml: &str, #[case] step: &str, #[case] job: &str) {
        let read = first(yaml);
        assert_eq!(of_step(&read), step);
        assert_eq!(of_job(&read, None, Some((1, 3))), job);
    }

    #[rstest]
    #[case::in_the_label("\"On {{matrix.os}}, {{ matrix.arch }}\"", "On ‹os›, ‹arch›", "On linux, arm")]
    #[case::after_the_label("Test", "Test", "Test arm, linux")]
    #[case::unclosed("\"{{matrix.os}} {{\"", "‹os› {{", "linux {{")]
    fn combinations(#[case] label: &str, #[case] step: &str, #[case] job: &str) {
        let setup = "matrix: {setup: {os: [linux], arch: [arm]}}";
        let read = first(&format!("{{label: {label}, command: make, {setup}}}"));
        let matrix = [("os", "linux"), ("arch", "arm")];
        let matrix = matrix.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(of_step(&read), step);
        assert_eq!(of_job(&read, Some(&matrix), None), job);
    }
}
