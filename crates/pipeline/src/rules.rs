//! The small grammars inside a step: dependencies, retry, soft fail, skip, agents, artifact paths.

use super::PipelineProblem;
use super::attributes::{Attributes, boolean, integer, wrong};
use super::condition::Condition;
use super::node::{Node, Value};
use super::step::{
    Concurrency, ConcurrencyMethod, Dependency, ExitMatch, ManualRetry, Retry, RetryRule, SoftFail, TextMatch,
};

/// Retries that `automatic: true` or a rule without a limit allows.
const DEFAULT_RETRY_LIMIT: u32 = 2;
/// The highest limit a rule may ask for.
const MAX_RETRY_LIMIT: i64 = 10;

/// `depends_on`: `None` when absent, an empty list for `~` and `[]`.
pub(crate) fn depends_on(attributes: &mut Attributes) -> Result<Option<Vec<Dependency>>, PipelineProblem> {
    let Some(node) = attributes.take(&["depends_on"])? else { return Ok(None) };
    match &node.value {
        Value::Null => Ok(Some(Vec::new())),
        Value::Text(step) => Ok(Some(vec![Dependency { step: step.clone(), allow_failure: false }])),
        Value::List(items) => items.iter().map(dependency).collect::<Result<_, _>>().map(Some),
        _ => Err(wrong(&node, "depends_on", "a step key or a list of them")),
    }
}

fn dependency(node: &Node) -> Result<Dependency, PipelineProblem> {
    match &node.value {
        Value::Text(step) => Ok(Dependency { step: step.clone(), allow_failure: false }),
        Value::Map(_) => {
            let mut attributes = Attributes::of(node);
            let step = attributes.text(&["step"])?;
            let allow_failure = attributes.flag(&["allow_failure"])?;
            attributes.finish()?;
            let step = step.ok_or_else(|| PipelineProblem::at(node, "depends_on entry has no step"))?;
            Ok(Dependency { step, allow_failure })
        }
        _ => Err(wrong(node, "depends_on entry", "a step key or a map with step")),
    }
}

/// `skip`: the reason, when the step is skipped.
pub(crate) fn skip(attributes: &mut Attributes) -> Result<Option<String>, PipelineProblem> {
    let Some(node) = attributes.take(&["skip"])? else { return Ok(None) };
    match (&node.value, boolean(&node)) {
        (Value::Null, _) | (_, Some(false)) => Ok(None),
        (_, Some(true)) => Ok(Some("skipped".to_owned())),
        (Value::Text(reason), None) => Ok(Some(reason.clone()).filter(|reason| !reason.is_empty())),
        _ => Err(wrong(&node, "skip", "true, false or a reason")),
    }
}

/// `agents`: a map or a list of `key=value`, as query rules. `None` when absent.
pub(crate) fn agents(attributes: &mut Attributes) -> Result<Option<Vec<String>>, PipelineProblem> {
    let Some(node) = attributes.take(&["agents", "agent_query_rules"])? else { return Ok(None) };
    match &node.value {
        Value::Null => Ok(None),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| {
                let value =
                    value.scalar().ok_or_else(|| wrong(value, &format!("agents {key}"), "a string"))?;
                Ok(format!("{key}={value}"))
            })
            .collect::<Result<_, _>>()
            .map(Some),
        _ => texts(&node, "agents").map(Some),
    }
}

/// `if` or `branches`, of which a step has at most one.
pub(crate) fn filters(
    attributes: &mut Attributes,
) -> Result<(Option<Condition>, Option<String>), PipelineProblem> {
    // The agent applies it when it uploads. Nobody does in a stored pipeline, and the step is wanted.
    attributes.take(&["if_changed"])?;
    let condition = match attributes.take(&["if"])? {
        None | Some(Node { value: Value::Null, .. }) => None,
        Some(node) => {
            let text = node.scalar().ok_or_else(|| wrong(&node, "if", "a condition in a string"))?;
            Some(Condition::parse(&text).map_err(|problem| PipelineProblem::at(&node, problem.to_string()))?)
        }
    };
    let branches = match attributes.take(&["branches"])? {
        None | Some(Node { value: Value::Null, .. }) => None,
        Some(node) if condition.is_some() => {
            return Err(PipelineProblem::at(&node, "a step has either if or branches, not both"));
        }
        Some(node) => {
            Some(texts(&node, "branches")?.join(" ")).filter(|patterns| !patterns.trim().is_empty())
        }
    };
    Ok((condition, branches))
}

/// `concurrency`, `concurrency_group` and `concurrency_method`.
pub(crate) fn concurrency(attributes: &mut Attributes) -> Result<Option<Concurrency>, PipelineProblem> {
    let limit = attributes.number(&["concurrency"], 1)?;
    let group = attributes.text(&["concurrency_group"])?.filter(|group| !group.is_empty());
    let method = match attributes.take(&["concurrency_method"])? {
        None | Some(Node { value: Value::Null, .. }) => None,
        Some(node) => match node.scalar().as_deref() {
            Some("ordered") => Some(ConcurrencyMethod::Ordered),
            Some("eager") => Some(ConcurrencyMethod::Eager),
            _ => return Err(wrong(&node, "concurrency_method", "ordered or eager")),
        },
    };
    match (limit, group) {
        (Some(limit), Some(group)) => Ok(Some(Concurrency {
            group,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            method: method.unwrap_or_default(),
        })),
        (Some(_), None) => Err(attributes.problem("concurrency needs a concurrency_group")),
        (None, Some(_)) => Err(attributes.problem("concurrency_group needs concurrency, a number")),
        (None, None) if method.is_some() => {
            Err(attributes.problem("concurrency_method needs concurrency and concurrency_group"))
        }
        (None, None) => Ok(None),
    }
}

/// A number of jobs or minutes, of which 0 is as good as none.
pub(crate) fn count(
    attributes: &mut Attributes,
    names: &[&'static str],
) -> Result<Option<u32>, PipelineProblem> {
    let Some(value) = attributes.number(names, 0)? else { return Ok(None) };
    let value =
        u32::try_from(value).map_err(|_| attributes.problem(format!("{} {value} is too large", names[0])))?;
    Ok(Some(value).filter(|value| *value > 0))
}

/// `notify`, kept as it is written.
pub(crate) fn notify(attributes: &mut Attributes) -> Result<Option<serde_json::Value>, PipelineProblem> {
    match attributes.take(&["notify"])? {
        None | Some(Node { value: Value::Null, .. }) => Ok(None),
        Some(node) if matches!(node.value, Value::List(_)) => Ok(Some(node.to_json())),
        Some(node) => Err(wrong(&node, "notify", "a list")),
    }
}

/// A string, or a list of strings.
pub(crate) fn texts(node: &Node, name: &str) -> Result<Vec<String>, PipelineProblem> {
    let one = |node: &Node| node.scalar().ok_or_else(|| wrong(node, name, "a string or a list of strings"));
    match &node.value {
        Value::Null => Ok(Vec::new()),
        Value::List(items) => items.iter().map(one).collect(),
        _ => Ok(vec![one(node)?]),
    }
}

/// `soft_fail`.
pub(crate) fn soft_fail(attributes: &mut Attributes) -> Result<SoftFail, PipelineProblem> {
    let Some(node) = attributes.take(&["soft_fail"])? else { return Ok(SoftFail::Never) };
    match (&node.value, boolean(&node)) {
        (Value::Null, _) | (_, Some(false)) => Ok(SoftFail::Never),
        (_, Some(true)) => Ok(SoftFail::Always),
        (Value::List(items), None) => {
            let mut matches = Vec::new();
            for item in items {
                let Value::Map(_) = &item.value else {
                    return Err(wrong(item, "soft_fail entry", "a map with exit_status"));
                };
                let mut entry = Attributes::of(item);
                let status = entry.take(&["exit_status"])?;
                entry.finish()?;
                let status =
                    status.ok_or_else(|| PipelineProblem::at(item, "soft_fail entry has no exit_status"))?;
                matches.extend(exit_matches(&status)?);
            }
            Ok(SoftFail::ExitStatus(matches))
        }
        _ => Err(wrong(&node, "soft_fail", "true, false or a list of exit_status entries")),
    }
}

fn exit_matches(node: &Node) -> Result<Vec<ExitMatch>, PipelineProblem> {
    let one = |node: &Node| match (&node.value, integer(node)) {
        (_, Some(status)) => Ok(ExitMatch::Is(status)),
        (Value::Text(star), None) if star == "*" => Ok(ExitMatch::Any),
        _ => Err(wrong(node, "exit_status", "a number or \"*\"")),
    };
    match &node.value {
        Value::List(items) => items.iter().map(one).collect(),
        _ => Ok(vec![one(node)?]),
    }
}

/// `retry`.
pub(crate) fn retry(attributes: &mut Attributes) -> Result<Retry, PipelineProblem> {
    let Some(node) = attributes.take(&["retry"])? else { return Ok(Retry::default()) };
    match node.value {
        Value::Null => return Ok(Retry::default()),
        Value::Map(_) => {}
        _ => return Err(wrong(&node, "retry", "a map with automatic or manual")),
    }
    let mut retry = Attributes::of(&node);
    let automatic = retry.take(&["automatic"])?.map(|node| automatic(&node)).transpose()?.unwrap_or_default();
    let manual = retry.take(&["manual"])?.map(|node| manual(&node)).transpose()?.unwrap_or_default();
    retry.finish()?;
    Ok(Retry { automatic, manual })
}

fn automatic(node: &Node) -> Result<Vec<RetryRule>, PipelineProblem> {
    let any =
        || RetryRule { exit_status: None, signal: None, signal_reason: None, limit: DEFAULT_RETRY_LIMIT };
    match (&node.value, boolean(node)) {
        (Value::Null, _) | (_, Some(false)) => Ok(Vec::new()),
        (_, Some(true)) => Ok(vec![any()]),
        (Value::List(items), None) => items.iter().map(retry_rule).collect(),
        (Value::Map(_), None) => Ok(vec![retry_rule(node)?]),
        _ => Err(wrong(node, "retry.automatic", "true, false, a rule or a list of rules")),
    }
}

fn retry_rule(node: &Node) -> Result<RetryRule, PipelineProblem> {
    let Value::Map(_) = &node.value else { return Err(wrong(node, "retry rule", "a map")) };
    let mut rule = Attributes::of(node);
    let exit_status = rule.take(&["exit_status"])?.map(|node| exit_matches(&node)).transpose()?;
    let signal = rule.text(&["signal"])?.map(|name| text_match(&name, signal_name));
    let signal_reason = match rule.take(&["signal_reason"])? {
        Some(node) => Some(
            texts(&node, "signal_reason")?.iter().map(|reason| text_match(reason, str::to_owned)).collect(),
        ),
        None => None,
    };
    let limit = rule.number(&["limit"], 0)?.unwrap_or(i64::from(DEFAULT_RETRY_LIMIT));
    rule.finish()?;
    if limit > MAX_RETRY_LIMIT {
        return Err(PipelineProblem::at(node, format!("retry limit must be at most {MAX_RETRY_LIMIT}")));
    }
    let limit = u32::try_from(limit).expect("checked to be between 0 and the maximum");
    Ok(RetryRule { exit_status, signal, signal_reason, limit })
}

fn text_match(text: &str, normal: impl Fn(&str) -> String) -> TextMatch {
    match text {
        "*" => TextMatch::Any,
        "none" => TextMatch::None,
        other => TextMatch::Is(normal(other)),
    }
}

/// `term`, `TERM` and `SIGTERM` are one signal.
pub fn signal_name(text: &str) -> String {
    let upper = text.to_uppercase();
    if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") }
}

fn manual(node: &Node) -> Result<ManualRetry, PipelineProblem> {
    match (&node.value, boolean(node)) {
        (Value::Null, _) => Ok(ManualRetry::default()),
        (_, Some(allowed)) => Ok(ManualRetry { allowed, ..ManualRetry::default() }),
        (Value::Map(_), None) => {
            let mut manual = Attributes::of(node);
            let allowed = manual.flag_or(&["allowed"], true)?;
            let permit_on_passed = manual.flag_or(&["permit_on_passed"], true)?;
            let reason = manual.text(&["reason"])?;
            manual.finish()?;
            Ok(ManualRetry { allowed, permit_on_passed, reason })
        }
        _ => Err(wrong(node, "retry.manual", "true, false or a map")),
    }
}
