//! What works, but hardly as it was meant: habits from other programs.

use bk_pipeline::node::{Node, Value};
use bk_plan::plugin;

use crate::{Finding, origin::Origin};

/// Doubts about what a step says in the `kubernetes` plugin.
pub(crate) fn of(origin: Origin<'_>) -> Vec<Finding> {
    let contents = origin.plugins(plugin::is_kubernetes);
    let mut findings = Vec::new();
    for content in &contents {
        let interposer = content.nearest("commandParams.interposer").scalar();
        let by_lines = matches!(interposer.as_deref(), None | Some("" | "buildkite"));
        for list in
            [content.get("containers"), content.get("podSpec").and_then(|spec| spec.get("containers"))]
        {
            let containers = list.map_or(&[][..], items);
            findings.extend(containers.iter().filter(|_| by_lines).filter_map(words));
        }
        if content.get("podSpec").is_some()
            && let Some(template) = content.get("podTemplate")
        {
            let message =
                "kubernetes plugin: podTemplate is not used, as there is a podSpec; leave one of them out";
            findings.push(Finding::warning(template.key.unwrap_or(template.place), message));
        }
    }
    findings
}

fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}

/// A command in words, as a pod has it, where each element is a line of a script.
fn words(container: &Node) -> Option<Finding> {
    let command = items(container.get("command")?);
    let flag = command.iter().skip(1).find(|word| word.scalar().is_some_and(|word| word.starts_with('-')))?;
    let message = format!(
        "kubernetes plugin: each element of `command` is a line of a script, so `{}` would be run as a command; \
         write one line, or set commandParams.interposer to vector",
        flag.scalar().unwrap_or_default()
    );
    Some(Finding::warning(flag.place, message))
}
